"""h00: dequantize, then one library matrix product per group.

The baseline on GPUs without FP4 tensor cores. e2m1 times an e4m3 scale has six significant bits, so
that both operands are exact in float16 once they carry a factor of 2**-7, and the product needs no
more than the float16 tensor cores with float32 sums.
"""

import functools

import torch

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_BLOCK = 16
_CHUNK_ROWS = 512
# Scales times 2**-7 on both sides: neither the largest product of value and scale, 2688, leaves
# float16's range, nor do bits of the smallest one, 2**-10, fall off its subnormal end.
_SHIFT = 2.0**-7


def custom_kernel(data):
    """Multiply every group of an NVFP4 block-scaled group GEMM: ``C = (A * sfa) @ (B * sfb).T``.

    Args:
        data: ``(abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes)``. Per group:

            * ``abc_tensors``: ``a`` float4_e2m1fn_x2 ``[m, k / 2, 1]``, ``b`` float4_e2m1fn_x2
              ``[n, k / 2, 1]``, both K-major with two values a byte (low nibble first), and ``c``
              float16 ``[m, n, 1]``, row-major, which is written;
            * ``sfasfb_tensors``: not used;
            * ``sfasfb_reordered_tensors``: float8_e4m3fn scales in the blocked layout, ``[32, 4,
              ceil(rows / 128), 4, k / 64, 1]``, on the device of ``a``;
            * ``problem_sizes``: ``(m, n, k, 1)``.

    Returns:
        The list of the ``c`` tensors. Sums are accumulated in float32 and rounded once to float16.
    """
    outputs = []
    for (a, b, c), _, blocked, (m, n, k, _) in zip(*data, strict=True):
        outputs.append(c)
        if m == 0:
            continue
        sfa, sfb = (_rows(of, rows) for of, rows in zip(blocked, (m, n), strict=True))
        if a.is_cuda:
            _multiply(a[:, :, 0], b[:, :, 0], c[:, :, 0], sfa, sfb, k)
        else:
            _multiply_float32(a[:, :, 0], b[:, :, 0], c[:, :, 0], sfa, sfb, n, k)
    return outputs


def _multiply(a, b, c, sfa, sfb, k):
    """The float16 product of both dequantized operands; 2**14 is taken back from float32 sums."""
    table = _pair_table(a.device, torch.float16)
    rows_a, rows_b = (
        _dequantize(packed, (scales * _SHIFT).half(), table, k)
        for packed, scales in ((a, sfa), (b, sfb))
    )
    matmul = torch.backends.cuda.matmul
    reduced = matmul.allow_fp16_reduced_precision_reduction
    matmul.allow_fp16_reduced_precision_reduction = False  # a split K would add up in float16
    try:
        torch.addmm(c, rows_a, rows_b.t(), beta=0, alpha=_SHIFT**-2, out=c)
    finally:
        matmul.allow_fp16_reduced_precision_reduction = reduced


def _multiply_float32(a, b, c, sfa, sfb, n, k):
    """The same in float32, for CPUs, in chunks that stay in the cache."""
    table = _pair_table(a.device, torch.float32)
    rows_a = _dequantize(a, sfa, table, k)
    for start in range(0, n, _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, n)
        rows_b = _dequantize(b[start:stop], sfb[start:stop], table, k)
        c[:, start:stop] = rows_a @ rows_b.t()


def _rows(blocked, rows):
    """Scales ``[32, 4, row atoms, 4, column atoms, 1]`` -> ``[rows, k / 16]`` as float32."""
    ordered = blocked[..., 0].view(torch.uint8).permute(2, 1, 0, 4, 3)
    codes = ordered.reshape(ordered.shape[0] * 128, -1)[:rows]
    return codes.view(torch.float8_e4m3fn).float()


def _dequantize(packed, scales, table, k):
    """``[rows, k / 2]`` packed codes and ``[rows, k / 16]`` scales -> ``[rows, k]``."""
    rows = packed.shape[0]
    index = packed.view(torch.uint8).to(torch.int32).reshape(-1)
    values = table.index_select(0, index).view(scales.dtype).view(rows, k // _BLOCK, _BLOCK)
    return values.mul_(scales.unsqueeze(-1)).view(rows, k)


@functools.cache
def _pair_table(device, dtype):
    """Byte -> the values of its low and high nibble, both in one integer entry."""
    codes = torch.arange(256)
    values = torch.tensor(_E2M1, dtype=dtype)
    pairs = torch.stack((values[codes & 15], values[codes >> 4]), dim=-1)
    entry = torch.int32 if dtype is torch.float16 else torch.int64
    return pairs.view(entry).view(-1).to(device)
