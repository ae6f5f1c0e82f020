"""The NVFP4 group GEMM as a dequantization and a library product for each group."""

import torch
from dequantize import dequantize


def custom_kernel(data):
    """``C = (A * sfa) @ (B * sfb).T`` of every group, dequantized in each call.

    Args:
        data: The problem's tuple; blocked scales are read.

    Returns:
        The list of the ``c`` tensors.
    """
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    for (a, b, c), _, blocked, (m, n, k, _) in zip(*data, strict=True):
        if not m:
            continue
        rows_a, rows_b = (
            torch.empty(rows, k, dtype=torch.float16, device=a.device) for rows in (m, n)
        )
        dequantize(a, blocked[0], rows_a)
        dequantize(b, blocked[1], rows_b)
        torch.mm(rows_a, rows_b.t(), out=c[:, :, 0])
    return [c for _, _, c in data[0]]
