"""Reference and tolerances of the NVFP4 group GEMM.

The reference is exact: products of an element are multiples of 2⁻²⁰ (e2m1 values of 0.5, scales of
2⁻⁹) and, for the classes drawn, partial sums stay below 2³³, so float64 holds every one of them.
``gpu-mode`` and ``structured`` must equal it, rounded once to float16.

Bounds for ``full``. Let an element be Σ x_k with K terms, σ² = Σ x_k², and E the error of its
float32 sum.

* Every addition of a float32 accumulation, rounded or truncated, errs by at most 2⁻²³ of the
  partial sum's magnitude; there are at most K of them, in whatever order or tree.
* The signs of the x_k are independent coin flips given their magnitudes (the e2m1 sign bit is drawn
  independently). So by Hoeffding with Lévy's maximal inequality all partial sums of one order stay
  within λσ but for a probability of 4 exp(-λ²/2): 5e-14 with λ = 8. The branches of a tree have
  smaller sums of squares, which lowers their share of that probability exponentially.
* Hence |E| ≤ E_max = K 2⁻²³ λ σ, and after the rounding to float16 (relative 2⁻¹¹, half a
  subnormal step 2⁻²⁵) an element errs by at most 2⁻¹¹ (|c| + E_max) + 2⁻²⁵ + E_max.
* An element may round to infinity where its exact value leaves float16, from 65520 on, and must
  where the bound does not reach back below that. Infinities stay out of the mean squares.
* In the mean square, Doob's inequality bounds the largest partial sum by 2σ, so the root mean
  square error over a tile of 128 x 128, or over a group, is at most
  2⁻¹¹ rms(c) + 2⁻²⁵ + 2 K 2⁻²³ rms(σ). This is four times sharper than the elements' bound and
  finds small errors that many elements share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelbench.problems.deviation import Deviation
from kernelbench.problems.group_gemm import nvfp4
from kernelbench.project.problem import OutputVerdict

_LAMBDA = 8.0
_ACCUMULATE = 2.0**-23
_ROUND = 2.0**-11
_ROUND_SUBNORMAL = 2.0**-25
_OVERFLOW = 65520.0  # the least magnitude that rounds to infinity
_TILE = 128
_CHUNK_VALUES = 1 << 20  # of float32 and float64: about what a core's cache holds


@dataclass(frozen=True)
class GroupReference:
    """One group's reference."""

    exact: torch.Tensor  #: float64 ``[m, n]``.
    #: ``exact`` rounded once, float16 ``[m, n]``; infinite where it leaves the range.
    rounded: torch.Tensor
    #: Root of the sum of the squared products, float64 ``[m, n]``, where outputs need not be exact;
    #: else None.
    sigma: torch.Tensor | None
    k: int  #: Length of the sums.


def multiply(data: Any, with_sigma: bool) -> list[GroupReference]:
    """The exact products of all groups, on the operands' device.

    Args:
        data: The problem's data; its scales are read from the plain tensors.
        with_sigma: Whether the tolerance needs the magnitude of the sums.
    """
    abc_tensors, sfasfb_tensors, _, problem_sizes = data
    references = []
    for (a, b, _), (sfa, sfb), (_, _, k, _) in zip(
        abc_tensors, sfasfb_tensors, problem_sizes, strict=True
    ):
        exact, sigma = _multiply_group(_codes(a), _codes(b), _codes(sfa), _codes(sfb), with_sigma)
        references.append(GroupReference(exact, nvfp4.round_to_half(exact), sigma, k))
    return references


def _codes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:, :, 0].view(torch.uint8)


