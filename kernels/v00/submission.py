#!POPCORN leaderboard nvfp4_group_gemm
#!POPCORN gpu B200
"""v00: one library matrix product per group.

The starting point of the lineage. Each group is a call of its own, and each call builds the scale
factors' blocked layout on the CPU and copies it over, so launches and copies follow one another.
"""

import functools

import torch

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_BLOCK = 16
_CHUNK_ROWS = 512


def custom_kernel(data):
    """Multiply every group of an NVFP4 block-scaled group GEMM: ``C = (A * sfa) @ (B * sfb).T``.

    Args:
        data: ``(abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, problem_sizes)``. Per group:

            * ``abc_tensors``: ``a`` float4_e2m1fn_x2 ``[m, k / 2, 1]``, ``b`` float4_e2m1fn_x2
              ``[n, k / 2, 1]``, both K-major with two values a byte (low nibble first), and ``c``
              float16 ``[m, n, 1]``, row-major, which is written;
            * ``sfasfb_tensors``: ``sfa`` float8_e4m3fn ``[m, k / 16, 1]`` and ``sfb``
              ``[n, k / 16, 1]``, one scale per 16 values along K, in CPU memory;
            * ``sfasfb_reordered_tensors``: the same scales in the blocked layout, on the device of
              ``a``; used where there are no FP4 tensor cores;
            * ``problem_sizes``: ``(m, n, k, 1)``.

    Returns:
        The list of the ``c`` tensors. Sums are accumulated in float32 and rounded once to float16.
    """
    outputs = []
    for (a, b, c), scales, blocked, (m, n, k, _) in zip(*data, strict=True):
        if a.is_cuda and torch.cuda.get_device_capability(a.device)[0] >= 10:
            _multiply_fp4(a, b, c, *scales)
        else:
            sfa, sfb = (_rows(of, rows) for of, rows in zip(blocked, (m, n), strict=True))
            _multiply_dequantized(a, b, c, sfa, sfb, n, k)
        outputs.append(c)
    return outputs


def _multiply_fp4(a, b, c, sfa, sfb):
    """The library's FP4 product, with the scales re-laid out on the CPU and copied."""
    c[:, :, 0] = torch._scaled_mm(
        a[:, :, 0],
        b[:, :, 0].transpose(0, 1),
        _blocked(sfa[:, :, 0]).to(a.device),
        _blocked(sfb[:, :, 0]).to(a.device),
        bias=None,
        out_dtype=torch.float16,
    )


def _blocked(scales):
    """``[rows, k / 16]`` -> flat atoms of 128 rows x 4 scales, rows padded with zero scales."""
    rows, cols = scales.shape
    row_atoms = -(-rows // 128)
    col_atoms = -(-cols // 4)
    padded = torch.zeros(row_atoms * 128, col_atoms * 4, dtype=torch.uint8, device=scales.device)
    padded[:rows, :cols] = scales.view(torch.uint8)
    atoms = padded.view(row_atoms, 4, 32, col_atoms, 4).permute(0, 3, 2, 1, 4)
    return atoms.reshape(-1).view(torch.float8_e4m3fn)


def _rows(blocked, rows):
    """Scales ``[32, 4, row atoms, 4, column atoms, 1]`` -> ``[rows, k / 16]`` as float32."""
    ordered = blocked[..., 0].view(torch.uint8).permute(2, 1, 0, 4, 3)
    codes = ordered.reshape(ordered.shape[0] * 128, -1)[:rows]
    return codes.view(torch.float8_e4m3fn).float()


def _multiply_dequantized(a, b, c, sfa, sfb, n, k):
    """Exact dequantization, then a float32 product: for CPUs and for GPUs without FP4."""
    table = _pair_table(a.device)
    rows_a = _dequantize(a[:, :, 0], sfa, table, k)
    # Chunks that stay in a CPU's cache; a GPU prefers one product.
    step = n if a.is_cuda else _CHUNK_ROWS
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # TF32 would drop bits of the products
    try:
        for start in range(0, n, step):
            stop = min(start + step, n)
            rows_b = _dequantize(b[start:stop, :, 0], sfb[start:stop], table, k)
            c[:, start:stop, 0] = rows_a @ rows_b.t()
    finally:
        torch.set_float32_matmul_precision(precision)


def _dequantize(packed, scales, table, k):
    """``[rows, k / 2]`` packed codes and ``[rows, k / 16]`` scales -> float32 ``[rows, k]``."""
    rows = packed.shape[0]
    index = packed.view(torch.uint8).to(torch.int32).reshape(-1)
    values = table.index_select(0, index).view(torch.float32).view(rows, k // _BLOCK, _BLOCK)
    return values.mul_(scales.unsqueeze(-1)).view(rows, k)


@functools.cache
def _pair_table(device):
    """Byte -> the float32 values of its low and high nibble, both in one int64 entry."""
    codes = torch.arange(256)
    values = torch.tensor(_E2M1)
    pairs = torch.stack((values[codes & 15], values[codes >> 4]), dim=-1)
    return pairs.view(torch.int64).view(-1).to(device)
