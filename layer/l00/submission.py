"""l00: a MoE layer in torch, one expert after the other; every step of the lineage must agree."""

import torch

_BLOCK = 128
_E4M3_MAX = 448.0
_SCALE_FLOOR = 1e-6


def custom_kernel(data):
    """Compute a MoE layer with blockwise FP8, behind its router.

    Args:
        data: A named tuple of ``hidden`` bfloat16 ``[m, h]``; ``ids`` int32 ``[m, topk]``, where
            what is no expert counts for nothing; ``expert_weights`` float32 ``[m, topk]``; ``w13``
            float8_e4m3fn ``[e, 2 i, h]``, gate before up, and ``w2`` ``[e, h, i]``, with
            ``w13_scales`` and ``w2_scales``, float32, one for each 128 x 128; and ``output``
            float32 ``[m, h]``, which is written. All on one device, CPU or GPU.

    Returns:
        ``data.output``. Products are accumulated in float32.
    """
    tokens = _quantized(data.hidden)
    output = torch.zeros_like(data.output)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # TF32 would drop bits of the scaled values
    try:
        for expert in range(len(data.w13)):
            rows, slots = (data.ids == expert).nonzero(as_tuple=True)
            if not len(rows):
                continue
            gate, up = (
                tokens[rows] @ _dequantized(data.w13[expert], data.w13_scales[expert]).T
            ).chunk(2, dim=1)
            h = _quantized(torch.nn.functional.silu(gate) * up)
            down = h @ _dequantized(data.w2[expert], data.w2_scales[expert]).T
            output.index_add_(0, rows, down * data.expert_weights[rows, slots].unsqueeze(1))
    finally:
        torch.set_float32_matmul_precision(precision)
    data.output.copy_(output)
    return data.output


def _quantized(values):
    """``[rows, columns]`` -> the values that e4m3 codes and a scale per block of 128 stand for."""
    blocks = values.float().view(len(values), -1, _BLOCK)
    limit = torch.full((), _E4M3_MAX, device=values.device)  # a number would turn into 1 / 448
    scales = (blocks.abs().amax(dim=-1, keepdim=True) / limit).clamp(min=_SCALE_FLOOR)
    codes = (blocks / scales).clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn)
    return (codes.float() * scales).view(values.shape)


def _dequantized(codes, scales):
    rows = scales.repeat_interleave(_BLOCK, dim=0).repeat_interleave(_BLOCK, dim=1)
    return codes.float() * rows
