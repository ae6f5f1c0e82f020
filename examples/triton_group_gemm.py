#!POPCORN leaderboard nvfp4_group_gemm
#!POPCORN gpu B200
"""NVFP4 group GEMM in Triton: dequantize in registers, multiply in FP16, one launch per group.

An example of a submission from outside any lineage, and the test object of the calibration: a
fused kernel of some tens of microseconds on the small shapes.

Every value times its scale is exact in FP16 (6 significant bits), so the only rounding before the
store is that of the FP32 accumulation. A byte holds two neighbours along K; the even and the odd
ones are multiplied in separate products, since the order of K does not matter to a sum.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _values(packed, scales, rows: tl.constexpr, half: tl.constexpr):
    """Codes in the low nibble of uint16 ``[rows, half]`` times their scales, exact in FP16.

    The three magnitude bits, put at the top of FP16's exponent and mantissa, are value * 2**-14.
    """
    bits = ((packed & 8) << 12) | ((packed & 7) << 9)
    values = bits.to(tl.float16, bitcast=True) * 16384.0
    wide = tl.broadcast_to(scales[:, :, None], (rows, half // 8, 8))
    return values * tl.reshape(wide, (rows, half))


@triton.jit
def _scales(pointer, row, block, row_atom_bytes):
    """Scales at rows ``[r, 1]`` and blocks of 16 ``[1, b]`` from the blocked layout, as FP16."""
    offset = (row // 128) * row_atom_bytes + (block // 4) * 512
    offset += (row % 32) * 16 + ((row % 128) // 32) * 4 + block % 4
    return tl.load(pointer + offset).to(tl.float8e4nv, bitcast=True).to(tl.float16)


@triton.jit
def _group_gemm(
    a, b, c, sfa, sfb, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    half: tl.constexpr = BLOCK_K // 2
    rows_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    byte = tl.arange(0, half)
    block = tl.arange(0, BLOCK_K // 16)
    row_bytes = k // 2
    atom_bytes = k * 8
    in_m = rows_m[:, None] < m
    in_n = rows_n[:, None] < n
    a_at = a + rows_m[:, None] * row_bytes + byte[None, :]
    b_at = b + rows_n[:, None] * row_bytes + byte[None, :]
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        packed_a = tl.load(a_at, mask=in_m, other=0).to(tl.uint16)
        packed_b = tl.load(b_at, mask=in_n, other=0).to(tl.uint16)
        blocks = start // 16 + block[None, :]
        scale_a = _scales(sfa, rows_m[:, None], blocks, atom_bytes)
        scale_b = _scales(sfb, rows_n[:, None], blocks, atom_bytes)
        even_a = _values(packed_a & 15, scale_a, BLOCK_M, half)
        even_b = _values(packed_b & 15, scale_b, BLOCK_N, half)
        accumulator = tl.dot(even_a, even_b.T, accumulator)
        odd_a = _values(packed_a >> 4, scale_a, BLOCK_M, half)
        odd_b = _values(packed_b >> 4, scale_b, BLOCK_N, half)
        accumulator = tl.dot(odd_a, odd_b.T, accumulator)
        a_at += half
        b_at += half
    c_at = c + rows_m[:, None] * n + rows_n[None, :]
    tl.store(c_at, accumulator.to(tl.float16), mask=in_m & (rows_n[None, :] < n))


def custom_kernel(data):
    """``C = (A * sfa) @ (B * sfb).T`` for every group of an NVFP4 group GEMM.

    Args:
        data: ``(abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes)`` as in
            GPU MODE's ``nvfp4_group_gemm``, on an NVIDIA GPU; K a multiple of 64. Tiles are
            rounded up to 128 rows, which the blocked scales are padded to.

    Returns:
        The list of the ``c`` tensors.
    """
    abc_tensors, _, reordered, problem_sizes = data
    for (a, b, c), (sfa, sfb), (m, n, k, _) in zip(
        abc_tensors, reordered, problem_sizes, strict=True
    ):
        _group_gemm[(triton.cdiv(m, 64), triton.cdiv(n, 128))](
            a.view(torch.uint8), b.view(torch.uint8), c,
            sfa.view(torch.uint8), sfb.view(torch.uint8),
            m, n, k, BLOCK_M=64, BLOCK_N=128, BLOCK_K=64, num_warps=4, num_stages=3,
        )  # fmt: skip
    return [c for _, _, c in abc_tensors]
