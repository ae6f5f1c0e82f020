"""Reference and tolerances of the fused MoE.

The reference quantizes as specified, in float32, and does everything else in float64. Tokens whose
result is NaN by specification (:mod:`kernelbench.problems.fused_moe.problem`) must be NaN
throughout; the bounds below are for all others.

**Near ties.** A float32 softmax orders two experts rightly only if their probabilities differ by
more than its error. With z the logits, that error is relative to a probability: 2⁻²⁴ each for the
subtraction of the maximum and the multiplication by log2(e), times |z - max|; 2⁻²² each for an
approximate exp2 and an approximate division; with a softcap 2⁻²² |z| more for tanh. Two unequal
logits closer than twice that may be selected either way: the reference then holds one row for each
valid selection, and an output row has to match one of them. Equal logits are no near tie: the lower
index wins.

**Bounds for random and skewed.** Let σ² be the sum of the squares of all products of an element,
weights and scales included.

* Hopper's FP8 tensor core (K = 32 a step) aligns the 32 products and the accumulator to the
  largest of them, truncates each to 13 fractional bits, and truncates the sum to 13 bits; kernels
  add every 128-block into float32. Let p² be the mean square of a product in the block, and count
  squared errors in units of (2⁻¹³ p)². The largest addend of step j has a mean square of at most
  32 (the sum of squares bounds the largest) + 32 j (the accumulator), 320 over the four steps. 33
  truncations, each uniform below one unit of it and with the sign of its addend, add 33/3 · 320;
  those of the sum add (32 + 64 + 96 + 128) / 3. The means of the accumulator's eight truncations,
  half a unit each, share its sign and add up: at most (8 · ½)² · 128. Together √(3520 + 107 + 2048)
  = 75 on a signal of √128: 6.7 · 2⁻¹³ = 8.1e-4 of σ.
* float32 promotion, routing weights and the final sum are below 2⁻¹⁵ and fit in what is left to
  ρ = 1e-3, the relative tolerance of the lineage. Steps that hold expert results in bfloat16 add
  2⁻⁹ / √3 = 1.1e-3: for them ρ = 3e-3.
* So the root mean square error over the output is at most ρ rms(σ). Over one row it fluctuates: the
  weights of its columns are independent, so the mean square of at least 128 of them lies within a
  factor of 4 (over ten standard deviations): at most 2 ρ rms(σ). One element: 8 ρ σ (λ = 8 as in
  the group GEMM, probability 5e-14 each).

**Bounds for structured.** Quantization and products are exact, so an element errs only through the
softmax (e additions, and at most 128 ulps for exp, tanh, divisions and scales), the promotions and
the final sum: at most (e + 2 k/128 + 2 topk + 128) 2⁻²⁴ times the sum of its products' magnitudes;
with a bfloat16 intermediate 2⁻⁸ more.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch

from kernelbench.problems.deviation import Deviation
from kernelbench.problems.fused_moe import fp8
from kernelbench.problems.fused_moe.shape import MoeData
from kernelbench.project.problem import OutputVerdict

_RHO = {"float32": 1e-3, "bfloat16": 3e-3}
_BFLOAT16_STEP = {"float32": 0.0, "bfloat16": 2.0**-8}
_LAMBDA = 8.0
_ROW_FACTOR = 2.0
_ULP = 2.0**-24
_MAX_SELECTIONS = 32
_MAX_PICKS = 4096
_CHUNK_TOKENS = 1024


@dataclass(frozen=True)
class MoeReference:
    """The reference of one drawn set of operands."""

    #: float64 ``[rows, n]``: one row per token, then one per further valid selection.
    values: torch.Tensor
    #: float64 ``[rows, n]``: root of the sum of squared products, or for structured operands the
    #: sum of their magnitudes.
    spread: torch.Tensor
    tokens: list[int]  #: Token of each row past the first m.
    tokens_near: int  #: How many tokens have more than one valid selection.
    spoiled: torch.Tensor  #: bool ``[m]``: tokens whose whole output must be NaN.
    structured: bool  #: Which meaning ``spread`` has.
    ulps: float  #: For structured operands, the error allowed relative to ``spread``.


def evaluate(data: MoeData, structured: bool) -> MoeReference:
    """The float64 reference, on the operands' device.

    Args:
        data: The operands.
        structured: Whether the tolerance is relative to the sum of magnitudes.
    """
    logits = _logits(data)
    ids = _select(logits, data.topk)
    tokens = torch.arange(len(ids), device=ids.device)
    further = _other_selections(data, logits, ids)
    if further:
        ids = torch.cat((ids, torch.tensor([chosen for _, chosen in further], device=ids.device)))
        tokens = torch.cat((tokens, torch.tensor([t for t, _ in further], device=ids.device)))
    weights = torch.softmax(logits, dim=-1)[tokens].gather(1, ids)
    if data.renormalize:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    values, spread = _sum_experts(data, tokens, ids, weights, structured)
    experts, blocks = data.weights.shape[0], data.hidden.shape[1] // fp8.BLOCK
    return MoeReference(
        values,
        spread if structured else spread.sqrt(),
        [token for token, _ in further],
        len({token for token, _ in further}),
        # A hidden value that is not finite, or no finite largest logit.
        ~(torch.isfinite(data.hidden).all(dim=1) & torch.isfinite(logits.amax(dim=1))),
        structured,
        (experts + 2 * blocks + 2 * data.topk + 128) * _ULP,
    )


def count_active(data: MoeData) -> int:
    """How many experts at least one token selects."""
    return int((torch.bincount(_select(_logits(data), data.topk).flatten()) > 0).sum())


def _logits(data: MoeData) -> torch.Tensor:
    gating = data.gating.double()
    if data.softcap > 0:
        gating = data.softcap * torch.tanh(gating / data.softcap)
    return gating


def _select(logits: torch.Tensor, topk: int) -> torch.Tensor:
    """The ``topk`` largest of each row, ties to the lower index; int64 ``[rows, topk]``."""
    return torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, :topk]


def _near(logits: torch.Tensor, softcap: float) -> torch.Tensor:
    """The largest difference from each logit that a float32 softmax may invert, ``[rows, e]``."""
    distance = logits.amax(dim=-1, keepdim=True) - logits
    error = 2 * _ULP * distance + 2 * 2.0**-22
    if softcap > 0:
        error = error + 2.0**-22 * logits.abs()
    return 2 * error


def _other_selections(
    data: MoeData, logits: torch.Tensor, ids: torch.Tensor
) -> list[tuple[int, list[int]]]:
    """(token, experts) of every valid selection but the first, for tokens with a near tie."""
    topk, experts = data.topk, logits.shape[1]
    if topk == experts:
        return []
    near = _near(logits, data.softcap)
    last_id = ids[:, -1:]
    last, allowed = logits.gather(1, last_id), near.gather(1, last_id)
    chosen = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, ids, True)
    first_out = logits.masked_fill(chosen, -math.inf).amax(dim=1, keepdim=True)
    # Ambiguous are the experts out that could overtake the last one in, and the ones in that the
    # first one out could overtake.
    pool = torch.where(chosen, logits - first_out <= allowed, last - logits <= allowed)
    inside = torch.where(pool & chosen, logits, -math.inf).amax(dim=1)
    outside = torch.where(pool & ~chosen, logits, math.inf).amin(dim=1)
    tokens = torch.nonzero((inside > outside) & torch.isfinite(inside)).flatten().tolist()
    found = []
    for token in tokens:
        z, first = logits[token].tolist(), ids[token].tolist()
        open_ids = torch.nonzero(pool[token]).flatten().tolist()
        fixed = [expert for expert in first if expert not in open_ids]
        picks = itertools.islice(itertools.combinations(open_ids, topk - len(fixed)), _MAX_PICKS)
        valid = (
            sorted([*fixed, *pick]) for pick in picks if _lower_index_first(z, open_ids, set(pick))
        )
        for selection in itertools.islice(valid, _MAX_SELECTIONS):
            if selection != sorted(first):
                found.append((token, selection))
    return found


def _lower_index_first(z: list[float], open_ids: list[int], pick: set[int]) -> bool:
    """Whether a selection takes the lower indices of every set of equal logits."""
    return not any(
        z[low] == z[high] and high in pick and low not in pick
        for low, high in itertools.combinations(open_ids, 2)
    )


def _sum_experts(
    data: MoeData, tokens: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, structured: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sums over the experts of each row, and of squared (or absolute) products."""
    codes, scales = fp8.quantize(data.hidden)
    blocks = codes.double().view(len(scales), -1, fp8.BLOCK) * scales.double().unsqueeze(-1)
    experts, n, k = data.weights.shape
    values = torch.zeros(len(ids), n, dtype=torch.float64, device=ids.device)
    spread = torch.zeros_like(values)
    flat_weights = weights.flatten()
    order = torch.argsort(ids.flatten(), stable=True)
    ends = torch.bincount(ids.flatten(), minlength=experts).cumsum(0).tolist()
    for expert, (start, end) in enumerate(itertools.pairwise([0, *ends])):
        if start == end:
            continue
        matrix = data.weights[expert].double().view(n // fp8.BLOCK, fp8.BLOCK, k).transpose(1, 2)
        sized = matrix.abs() if structured else matrix.square()
        scale = data.weight_scales[expert].double().view(n // fp8.BLOCK, 1, k // fp8.BLOCK, 1)
        for pairs in torch.split(order[start:end], _CHUNK_TOKENS):
            rows, factor = pairs // ids.shape[1], flat_weights[pairs].unsqueeze(1)
            # [n / 128, tokens, k]: every block with its own pair of scales
            left = (blocks[tokens[rows]] * scale).view(n // fp8.BLOCK, len(rows), k)
            values.index_add_(0, rows, factor * _columns(left @ matrix))
            left = left.abs_() if structured else left.square_()
            factor = factor if structured else factor.square()
            spread.index_add_(0, rows, factor * _columns(left @ sized))
    return values, spread


def _columns(tiles: torch.Tensor) -> torch.Tensor:
    """``[n / 128, rows, 128]`` -> ``[rows, n]``."""
    return tiles.transpose(0, 1).reshape(tiles.shape[1], -1)


def judge_moe(output: torch.Tensor, reference: MoeReference, intermediate: str) -> OutputVerdict:
    """Compare an output, float32 ``[m, n]``, with the reference.

    NaN passes in the tokens that must be NaN, and nothing else does there; elsewhere it never does.

    Args:
        output: The values to judge.
        reference: From :func:`evaluate` with the same operands.
        intermediate: ``float32`` or ``bfloat16``: how expert results may have been held.
    """
    got = output.detach().double()
    m = got.shape[0]
    values, spread = reference.values[:m].clone(), reference.spread[:m].clone()
    for row, token in enumerate(reference.tokens, start=m):
        other = reference.values[row]
        distance = (got[token] - other).square().sum()
        if bool(distance < (got[token] - values[token]).square().sum()):
            values[token], spread[token] = other, reference.spread[row]
    unspoiled = torch.nonzero(reference.spoiled & ~torch.isnan(got).all(dim=1)).flatten().tolist()
    # From here on, tokens that must be NaN count as right and as zeros.
    got, values, spread = (
        rows.masked_fill(reference.spoiled.unsqueeze(1), 0.0) for rows in (got, values, spread)
    )
    deviation = Deviation()
    error = deviation.add(got, values)
    exact = not unspoiled and bool((got == values.float()).all())
    rho = _RHO[intermediate]
    if reference.structured:
        tolerance = (reference.ulps + _BFLOAT16_STEP[intermediate]) * spread
        reason = wrong_element(got, values, error, tolerance)
    else:
        reason = wrong_element(got, values, error, _LAMBDA * rho * spread)
        reason = reason or _shared_error(error, spread, rho)
    if unspoiled:
        reason = f"token {unspoiled[0]}: expected NaN in every column, its operands are not finite"
    if reason and reference.tokens_near:
        reason += f" ({reference.tokens_near} tokens with near ties judged apart)"
    return OutputVerdict(not reason, exact, deviation.max_abs, reason, deviation.rel_rms)


def wrong_element(
    got: torch.Tensor, values: torch.Tensor, error: torch.Tensor, tolerance: torch.Tensor
) -> str:
    """One line about the worst element beyond its tolerance; empty if there is none.

    Args:
        got: The output, float64 ``[m, n]``.
        values: The reference.
        error: The absolute error of each element.
        tolerance: What it may be.
    """
    bad = ~(error <= tolerance)
    wrong = int(bad.sum())
    if not wrong:
        return ""
    size = torch.where(bad, error.nan_to_num(math.inf), -1.0)
    token, column = divmod(int(size.argmax()), got.shape[1])
    return (
        f"token {token} column {column}: got {float(got[token, column]):.7g}, expected "
        f"{float(values[token, column]):.7g} (± {float(tolerance[token, column]):.3g}); "
        f"{wrong} of {got.numel()} elements wrong"
    )


def wrong_row(error: torch.Tensor, bounds: torch.Tensor) -> str:
    """One line about the first row whose root mean square error is beyond its bound ``[m]``."""
    rows = error.square().mean(dim=1).sqrt()
    over = torch.nonzero(~(rows <= bounds)).flatten()
    if not len(over):
        return ""
    token = int(over[0])
    return (
        f"token {token}: root mean square error {float(rows[token]):.3g}, expected at most "
        f"{float(bounds[token]):.3g}; {len(over)} of {len(rows)} tokens wrong"
    )


def _shared_error(error: torch.Tensor, spread: torch.Tensor, rho: float) -> str:
    """One line if the root mean square error of the output or of a row is too large."""
    row_bounds = _ROW_FACTOR * rho * spread.square().mean(dim=1).sqrt()
    if reason := wrong_row(error, row_bounds):
        return reason
    total, bound = float(error.square().mean().sqrt()), rho * float(spread.square().mean().sqrt())
    if not total <= bound:
        return f"root mean square error {total:.3g} over the output, expected at most {bound:.3g}"
    return ""