def _multiply_group(
    a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor, with_sigma: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    on_cpu = a.device.type == "cpu"
    # Sums that must be exact in the output are exact in float32 (inputs.py), which a CPU multiplies
    # twice as fast; a GPU may round float32 operands.
    dtype = torch.float32 if on_cpu and not with_sigma else torch.float64
    rows_a = nvfp4.dequantize(a, sfa.to(a.device))
    sfb = sfb.to(b.device)
    n, k = b.shape[0], rows_a.shape[1]
    exact = torch.empty(a.shape[0], n, dtype=torch.float64, device=a.device)
    squares = torch.empty_like(exact, dtype=torch.float32) if with_sigma else None
    squares_a = rows_a.square() if with_sigma else None
    factors_a = rows_a.to(dtype)
    step = max(1, _CHUNK_VALUES // k) if on_cpu else n
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        rows_b = nvfp4.dequantize(b[part], sfb[part])
        exact[:, part] = factors_a @ rows_b.to(dtype).t()
        if squares is not None and squares_a is not None:
            squares[:, part] = squares_a @ rows_b.square_().t()
    if squares is None:
        return exact, None
    # The sums of squares are float32 and positive: K 2**-23 covers their own rounding, and 2**-9
    # that of TF32 operands, should TF32 be enabled.
    return exact, (squares.double() * (1 + k * _ACCUMULATE + 2.0**-9)).sqrt()


def judge_group_gemm(
    outputs: Sequence[torch.Tensor], references: Sequence[GroupReference]
) -> OutputVerdict:
    """Compare outputs, ``[m, n]`` or ``[m, n, 1]``, with the references.

    Elements are compared by value: -0 equals 0, because the sign of a zero sum depends on the order
    of its terms, and NaN equals nothing.
    """
    wrong = count = 0
    exact = True
    deviation = Deviation()
    worst: tuple[float, str] | None = None
    shared = ""
    for index, (output, ref) in enumerate(zip(outputs, references, strict=True)):
        got = output.detach().reshape(ref.exact.shape)
        if not got.numel():
            continue
        equal = got == ref.rounded
        exact = exact and bool(equal.all())
        count += got.numel()
        tolerance = None if ref.sigma is None else _tolerance(ref.exact, ref.sigma, ref.k)
        infinite = _infinite(got, ref)
        error = deviation.add(got.masked_fill(infinite, 0), ref.exact.masked_fill(infinite, 0))
        bad = ~equal if tolerance is None else ~(error <= tolerance)
        if bool(bad.any()):
            wrong += int(bad.sum())
            found = _describe(index, got, ref, error, bad, tolerance)
            worst = found if worst is None or found[0] > worst[0] else worst
        elif ref.sigma is not None and not shared:
            finite = ~infinite
            shared = _shared_error(index, error, ref.exact * finite, ref.sigma * finite, ref.k)
    reason = shared
    if worst is not None:
        reason = f"{worst[1]}; {wrong} of {count} elements wrong"
    return OutputVerdict(not reason, exact, deviation.max_abs, reason, deviation.rel_rms)


def _accumulated(sigma: torch.Tensor, k: int) -> torch.Tensor:
    return k * _ACCUMULATE * _LAMBDA * sigma


def _tolerance(exact: torch.Tensor, sigma: torch.Tensor, k: int) -> torch.Tensor:
    accumulated = _accumulated(sigma, k)
    return _ROUND * (exact.abs() + accumulated) + _ROUND_SUBNORMAL + accumulated


def _infinite(got: torch.Tensor, ref: GroupReference) -> torch.Tensor:
    """Where an output is infinite with the reference's sign, and may be."""
    reach = ref.exact.abs()
    if ref.sigma is not None:
        reach = reach + _accumulated(ref.sigma, ref.k)
    return got.isinf() & (got.sign() == ref.exact.sign()) & (reach >= _OVERFLOW)


def _describe(
    index: int,
    got: torch.Tensor,
    ref: GroupReference,
    error: torch.Tensor,
    bad: torch.Tensor,
    tolerance: torch.Tensor | None,
) -> tuple[float, str]:
    """The largest error among the bad elements of a group, and where it is."""
    size = torch.where(bad, error.nan_to_num(math.inf), -1.0)
    row, column = divmod(int(size.argmax()), got.shape[1])
    expected = ref.rounded if tolerance is None else ref.exact
    allowed = "exact" if tolerance is None else f"± {float(tolerance[row, column]):.3g}"
    return float(size[row, column]), (
        f"group {index} row {row} column {column}: got {float(got[row, column]):.7g}, "
        f"expected {float(expected[row, column]):.7g} ({allowed})"
    )


def _shared_error(
    index: int, error: torch.Tensor, exact: torch.Tensor, sigma: torch.Tensor, k: int
) -> str:
    """One line if a tile's or the group's root mean square error is too large, else nothing."""
    squares = torch.stack([value.square() for value in (error, exact, sigma)])
    tiles = _tile_means(squares).sqrt()
    group = squares.mean(dim=(1, 2), keepdim=True).sqrt()
    for rms, where in ((tiles, "tile at row {} column {}"), (group, "as a whole")):
        bound = _ROUND * rms[1] + _ROUND_SUBNORMAL + 2 * k * _ACCUMULATE * rms[2]
        over = ~(rms[0] <= bound)
        if bool(over.any()):
            row, column = over.nonzero()[0].tolist()
            return (
                f"group {index} {where.format(row * _TILE, column * _TILE)}: root mean square "
                f"error {float(rms[0, row, column]):.3g}, expected at most "
                f"{float(bound[row, column]):.3g}"
            )
    return ""


def _tile_means(values: torch.Tensor) -> torch.Tensor:
    """Means of ``[count, m, n]`` over tiles; ragged ones over what they hold."""
    for dim in (1, 2):
        chunks = torch.split(values, _TILE, dim)
        values = torch.stack([chunk.mean(dim) for chunk in chunks], dim)
    return values
