"""The verdict of a dataset's own tolerance."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelbench.problems.deviation import Deviation
from kernelbench.problems.flashinfer.models import Tolerance
from kernelbench.project.problem import OutputVerdict


def judge_outputs(
    names: Sequence[str],
    outputs: Sequence[torch.Tensor],
    references: Sequence[torch.Tensor],
    tolerance: Tolerance,
) -> OutputVerdict:
    """Compare outputs with references of the same shapes and types.

    A NaN or an infinity is wrong where the reference has none and never counts as matched; where
    the reference has one the output must have the same (-inf only if the tolerance allows it).
    """
    deviation = Deviation()
    exact, reason = True, ""
    for name, output, reference in zip(names, outputs, references, strict=True):
        got, expected = _values(output), _values(reference)
        exact = exact and bool((got == expected).all())
        shared = (got == expected) & ~torch.isfinite(expected)
        shared |= torch.isnan(got) & torch.isnan(expected)
        if not tolerance.negative_infinity:
            shared &= expected != -torch.inf
        finite = torch.where(shared, 0.0, expected)
        error = deviation.add(torch.where(shared, 0.0, got), finite)
        allowed = tolerance.atol + tolerance.rtol * finite.abs()
        bad = ~(error <= allowed)
        reason = reason or _reason(name, got, expected, error, bad, tolerance)
    return OutputVerdict(not reason, exact, deviation.max_abs, reason, deviation.rel_rms)


def _values(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.float4_e2m1fn_x2:
        return tensor.view(torch.uint8).double()
    return tensor.double()


def _reason(
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    error: torch.Tensor,
    bad: torch.Tensor,
    tolerance: Tolerance,
) -> str:
    count, total = int(bad.sum()), bad.numel()
    beyond = tolerance.cap is not None and bool((~(error <= tolerance.cap)).any())
    if not beyond and count <= (1 - tolerance.matched) * total:
        return ""
    size = torch.where(bad, error.nan_to_num(torch.inf), -1.0)
    flat = int(size.argmax())
    where = [int(i) for i in torch.unravel_index(torch.tensor(flat), size.shape)]
    limit = f"atol {tolerance.atol:g}, rtol {tolerance.rtol:g}"
    if tolerance.matched < 1:
        limit += f", {100 * tolerance.matched:g} % of the elements"
    return (
        f"{name}{where}: got {float(got.flatten()[flat]):.7g}, expected "
        f"{float(expected.flatten()[flat]):.7g} ({limit}); {count} of {total} elements beyond it"
    )
