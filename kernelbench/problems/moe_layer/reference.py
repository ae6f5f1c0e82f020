"""Reference and tolerances of the MoE layer.

The reference quantizes tokens and h as specified (scales in float32, by IEEE divisions) and does
everything else in float64. Rows that are NaN by specification
(:mod:`kernelbench.problems.moe_layer.problem`) must be NaN throughout; the bounds are for the
others.

**A product.** σ² is the sum of the squares of an element's products, weights and scales included.
Hopper's FP8 tensor cores err by at most ρ σ (root mean square) with ρ = 1e-3, float32 sums
included: derived in :mod:`kernelbench.problems.fused_moe.tolerance`.

**Rounding of h.** So gate and up err by ρ σ each, and h = silu(gate) up by d with
d² = (ρ σ_gate silu'(gate) up)² + (ρ σ_up silu(gate))². The scale of a block of h moves with its
largest value: by d_max / amax of itself. An h that is δ off is rounded to another e4m3 value with
probability |δ| / Δ, where Δ is the step between these values times the scale, and is then off by Δ:
its mean square error is Δ E|δ| <= Δ (d + |h| d_max / amax), and with it that of the output
element is

    s² = Σ (Δ (d + |h| d_max / amax) + (ρ h)²) (weight * w2)²

summed over the experts and the intermediate columns; the second term is the second product's.

**Bounds.** The root mean square error over the output is at most that of s. That of a row, whose
few roundings of h all columns share, may be 2 s, and the error of an element 8 s; in both cases two
steps of the row's largest weight * Δ, times the largest |w2|, come on top, because s says little of
a sum in which one rounding stands out. The first bound is asked for from 2^14 values of h on. From
2^16 on the error relative to the root mean square of the output must not exceed 5e-3 either: H200
kernels are 3e-3 to 4e-3 off, those with scales by a reciprocal 1.2e-2.

**bfloat16 in between** (``intermediate`` of a step's config), as serving engines hold gate, up, h
and an expert's result. Rounding is 1.7e-3 of a value off, root mean square, so d² grows to at most
1 + 2 * 1.7² times itself, and s to 1.7 times at most: s is doubled, 5e-3 becomes 2e-2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernelbench.problems.deviation import Deviation
from kernelbench.problems.fused_moe import fp8
from kernelbench.problems.fused_moe.tolerance import wrong_element, wrong_row
from kernelbench.problems.moe_layer.shape import LayerData
from kernelbench.project.problem import OutputVerdict

_RHO = 1e-3
_LAMBDA = 8.0
_ROW_FACTOR = 2.0
_STEPS = 2.0
REL_RMS = {"float32": 5e-3, "bfloat16": 2e-2}
_SPREADS = {"float32": 1.0, "bfloat16": 2.0}
_SOME = 2**14
_MANY = 2**16


@dataclass(frozen=True)
class LayerReference:
    """The reference of one drawn set of operands."""

    values: torch.Tensor  #: float64 ``[m, h]``.
    spread: torch.Tensor  #: float64 ``[m, h]``: s of the module's docstring.
    #: float64 ``[m, 1]``: what one rounding of h to another value may change at most.
    step: torch.Tensor
    spoiled: torch.Tensor  #: bool ``[m]``: tokens whose whole output must be NaN.
    summed: int  #: How many values of h are summed up.


def valid_routes(data: LayerData) -> torch.Tensor:
    """Which routes have an expert, bool ``[m, topk]``."""
    return (data.ids >= 0) & (data.ids < len(data.w13))


def evaluate_layer(data: LayerData) -> LayerReference:
    """The float64 reference, on the operands' device."""
    valid = valid_routes(data)
    finite = data.hidden.isfinite().all(dim=1)
    spoiled = (valid & ~(finite.unsqueeze(1) & ~data.expert_weights.isnan())).any(dim=1)
    hidden = data.hidden.masked_fill(spoiled.unsqueeze(1), 0)
    weights = data.expert_weights.masked_fill(spoiled.unsqueeze(1), 0).double()
    tokens = _dequantized(*fp8.quantize(hidden))
    values = torch.zeros(data.output.shape, dtype=torch.float64, device=hidden.device)
    variance, step = torch.zeros_like(values), torch.zeros_like(values[:, :1])
    for expert in data.ids[valid].unique().tolist():
        rows, slots = (valid & (data.ids == expert)).nonzero(as_tuple=True)
        weight = weights[rows, slots].unsqueeze(1)
        h, error = _intermediate(tokens[rows], _weights(data.w13[expert], data.w13_scales[expert]))
        codes, scales = fp8.quantize(h.float())
        rounded = _dequantized(codes, scales)
        steps = _steps(codes) * scales.double().repeat_interleave(fp8.BLOCK, dim=1)
        blocks = h.view(len(h), -1, fp8.BLOCK)
        amax, where = blocks.abs().max(dim=2, keepdim=True)
        moved = error.view(blocks.shape).gather(2, where) / amax.clamp(min=1e-300)
        off = error + (blocks.abs() * moved).view(h.shape)
        w2 = _weights(data.w2[expert], data.w2_scales[expert])
        values.index_add_(0, rows, weight * (rounded @ w2.T))
        squares = steps * torch.minimum(off, steps) + (_RHO * rounded).square()
        variance.index_add_(0, rows, weight.square() * (squares @ w2.T.square()))
        largest = weight.abs() * steps.amax(dim=1, keepdim=True) * w2.abs().max()
        step[rows] = torch.maximum(step[rows], largest)
    summed = int(valid.sum()) * data.w2.shape[2]
    return LayerReference(values, variance.sqrt(), step, spoiled, summed)


