"""How far an output of a tensor problem may lie from its reference.

**Derived.** For an output element with reference value r, whose terms have magnitudes that sum to
M, computed with at most n roundings on any path from an input to the result in an arithmetic of
unit roundoff u, and rounded once to an output format of unit roundoff v and least positive
(subnormal) number t:

    |out − r| ≤ E + v (|r| + E) + t/2,  E = γ(n, u) M + γ(n, w) M,  γ(n, u) = n u / (1 − n u)

γ(n, u) M bounds the error of a sum of products in any order: Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., lemma 3.1 and section 4.2. The second γ is the reference's own error,
w being its unit roundoff (2⁻⁵³ for float64). n is the problem's ``depth``: for a sum of k products
k, one rounding of the product and k − 1 additions at most. M is its ``magnitudes``; without one,
M = |r|, which is the truth where no terms of opposite signs are added, and narrower than the truth
elsewhere: a right kernel can then fail, a wrong one gains nothing. Nothing is allowed for kernels
that flush subnormal numbers to zero, or that sum in a narrower format than the problem says.

**Stated.** With ``tolerance = (rtol, atol)``: |out − r| ≤ atol + rtol |r|.

In both, NaN never passes. A reference of ±∞ takes the same infinity only. An output of ±∞ passes
where the reference has it, or where |r| + E (|r| plus a stated bound) rounds to it. Integers and
booleans are equal or wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelbench.problems.deviation import Deviation
from kernelbench.project.arena import describe_tensor
from kernelbench.project.problem import OutputVerdict

#: Unit roundoffs of what sums can be accumulated in; tf32 rounds to 11 bits.
UNIT_ROUNDOFFS: dict[str, float] = {
    "float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}  # fmt: skip


@dataclass(frozen=True)
class Bound:
    """What an error may be: ``rtol |r| + atol``, or derived."""

    #: ``rtol``, ``atol``: Of a stated bound; None for a derived one.
    rtol: float | None = None
    atol: float | None = None
    factor: float = 0.0  #: γ(n, u) + γ(n, w) of a derived one.

    def of(
        self, values: torch.Tensor, magnitudes: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """The bound of each element, float64; see the module.

        Args:
            values: The reference, float64 and finite.
            magnitudes: M, float64, of the same shape.
            dtype: Of the output.
        """
        error = self.unrounded(values, magnitudes)
        if self.rtol is not None:
            return error
        info = torch.finfo(dtype)
        return error + info.eps / 2 * (values.abs() + error) + info.tiny * info.eps / 2

    def unrounded(self, values: torch.Tensor, magnitudes: torch.Tensor) -> torch.Tensor:
        """E, before the result is rounded to its format; of a stated bound all of it."""
        if self.rtol is not None and self.atol is not None:
            return self.atol + self.rtol * values.abs()
        return self.factor * magnitudes


def gamma(roundings: int, unit: float) -> float:
    """γ(n, u) = n u / (1 − n u); infinite where n u reaches 1 and no bound exists."""
    product = roundings * unit
    return product / (1 - product) if product < 1 else math.inf


@dataclass(frozen=True)
class TensorReference:
    """What outputs are judged by."""

    values: list[torch.Tensor]  #: The reference of each output: float64, or integers and booleans.
    dtypes: list[torch.dtype]  #: Dtype of each output.
    #: M of each output, float64; its absolute value if there is nothing else.
    magnitudes: list[torch.Tensor]
    single: bool = False  #: Whether a value was computed in float32.


def judge_tensors(
    outputs: Sequence[torch.Tensor], reference: TensorReference, bound: Bound, names: Sequence[str]
) -> OutputVerdict:
    """Judge every output; shapes and dtypes too, which a step's own tensors may have wrong."""
    if len(outputs) != len(reference.values):
        return _wrong(f"returned {len(outputs)} outputs: expected {len(reference.values)}")
    deviation = Deviation()
    exact = True
    reason = ""
    for index, (out, values) in enumerate(zip(outputs, reference.values, strict=True)):
        what = names[index] if names else f"output {index}" if len(outputs) > 1 else "output"
        dtype = reference.dtypes[index]
        if out.shape != values.shape or out.dtype != dtype:
            wanted = f"{str(dtype).removeprefix('torch.')}{list(values.shape)}"
            return _wrong(f"{what} is {describe_tensor(out)}: expected {wanted}")
        same, wrong, allowed = _compare(out, values, reference.magnitudes[index], bound, deviation)
        exact = exact and same
        if not reason and bool(wrong.any()):
            reason = _worst(what, out, values, wrong, allowed)
    return OutputVerdict(not reason, exact, deviation.max_abs, reason, deviation.rel_rms)


def _compare(
    out: torch.Tensor,
    values: torch.Tensor,
    magnitudes: torch.Tensor,
    bound: Bound,
    deviation: Deviation,
) -> tuple[bool, torch.Tensor, torch.Tensor]:
    """Whether all of an output is exact, a mask of what is wrong, and the bound of each element."""
    if not out.dtype.is_floating_point:
        wrong = out != values.to(out.dtype)
        deviation.add(out, values.double())
        return not bool(wrong.any()), wrong, torch.zeros_like(values, dtype=torch.float64)
    rounded = values.to(out.dtype)
    finite = values.isfinite()
    # Of what has to be infinite no error is taken: it is there or not.
    safe = torch.where(finite, values, 0.0)
    safe_magnitudes = torch.where(finite, magnitudes, 0.0)
    allowed = bound.of(safe, safe_magnitudes, out.dtype)
    furthest = safe + out.sign().double() * bound.unrounded(safe, safe_magnitudes)
    met_infinity = ~finite & (out == rounded)
    overflow = finite & out.isinf() & (furthest.to(out.dtype) == out)
    fine = met_infinity | overflow
    error = deviation.add(torch.where(fine, safe.to(out.dtype), out), safe)
    wrong = ~(torch.where(fine, 0.0, error) <= allowed) | (~finite & ~met_infinity)
    return bool((out == rounded).all()), wrong, allowed


def _worst(
    what: str, out: torch.Tensor, values: torch.Tensor, wrong: torch.Tensor, allowed: torch.Tensor
) -> str:
    """How many elements are wrong, and the one that is furthest off."""
    error = torch.where(wrong, (out.double() - values.double()).abs(), -1.0).flatten()
    # NaN and infinity first: nothing is worse.
    at = int(error.nan_to_num(math.inf).argmax())
    place = [int(one) for one in torch.unravel_index(torch.tensor(at), out.shape)]
    got, expected = out.flatten()[at].item(), values.flatten()[at].item()
    count = f"{int(wrong.sum())} of {out.numel()} elements are wrong"
    limit = f"± {float(allowed.flatten()[at]):.3g}" if out.dtype.is_floating_point else "exact"
    return f"{what}: {count}; {place} is {got:.7g}, expected {expected:.7g} ({limit})"


def _wrong(reason: str) -> OutputVerdict:
    return OutputVerdict(False, False, None, reason)
