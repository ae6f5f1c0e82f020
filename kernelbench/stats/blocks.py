"""The samples of one A/B session, in blocks, and what each block says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Share of a block's reps cut from each tail before averaging.
TRIM = 0.2


@dataclass(frozen=True)
class BlockSamples:
    """One session's samples, in microseconds, in the order of measuring.

    Raises:
        ValueError: On shapes that differ or hold fewer than 2 blocks, and on samples that are not
            finite and positive.
    """

    base: Floats  #: Array [K, R]: K blocks of R reps of the base arm.
    cand: Floats  #: The same of the candidate.
    #: Array [K] of bool, blocks during which the device throttled; None if unknown.
    throttled: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        base = np.asarray(self.base, dtype=np.float64)
        cand = np.asarray(self.cand, dtype=np.float64)
        if base.ndim != 2 or base.shape != cand.shape or base.shape[0] < 2 or base.shape[1] < 1:
            raise ValueError(
                f"base and cand must be two [K>=2, R>=1] arrays alike, got {base.shape} "
                f"and {cand.shape}"
            )
        for name, values in (("base", base), ("cand", cand)):
            if not (np.isfinite(values).all() and (values > 0).all()):
                raise ValueError(f"{name} holds samples that are not finite and positive")
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "cand", cand)
        if self.throttled is not None:
            flags = np.asarray(self.throttled, dtype=np.bool_)
            if flags.shape != base.shape[:1]:
                raise ValueError(f"throttled must have shape {base.shape[:1]}, got {flags.shape}")
            object.__setattr__(self, "throttled", flags)

    def without_throttled(self) -> tuple[BlockSamples, int, bool]:
        """Drop throttled blocks, both arms of each.

        Returns:
            The samples kept, the number of blocks dropped, and whether enough blocks were left. If
            fewer than half (or than 3) would be left, nothing is dropped and the last is False.
        """
        if self.throttled is None or not self.throttled.any():
            return self, 0, True
        keep = ~self.throttled
        if keep.sum() < max(3, keep.size / 2):
            return self, 0, False
        kept = BlockSamples(self.base[keep], self.cand[keep])
        return kept, int(keep.size - keep.sum()), True

    def scaled(self, factor: float) -> BlockSamples:
        """The same session with every candidate time multiplied by ``factor``."""
        return BlockSamples(self.base, self.cand * factor, self.throttled)


def samples_of(
    blocks: Iterable[tuple[Sequence[int], Sequence[float], bool]],
) -> BlockSamples | None:
    """A session's samples from its blocks; None if fewer than two are whole.

    Args:
        blocks: Of each the order of its arms, what was timed, and whether the device throttled.
    """
    pairs = []
    for order, values, throttled in blocks:
        arms = [[t for a, t in zip(order, values, strict=False) if a == arm] for arm in (0, 1)]
        if len(values) == len(order) and len(arms[0]) == len(arms[1]):
            pairs.append((*arms, throttled))
    if len(pairs) < 2:
        return None
    base, cand, throttled_ones = (np.array(each) for each in zip(*pairs, strict=True))
    return BlockSamples(base, cand, throttled_ones)


def block_levels(times: Floats) -> Floats:
    """20 % trimmed mean of ln t per block: [K, R] microseconds -> [K]."""
    reps = times.shape[1]
    cut = int(TRIM * reps)
    ordered = np.sort(np.log(times), axis=1)
    return np.asarray(ordered[:, cut : reps - cut].mean(axis=1), dtype=np.float64)


def block_differences(session: BlockSamples) -> Floats:
    """d_k = trimmed level of the candidate - of the base, per block: [K], ln units."""
    return block_levels(session.cand) - block_levels(session.base)