def _intermediate(tokens: torch.Tensor, w13: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """h and the error d that it may have, float64 ``[rows, i]``."""
    gate, up = (tokens @ w13.T).chunk(2, dim=1)
    sigma_gate, sigma_up = (tokens.square() @ w13.T.square()).sqrt().chunk(2, dim=1)
    sigmoid = torch.sigmoid(gate)
    silu = gate * sigmoid
    slope = sigmoid * (1 + gate * (1 - sigmoid))
    return silu * up, _RHO * torch.hypot(sigma_gate * slope * up, sigma_up * silu)


def _dequantized(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return codes.double() * scales.double().repeat_interleave(fp8.BLOCK, dim=1)


def _weights(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    rows = scales.double().repeat_interleave(fp8.BLOCK, dim=0)
    return codes.double() * rows.repeat_interleave(fp8.BLOCK, dim=1)


def _steps(codes: torch.Tensor) -> torch.Tensor:
    """From a code's value to the next one of e4m3: 2⁻³ of its power of two, at least 2⁻⁹."""
    _, exponent = torch.frexp(codes.double())
    return torch.ldexp(torch.ones_like(codes, dtype=torch.float64), exponent.clamp(min=-5) - 4)


def judge_layer(
    output: torch.Tensor, reference: LayerReference, intermediate: str = "float32"
) -> OutputVerdict:
    """Compare an output, float32 ``[m, h]``, with the reference.

    NaN passes in the tokens that must be NaN, and nothing else does there; elsewhere it never does.
    """
    reference = replace(reference, spread=_SPREADS[intermediate] * reference.spread)
    got = output.detach().double()
    spoiled = reference.spoiled.unsqueeze(1)
    missing = (spoiled & ~got.isnan()).any(dim=1).nonzero().flatten().tolist()
    got = got.masked_fill(spoiled, 0.0)
    deviation = Deviation()
    error = deviation.add(got, reference.values)
    exact = not missing and bool((got == reference.values.float()).all())
    if missing:
        reason = f"token {missing[0]}: expected NaN in every column, its operands are not finite"
    else:
        reason = _wrong(got, error, reference, deviation.rel_rms, REL_RMS[intermediate])
    return OutputVerdict(not reason, exact, deviation.max_abs, reason, deviation.rel_rms)


def _wrong(
    got: torch.Tensor,
    error: torch.Tensor,
    reference: LayerReference,
    rel_rms: float | None,
    most_rel: float,
) -> str:
    steps = _STEPS * reference.step
    bound = _LAMBDA * reference.spread + steps
    row_bounds = _ROW_FACTOR * _rms(reference.spread) + steps
    reason = wrong_element(got, reference.values, error, bound)
    if reason := reason or wrong_row(error, row_bounds.flatten()):
        return reason
    if reference.summed >= _SOME:
        total, most = float(error.square().mean().sqrt()), float(_rms(reference.spread.view(1, -1)))
        if not total <= most:
            return (
                f"root mean square error {total:.3g} over the output, expected at most {most:.3g}"
            )
        if reference.summed >= _MANY and (rel_rms is None or rel_rms > most_rel):
            return f"relative root mean square error {rel_rms}, expected at most {most_rel}"
    return ""


def _rms(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().mean(dim=1, keepdim=True).sqrt()
