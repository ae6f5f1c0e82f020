"""The shape of a group GEMM."""

from __future__ import annotations

from dataclasses import dataclass

_LISTED = 4


@dataclass(frozen=True)
class GroupGemmShape:
    """The dimensions of every group: ``C[m, n] = A[m, k] @ B[n, k]^T``.

    ``m``, ``n`` and ``k`` have one entry per group; ``k`` counts FP4 values.
    """

    name: str
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]

    @property
    def groups(self) -> list[tuple[int, int, int]]:
        """``(m, n, k)`` of each group."""
        return list(zip(self.m, self.n, self.k, strict=True))

    def describe(self) -> str:
        """For example ``g=8 m=80,176,... n=4096 k=7168``; equal values are written once."""
        m, n, k = (_collapse(values) for values in (self.m, self.n, self.k))
        return f"g={len(self.m)} m={m} n={n} k={k}"


def _collapse(values: tuple[int, ...]) -> str:
    if len(set(values)) == 1:
        return str(values[0])
    if len(values) <= _LISTED:
        return ",".join(map(str, values))
    return f"{values[0]},{values[1]},..."
