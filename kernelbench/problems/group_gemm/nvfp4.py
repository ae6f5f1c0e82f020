"""NVFP4 operands: e2m1 values in pairs, e4m3 scales, and the blocked layout of the scales.

* A value is e2m1 (OCP Microscaling Formats v1.0, 5.3.3): sign, two exponent bits (bias 1), one
  mantissa bit; magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6. Two share a byte, the lower index in the low
  nibble.
* A scale is e4m3 (OCP 8-bit Floating Point v1.0; bias 7, largest 448, 0x7f is NaN) with the sign
  bit clear, one per 16 values along K.

Decoding here is integer arithmetic on the fields of the codes: it shares no table with any step.
"""

from __future__ import annotations

import functools

import torch

#: Values that share one scale, along K.
BLOCK = 16
#: Rows and scales (along K) of one atom of the blocked scale layout, which is 512 bytes.
ATOM_ROWS = 128
ATOM_SCALES = 4
#: Largest finite e4m3 code (448); the next one, 0x7f, is NaN.
E4M3_MAX_CODE = 0x7E


def ceil_div(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


def scaled_e2m1(packed: torch.Tensor) -> torch.Tensor:
    """2⁻¹⁴ times the values of packed e2m1 codes.

    A code's sign, exponent and mantissa at the ends of float16's fields, whose bias is 15 and not
    1, are that, subnormal ones too.

    Args:
        packed: uint8 ``[..., k / 2]``.

    Returns:
        float16 ``[..., k]``.
    """
    words = packed.to(torch.int32)
    # The low nibble goes to the low half of a word, which is first in memory, the high one to the
    # other: exponent and mantissa from bits 0 and 4 to 9 and 25, signs from 3 and 7 to 15 and 31.
    signs = (words * (1 << 12 | 1 << 24)).bitwise_and_(-0x7FFF8000)
    return words.mul_(1 << 9 | 1 << 21).bitwise_and_(0x0E000E00).add_(signs).view(torch.float16)


def decode_e4m3(codes: torch.Tensor) -> torch.Tensor:
    """Exact float64 values of e4m3 codes.

    Args:
        codes: uint8, any shape; the NaN codes 0x7f and 0xff become NaN.

    Returns:
        float64 of the same shape.
    """
    exponent = ((codes >> 3) & 0xF).to(torch.int32)
    mantissa = (codes & 7).to(torch.float64)
    normal = exponent > 0
    significand = torch.where(normal, mantissa + 8, mantissa)
    value = torch.ldexp(significand, torch.where(normal, exponent, 1) - 10)
    value = torch.where(codes >= 0x80, -value, value)
    return torch.where((codes & 0x7F) == 0x7F, torch.nan, value)


def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Exact values of scaled NVFP4 rows: they have six significant bits.

    Args:
        packed: uint8 ``[rows, k / 2]``.
        scales: uint8 e4m3 codes ``[rows, k / 16]``, on the same device.

    Returns:
        float32 ``[rows, k]``.
    """
    rows, half_k = packed.shape
    pairs, scale_values = _decoded_bytes(packed.device)
    values = pairs.index_select(0, packed.reshape(-1).int()).view(torch.float32)
    factors = scale_values.index_select(0, scales.reshape(-1).int())
    return values.view(-1, BLOCK).mul_(factors.unsqueeze(1)).view(rows, half_k * 2)


@functools.cache
def _decoded_bytes(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """What each byte is: as two packed values, float32 in an int64, and as a scale, float32."""
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    pairs = (scaled_e2m1(codes.unsqueeze(1)).float() * 2.0**14).view(torch.int64)
    return pairs.flatten(), decode_e4m3(codes).float()


def block_scales(scales: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    """Scales in the blocked layout that ``tcgen05`` and ``torch._scaled_mm`` read.

    Atoms of 128 rows x 4 scales are 512 contiguous bytes, in order of rows, then along K. Inside an
    atom, the scale of row ``r`` and block ``b`` is byte ``(r % 32) * 16 + (r / 32) * 4 + b``.

    Args:
        scales: uint8 ``[rows, k / 16]``, ``k`` a multiple of 64.
        padding: uint8 ``[rows rounded up to 128, k / 16]`` on the same device; its rows past
            ``rows`` fill the padding rows.

    Returns:
        uint8 ``[32, 4, ceil(rows / 128), 4, k / 64, 1]``, a permuted view: in memory the order is
        (1, row atoms, K atoms, 32, 4, 4).
    """
    rows, blocks = scales.shape
    padded = padding.clone()
    padded[:rows] = scales
    # [row atoms, 4 row quarters, 32 rows, K atoms] of four scales each, which stay together
    row_atoms, k_atoms = padded.shape[0] // ATOM_ROWS, blocks // ATOM_SCALES
    fours = padded.view(torch.int32).view(row_atoms, 4, ATOM_ROWS // 4, k_atoms)
    memory = fours.permute(0, 3, 2, 1).flatten().view(torch.uint8)
    fields = memory.view(1, row_atoms, k_atoms, ATOM_ROWS // 4, 4, ATOM_SCALES)
    return fields.permute(3, 4, 1, 5, 2, 0)


def round_to_half(values: torch.Tensor) -> torch.Tensor:
    """float64 values rounded once, to nearest even, to float16.

    torch converts float64 to float16 by way of float32, which rounds twice.

    Args:
        values: float64, any shape, finite. What rounds to 65536 or more becomes infinite.
    """
    _, exponent = torch.frexp(values)
    # frexp's mantissa lies in [0.5, 1); -13 is the exponent of the smallest normal float16.
    quantum = exponent.clamp(min=-13) - 11
    steps = torch.round(torch.ldexp(values, -quantum))
    return torch.ldexp(steps, quantum).to(torch.float16)
