"""NVFP4 operands to fp16, exactly: e2m1 times e4m3 has six significant bits, at most 2688."""

import torch
import triton
import triton.language as tl

_ROWS, _ATOMS = 64, 4  # of a program


# Four bytes: the bits of each code at an fp16's sign, exponent and mantissa, which is its value
# times 2**-14.
_HALVES = tl.constexpr("""{
    .reg .b32 low, high, more;
    shl.b32 low, $4, 4;
    and.b32 low, low, 0x80808080;
    shl.b32 more, $4, 1;
    and.b32 more, more, 0x0e0e0e0e;
    or.b32 low, low, more;
    and.b32 high, $4, 0x80808080;
    shr.u32 more, $4, 3;
    and.b32 more, more, 0x0e0e0e0e;
    or.b32 high, high, more;
    prmt.b32 $0, low, 0, 0x1404;
    prmt.b32 $1, low, 0, 0x3424;
    prmt.b32 $2, high, 0, 0x1404;
    prmt.b32 $3, high, 0, 0x3424;
}""")


@triton.jit
def scaled_halves(packed, scales):
    """Low and high codes of uint8 ``[rows, columns]``, scaled, as fp16 times 2**-14.

    ``scales``: float8_e4m3fn ``[rows, columns / 8]``: eight bytes share one.
    """
    rows: tl.constexpr = packed.shape[0]
    columns: tl.constexpr = packed.shape[1]
    blocks: tl.constexpr = scales.shape[1]
    low, high = tl.inline_asm_elementwise(
        _HALVES, "=r,=r,=r,=r,r", [packed], dtype=(tl.float16, tl.float16), is_pure=True, pack=4
    )
    factor = scales.to(tl.float16)[:, :, None]
    low = tl.reshape(low, (rows, blocks, 8)) * factor
    high = tl.reshape(high, (rows, blocks, 8)) * factor
    return tl.reshape(low, (rows, columns)), tl.reshape(high, (rows, columns))


@triton.jit
def _dequantize(
    packed, scales, out, rows, k, ROWS: tl.constexpr, ATOMS: tl.constexpr, SPLIT: tl.constexpr
):
    """``ROWS`` rows by ``ATOMS`` atoms of 64 values along K."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None].to(tl.int64)
    byte = tl.program_id(1) * ATOMS * 32 + tl.arange(0, ATOMS * 32)[None, :]
    inside = (row < rows) & (byte < k // 2)
    codes = tl.load(packed + row * (k // 2) + byte, mask=inside, other=0)
    block = tl.program_id(1) * ATOMS * 4 + tl.arange(0, ATOMS * 4)[None, :]
    atom = (row // 128) * (k // 64) + block // 4
    at = atom * 512 + (row % 32) * 16 + (row % 128) // 32 * 4 + block % 4
    scale = tl.load(scales + at, mask=(row < rows) & (block < k // 16), other=0.0)
    low, high = scaled_halves(codes, scale)
    if SPLIT:
        tl.store(out + row * k + byte, low, mask=inside)
        tl.store(out + row * k + k // 2 + byte, high, mask=inside)
    else:
        values = tl.interleave(low.to(tl.float32), high.to(tl.float32)) * 16384.0
        column = tl.program_id(1) * ATOMS * 64 + tl.arange(0, ATOMS * 64)[None, :]
        tl.store(out + row * k + column, values.to(tl.float16), mask=(row < rows) & (column < k))


def dequantize(packed, blocked, out, split=False):
    """Write fp16 values; ``split``: times 2**-14, each row's even columns before its odd ones.

    Args:
        packed: float4_e2m1fn_x2 ``[rows, k / 2, 1]``.
        blocked: Its scales in the blocked layout, float8_e4m3fn.
        out: fp16 ``[rows, k]``, dense.
    """
    rows, k = out.shape
    if not rows:
        return
    # A permuted view of dense memory: its first element is the memory's.
    scales = blocked.permute(5, 2, 4, 0, 1, 3)
    grid = (triton.cdiv(rows, _ROWS), triton.cdiv(k, 64 * _ATOMS))
    _dequantize[grid](
        packed.view(torch.uint8), scales, out, rows, k, ROWS=_ROWS, ATOMS=_ATOMS, SPLIT=split
    )
