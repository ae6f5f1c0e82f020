"""Operands of the MoE layer, by input class.

``random``
    Gaussian tokens, experts by the shape's ``routing`` with weights that sum to one; Gaussian
    matrices whose blocks of 128 x 128 fill the range of e4m3, with scales that give them a standard
    deviation near 0.02, as those of a model.

``skewed``
    The same, but most tokens share a few experts and three quarters of the others get none.

``edges``
    Uniform routing, and by a token's index modulo 16: 1 a row of zeros; 3 so small that its scales
    are the floor; 5 an infinity, 7 a NaN among its values; 9 a NaN weight; 11 a first expert of
    weight 0, as a logit of -∞ gives it; 13 equal weights; 15 no expert at all (-1). The last expert
    of every other token is expert 0, which is crowded.

In all classes hidden values whose rounding to e4m3 would hang on the last bits of a quotient are
zero (:func:`kernelbench.problems.fused_moe.fp8.hinges`).
"""

from __future__ import annotations

import math

import torch

from kernelbench.problems.fused_moe import fp8
from kernelbench.problems.fused_moe.inputs import random_gating, uniform
from kernelbench.problems.fused_moe.shape import MoeShape
from kernelbench.problems.moe_layer.shape import LayerData, LayerShape
from kernelbench.project.arena import OutputArena
from kernelbench.project.problem import Inputs

_CODE_DEVIATION = fp8.E4M3_MAX / 4  # the largest of 16384 values is about 4 deviations off
_WEIGHT_SCALE = 0.02 / _CODE_DEVIATION
_DRAWN_AT_A_TIME = 1 << 26
_BELOW_FLOOR = 2.0**-16


def draw_layer(shape: LayerShape, input_class: str, seed: int, device: str) -> Inputs:
    """Operands in the public layout, and an unwritten output.

    Args:
        shape: The dimensions.
        input_class: ``random``, ``skewed`` or ``edges``.
        seed: Any integer; the same seed gives the same bits on the same kind of device.
        device: ``cpu`` or ``cuda:N``.
    """
    generator = torch.Generator(device=device).manual_seed(seed & (2**63 - 1))
    hidden = torch.randn(shape.m, shape.h, generator=generator, device=generator.device).bfloat16()
    hidden = hidden.masked_fill(fp8.hinges(hidden), 0)
    routed = MoeShape(
        shape.name, shape.m, shape.i, shape.h, shape.e, shape.topk, routing=shape.routing
    )
    gating = random_gating(routed, input_class, generator)
    chosen = gating.topk(shape.topk, dim=1)
    ids, expert_weights = chosen.indices.int(), torch.softmax(chosen.values, dim=1)
    if input_class == "edges":
        _make_edges(shape, hidden, ids, expert_weights)
    w13, w13_scales = _matrices(shape.e, 2 * shape.i, shape.h, generator)
    w2, w2_scales = _matrices(shape.e, shape.h, shape.i, generator)
    arena = OutputArena([(shape.m, shape.h)], torch.float32, device)
    data = LayerData(hidden, ids, expert_weights, w13, w13_scales, w2, w2_scales, arena.views[0])
    return Inputs(data, list(data[:-1]), [data.output], arena)


def _matrices(
    experts: int, rows: int, columns: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.empty(experts, rows, columns, dtype=torch.float8_e4m3fn, device=generator.device)
    for matrix in codes.view(-1).split(_DRAWN_AT_A_TIME):
        drawn = torch.randn(len(matrix), generator=generator, device=generator.device)
        matrix.copy_(drawn.mul_(_CODE_DEVIATION).clamp_(-fp8.E4M3_MAX, fp8.E4M3_MAX))
    blocks = (experts, rows // fp8.BLOCK, columns // fp8.BLOCK)
    scales = uniform(blocks, 0.75, 1.25, generator).mul_(_WEIGHT_SCALE)
    return codes, scales


def _make_edges(
    shape: LayerShape, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
) -> None:
    ids[::2, -1] = 0
    hidden[1::16] = 0
    hidden[3::16] *= _BELOW_FLOOR
    hidden[5::16, shape.h // 2] = math.inf
    hidden[7::16, -1] = math.nan
    weights[9::16, -1] = math.nan
    weights[11::16, 0] = 0
    weights[13::16] = 1 / shape.topk
    ids[15::16] = -1
