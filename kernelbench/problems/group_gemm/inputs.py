"""Operands of the NVFP4 group GEMM, by input class.

``gpu-mode``
    The competition's generator: random bytes masked with 0xBB, so values are ±{0, 0.5, 1, 1.5},
    and scales in {1, 2}. Every product is a multiple of 0.25 of magnitude at most 9, so for K up to
    466 000 every partial sum is exact in float32, whatever the order: outputs must match bitwise.

``full``
    All sixteen e2m1 codes, uniformly; scale codes uniform over 0..ceiling, where the two sides'
    ceilings multiply to at most c(K), the scale product that keeps C inside float16. Given the
    scales, the K terms of an element are independent, symmetric, bounded by 36c, and have second
    moments of at most (8.5625 c)²: 8.5625 is the mean square of the eight magnitudes. With
    σ² = 8.5625² K c², Bernstein's inequality gives

        P(|C| ≥ t) ≤ 2 exp(-t² / (2 (σ² + 12 c t))),

    and c(K) is the largest c for which the right side is at most 1e-12 at t = 65504, or for which
    36 K c, the largest sum there is, stays below it. (At K = 7168, c = 11.3 and 8σ = 65 500.) The
    seed splits c between the sides: seeds 0 and 1 mod 3 give A's or B's side the whole e4m3 range
    up to 448, the others split it at random. Only c enters the bound, so it holds for every split.

``structured``
    One side is one-hot, so each element is a single product, exact in float32 (at most 12
    significant bits) and rounded once: bitwise. Even seeds make A's rows one-hot, odd seeds B's.
    The hot positions of neighbouring rows lie in different blocks of 16; where there are at least
    K/16 rows every block is hit, else successive seeds of the same parity go on where the last
    stopped. Scale codes are linear in row and block modulo the prime 71, with coefficients drawn
    per operand, so scales of neighbouring rows and blocks, of rows 32 or 128 apart and of blocks 4
    apart all differ. Magnitudes lie between 2⁻¹⁰ and 28 224: no underflow, no overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernelbench.problems.group_gemm import nvfp4
from kernelbench.project.arena import GuardedOutputs
from kernelbench.project.problem import Inputs

_HALF_MAX = 65504.0
_MEAN_SQUARE = 8.5625  # of the e2m1 magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6
_MAX_PRODUCT = 36.0
_OVERFLOW_PROBABILITY = 1e-12
_GPU_MODE_MASK = 0xBB
_ONE, _TWO = 0x38, 0x40  # e4m3 codes
_STRUCTURED_BASE = 24  # e4m3 code of 2**-4; 71 codes up to 28
_STRUCTURED_CODES = 71

_Quad = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def draw_operands(
    groups: Sequence[tuple[int, int, int]], input_class: str, seed: int, device: str
) -> Inputs:
    """Operands of all groups in the public layout, and unwritten outputs.

    Args:
        groups: ``(m, n, k)`` of each group.
        input_class: ``gpu-mode``, ``full`` or ``structured``.
        seed: Any integer; the same seed gives the same bits on the same kind of device.
        device: ``cpu`` or ``cuda:N``.
    """
    generator = torch.Generator(device=device).manual_seed(seed & (2**63 - 1))
    arena = GuardedOutputs([(m, n) for m, n, _ in groups], torch.float16, device)
    abc, plain, blocked, sizes, operands = [], [], [], [], []
    for index, ((m, n, k), c) in enumerate(zip(groups, arena.views, strict=True)):
        if input_class == "gpu-mode":
            codes = _draw_gpu_mode(m, n, k, generator)
        elif input_class == "full":
            codes = _draw_full(m, n, k, seed, generator)
        else:
            codes = _draw_structured(m, n, k, seed, index, generator)
        a, b, sfa, sfb = codes
        packed_a, packed_b = (_with_batch(t).view(torch.float4_e2m1fn_x2) for t in (a, b))
        scales = tuple(_with_batch(t.cpu()).view(torch.float8_e4m3fn) for t in (sfa, sfb))
        atoms = tuple(_block(t, generator) for t in (sfa, sfb))
        abc.append((packed_a, packed_b, _with_batch(c)))
        plain.append(scales)
        blocked.append(atoms)
        sizes.append((m, n, k, 1))
        operands += [packed_a, packed_b, *scales, *atoms]
    outputs = [c for _, _, c in abc]
    return Inputs((abc, plain, blocked, sizes), operands, outputs, arena)


def scale_budget(k: int) -> float:
    """The largest product of two scales that keeps |C| below 65504, as derived above."""
    tail = math.log(2 / _OVERFLOW_PROBABILITY)
    linear = _MAX_PRODUCT / 3 * tail
    sums = linear + math.sqrt(linear**2 + 2 * tail * _MEAN_SQUARE**2 * k)
    return _HALF_MAX / min(sums, _MAX_PRODUCT * k)


def scale_ceilings(k: int, seed: int) -> tuple[int, int]:
    """The largest e4m3 codes of A's and of B's scales in class ``full`` for this seed."""
    values = nvfp4.decode_e4m3(torch.arange(nvfp4.E4M3_MAX_CODE + 1, dtype=torch.uint8))
    budget = scale_budget(k)
    lowest = int((values <= budget / values[-1]).sum()) - 1
    if seed % 3 == 0:
        code = nvfp4.E4M3_MAX_CODE
    elif seed % 3 == 1:
        code = lowest
    else:
        source = torch.Generator().manual_seed(seed & (2**63 - 1))
        code = int(torch.randint(lowest, nvfp4.E4M3_MAX_CODE + 1, (), generator=source))
    return code, int((values * values[code] <= budget).sum()) - 1


def _draw_gpu_mode(m: int, n: int, k: int, generator: torch.Generator) -> _Quad:
    a, b = (_random_bytes(rows, k // 2, generator).bitwise_and_(_GPU_MODE_MASK) for rows in (m, n))
    sfa, sfb = (
        _random_bytes(rows, k // 16, generator).bitwise_and_(1).mul_(_TWO - _ONE).add_(_ONE)
        for rows in (m, n)
    )
    return a, b, sfa, sfb


def _draw_full(m: int, n: int, k: int, seed: int, generator: torch.Generator) -> _Quad:
    a, b = (_random_bytes(rows, k // 2, generator) for rows in (m, n))
    sfa, sfb = (
        _random_codes(rows, k // 16, ceiling, generator)
        for rows, ceiling in zip((m, n), scale_ceilings(k, seed), strict=True)
    )
    return a, b, sfa, sfb


def _draw_structured(
    m: int, n: int, k: int, seed: int, group: int, generator: torch.Generator
) -> _Quad:
    packed = [_nonzero_values(rows, k, generator) for rows in (m, n)]
    hot = seed % 2
    position = _hot_positions((m, n)[hot], k, seed // 2, group, generator.device).unsqueeze(1)
    byte = position // 2
    nibble = torch.where(position % 2 > 0, 0xF0, 0x0F).to(torch.uint8)
    value = packed[hot].gather(1, byte) & nibble
    packed[hot].zero_().scatter_(1, byte, value)
    a, b = packed
    sfa, sfb = (_structured_scales(rows, k // 16, generator) for rows in (m, n))
    return a, b, sfa, sfb


def _hot_positions(rows: int, k: int, turn: int, group: int, device: torch.device) -> torch.Tensor:
    """The one position along K that is not zero, for each row; int64 ``[rows]``."""
    blocks = k // nvfp4.BLOCK
    stride = max(1, int(blocks * 0.618))
    while math.gcd(stride, blocks) != 1:
        stride += 1
    row = torch.arange(rows, device=device)
    block = (row + turn * rows + group) * stride % blocks
    inside = (row + row // blocks + turn + group) * 5 % nvfp4.BLOCK
    return block * nvfp4.BLOCK + inside


def _structured_scales(rows: int, blocks: int, generator: torch.Generator) -> torch.Tensor:
    device = generator.device
    picks = torch.randperm(_STRUCTURED_CODES - 1, generator=generator, device=device) + 1
    row = torch.arange(rows, device=device).unsqueeze(1) * picks[0] % _STRUCTURED_CODES
    block = (torch.arange(blocks, device=device) * picks[1] + picks[2]) % _STRUCTURED_CODES
    codes = row.to(torch.uint8) + block.to(torch.uint8)
    return codes.remainder_(_STRUCTURED_CODES).add_(_STRUCTURED_BASE)


def _nonzero_values(rows: int, k: int, generator: torch.Generator) -> torch.Tensor:
    """Random e2m1 codes but for ±0, which become ±0.5; packed, uint8 ``[rows, k / 2]``."""
    packed = _random_bytes(rows, k // 2, generator)
    # 7 carries a magnitude that is not 0 into its nibble's sign bit.
    zero = (packed & 0x77).add_(0x77).bitwise_not_().bitwise_and_(0x88).bitwise_right_shift_(3)
    return packed.bitwise_or_(zero)


def _random_codes(rows: int, cols: int, ceiling: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(
        0, ceiling + 1, (rows, cols), dtype=torch.uint8, generator=generator,
        device=generator.device,
    )  # fmt: skip


def _random_bytes(rows: int, cols: int, generator: torch.Generator) -> torch.Tensor:
    """Uniform bytes, uint8 ``[rows, cols]``, drawn four at a time."""
    words = torch.randint(
        -(2**31), 2**31, (nvfp4.ceil_div(rows * cols, 4),), dtype=torch.int32, generator=generator,
        device=generator.device,
    )  # fmt: skip
    return words.view(torch.uint8)[: rows * cols].view(rows, cols)


def _with_batch(matrix: torch.Tensor) -> torch.Tensor:
    """``[rows, cols]`` -> ``[rows, cols, 1]`` with strides ``(cols, 1, rows * cols)``."""
    rows, cols = matrix.shape
    return matrix.contiguous().as_strided((rows, cols, 1), (cols, 1, rows * cols))


def _block(scales: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    rows = nvfp4.ceil_div(scales.shape[0], nvfp4.ATOM_ROWS) * nvfp4.ATOM_ROWS
    padding = _random_codes(rows, scales.shape[1], nvfp4.E4M3_MAX_CODE, generator)
    return nvfp4.block_scales(scales, padding).view(torch.float8_e4m3fn)
