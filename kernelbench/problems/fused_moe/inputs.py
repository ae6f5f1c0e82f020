"""Operands of the fused MoE, by input class.

``random``
    Gaussian tokens; logits by the shape's ``routing``; weights uniform over all 254 finite e4m3
    codes with scales that give them a standard deviation near 0.02.

``skewed``
    The same, but most tokens share a few experts and three quarters of the others get none.

``structured``
    Each block of 128 of a token holds one value that is not zero, so each block of each expert
    contributes one product. Scales are powers of two that differ between neighbouring tokens,
    experts and blocks; weights lie in ±[1, 1.875]. Every selected product is at least 2⁻¹³ of the
    sum of all, so one wrong scale, block, expert, token or sign is seen. One token in eight is so
    small that its scales are the floor 1e-6. In one token in four the last expert selected has
    exactly the logit of another one: the lower index must win. The last token's first choice is the
    last expert.

In all classes, hidden values whose rounding to e4m3 would hang on the last bits of a float32
quotient are zero (:func:`kernelbench.problems.fused_moe.fp8.hinges`; about 6 in 1000 Gaussian
values), so that every right quantization gives the same bits.
"""

from __future__ import annotations

import math

import torch

from kernelbench.problems.fused_moe import fp8
from kernelbench.problems.fused_moe.shape import MoeData, MoeShape
from kernelbench.project.arena import GuardedOutputs
from kernelbench.project.problem import Inputs

_CHUNK_BYTES = 1 << 20
_WEIGHT_SCALE = 2e-4
# With the floor 1e-6 as scale this is 98.5, which rounds to 96: a missing floor is off by 2.5 %.
_BELOW_FLOOR = 98.5e-6


def draw_moe(shape: MoeShape, input_class: str, seed: int, device: str) -> Inputs:
    """Operands in the public layout, and an unwritten output.

    Args:
        shape: The dimensions.
        input_class: ``random``, ``skewed`` or ``structured``.
        seed: Any integer; the same seed gives the same bits on the same kind of device.
        device: ``cpu`` or ``cuda:N``.
    """
    generator = torch.Generator(device=device).manual_seed(seed & (2**63 - 1))
    arena = GuardedOutputs([(shape.m, shape.n)], torch.float32, device)
    if input_class == "structured":
        hidden = _structured_hidden(shape, seed, generator.device)
        gating = _structured_gating(shape, seed, generator)
        weights = _random_bytes(shape.e * shape.n * shape.k, generator)
        weights.bitwise_and_(0x87).bitwise_or_(0x38)
        scales = _structured_scales(shape, seed, generator.device)
    else:
        hidden = torch.randn(
            shape.m, shape.k, generator=generator, device=generator.device
        ).bfloat16()
        gating = random_gating(shape, input_class, generator)
        weights = _random_bytes(shape.e * shape.n * shape.k, generator)
        _clear_nan(weights)
        scales = uniform(
            (shape.e, shape.n // fp8.BLOCK, shape.k // fp8.BLOCK), 0.75, 1.25, generator
        ).mul_(_WEIGHT_SCALE)
    hidden = hidden.masked_fill(fp8.hinges(hidden), 0)
    weights = weights.view(torch.float8_e4m3fn).view(shape.e, shape.n, shape.k)
    output = arena.views[0]
    data = MoeData(
        hidden, gating, weights, scales, output, shape.topk, shape.renormalize, shape.softcap
    )
    return Inputs(data, [hidden, gating, weights, scales], [output], arena)


def random_gating(shape: MoeShape, input_class: str, generator: torch.Generator) -> torch.Tensor:
    device = generator.device
    gating = torch.randn(shape.m, shape.e, generator=generator, device=device)
    order = torch.randperm(shape.e, generator=generator, device=device)
    routing = "skewed" if input_class == "skewed" else shape.routing
    if routing == "one":
        gating[:, order[: shape.topk]] += 20
    elif routing == "skewed":
        popular = min(2 * shape.topk, shape.e)
        gating[:, order[:popular]] += 5
        gating[:, order[popular + (shape.e - popular) // 4 :]] -= 30
    return gating


def _structured_gating(shape: MoeShape, seed: int, generator: torch.Generator) -> torch.Tensor:
    """Selected logits in 4, 4.125, ...; the others in [-1, 1)."""
    device = generator.device
    gating = uniform((shape.m, shape.e), -1.0, 1.0, generator)
    stride = max(1, int(shape.e * 0.618))
    while math.gcd(stride, shape.e) != 1:
        stride += 1
    token = torch.arange(shape.m, device=device).unsqueeze(1)
    rank = torch.arange(min(shape.topk + 1, shape.e), device=device)
    # token // 32: an expert that loses its ties in one round of tokens has no tie in the next.
    expert = ((token * shape.topk + token // 32 + rank) * stride + seed) % shape.e
    # The last token's first choice is the last expert, which few tokens may never select.
    last = expert[-1]
    last[last == shape.e - 1] = last[0].item()
    last[0] = shape.e - 1
    logit = 4 + 0.125 * (shape.topk - 1 - rank).clamp(min=0).float().expand(shape.m, -1)
    # The expert after the last one selected ties with it, but only in every fourth token.
    tied = (rank < shape.topk) | (token % 4 == 1)
    return gating.scatter(1, expert, torch.where(tied, logit, gating.gather(1, expert)))


def _structured_hidden(shape: MoeShape, seed: int, device: torch.device) -> torch.Tensor:
    token = torch.arange(shape.m, device=device).unsqueeze(1)
    block = torch.arange(shape.k // fp8.BLOCK, device=device)
    value = fp8.E4M3_MAX * 2.0 ** ((token + 2 * block + seed) % 3).float()
    value = torch.where(token % 8 == 5, _BELOW_FLOOR, value)
    sign = 1 - 2 * ((token * 5 + block * 3 + (token * block) // 2) % 2)
    position = (token * 37 + block * 11 + seed * 29) % fp8.BLOCK
    hidden = torch.zeros(shape.m, len(block), fp8.BLOCK, device=device)
    hidden.scatter_(2, position.unsqueeze(-1), (value * sign).unsqueeze(-1))
    return hidden.view(shape.m, shape.k).bfloat16()


def _structured_scales(shape: MoeShape, seed: int, device: torch.device) -> torch.Tensor:
    expert = torch.arange(shape.e, device=device).view(-1, 1, 1)
    row = torch.arange(shape.n // fp8.BLOCK, device=device).view(1, -1, 1)
    block = torch.arange(shape.k // fp8.BLOCK, device=device).view(1, 1, -1)
    return 2.0 ** ((2 * expert + row + 3 * block + seed) % 5).float()


def uniform(
    size: tuple[int, ...], low: float, high: float, generator: torch.Generator
) -> torch.Tensor:
    draw = torch.rand(size, generator=generator, device=generator.device)
    return draw.mul_(high - low).add_(low)


def _random_bytes(count: int, generator: torch.Generator) -> torch.Tensor:
    """Uniform bytes, uint8 ``[count]`` (a multiple of 8), drawn eight at a time."""
    words = torch.randint(
        -(2**63), 2**63 - 1, (count // 8,), dtype=torch.int64, generator=generator,
        device=generator.device,
    )  # fmt: skip
    return words.view(torch.uint8)


def _clear_nan(codes: torch.Tensor) -> None:
    """Turn the e4m3 NaN codes 0x7f and 0xff into ±448, in place."""
    step = codes.numel() if codes.is_cuda else _CHUNK_BYTES
    for start in range(0, codes.numel(), step):
        part = codes[start : start + step]
        part.sub_((part & 0x7F).eq_(0x7F))
