"""The fused MoE as operations of torch, without a host synchronization where there is grouped FP8.

torch's grouped FP8 product scales whole rows and columns, not blocks of 128 along K: each block is
a product of its own. It returns bfloat16, so each block's result is rounded once to that.
"""

import torch

_BLOCK = 128
_E4M3_MAX = 448.0
_SCALE_FLOOR = 1e-6


def custom_kernel(data):
    """Compute a fused mixture of experts with blockwise FP8.

    Args:
        data: The problem's named tuple: ``hidden`` bfloat16 ``[m, k]``; ``gating`` float32
            ``[m, e]``; ``weights`` float8_e4m3fn ``[e, n, k]``; ``weight_scales`` float32
            ``[e, n / 128, k / 128]``; ``output`` float32 ``[m, n]``; ``topk``; ``renormalize``;
            ``softcap``.

    Returns:
        ``data.output``; the same bits in every call.
    """
    ids, expert_weights = _route(data.gating, data.topk, data.renormalize, data.softcap)
    codes, scales = _quantize(data.hidden)
    order = torch.argsort(ids.flatten(), stable=True)
    ones = torch.ones_like(order, dtype=torch.int32)
    counts = torch.zeros(data.gating.shape[1], dtype=torch.int32, device=ids.device)
    ends = counts.scatter_add_(0, ids.flatten(), ones).cumsum(0, dtype=torch.int32)
    token = order // data.topk
    rows = codes.view(torch.uint8)[token].view(codes.dtype)
    product = _grouped_fp8 if _has_grouped_fp8(ids.device) else _grouped_float32
    custom_kernel.notes = (_HOW[product],)
    sorted_rows = product(rows, scales[token], data.weights, data.weight_scales, ends)
    pairs = torch.empty_like(sorted_rows).index_copy_(0, order, sorted_rows)
    weighted = pairs.view(*ids.shape, -1).mul_(expert_weights.unsqueeze(-1))
    torch.sum(weighted, dim=1, out=data.output)
    return data.output


def _route(gating, topk, renormalize, softcap):
    """-> experts int64 ``[m, topk]`` (ties to the lower index), their weights float32."""
    logits = softcap * torch.tanh(gating / softcap) if softcap > 0 else gating
    # torch.topk leaves open which of equal values it takes.
    ids = torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, :topk]
    weights = torch.softmax(logits, dim=-1).gather(1, ids)
    return ids, weights / weights.sum(dim=-1, keepdim=True) if renormalize else weights


def _quantize(hidden):
    """bfloat16 ``[m, k]`` -> e4m3 ``[m, k]``, float32 scales ``[m, k / 128]``."""
    blocks = hidden.float().view(hidden.shape[0], -1, _BLOCK)
    scales = (blocks.abs().amax(dim=-1) / _E4M3_MAX).clamp(min=_SCALE_FLOOR)
    codes = (blocks / scales.unsqueeze(-1)).clamp(-_E4M3_MAX, _E4M3_MAX)
    return codes.to(torch.float8_e4m3fn).view(hidden.shape), scales


def _has_grouped_fp8(device):
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _grouped_fp8(rows, row_scales, weights, weight_scales, ends):
    """Rows sorted by expert, of which ``ends`` are the ends -> float32 ``[pairs, n]``."""
    row_scales = row_scales.t().contiguous()
    # [k / 128, e, n]: one scale per column, as the product wants it.
    column_scales = weight_scales.permute(2, 0, 1).repeat_interleave(_BLOCK, dim=-1)
    total = torch.zeros(len(rows), weights.shape[1], device=rows.device)
    for block, (row_scale, column_scale) in enumerate(zip(row_scales, column_scales, strict=True)):
        along_k = slice(block * _BLOCK, (block + 1) * _BLOCK)
        total += torch._scaled_grouped_mm(
            rows[:, along_k],
            weights[:, :, along_k].transpose(1, 2),
            row_scale,
            column_scale,
            offs=ends,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
    return total


def _grouped_float32(rows, row_scales, weights, weight_scales, ends):
    """The same in float32, expert by expert, where torch has no grouped FP8; synchronizes."""
    left = (rows.float().view(len(rows), -1, _BLOCK) * row_scales.unsqueeze(-1)).flatten(1)
    result = torch.empty(len(rows), weights.shape[1], device=rows.device)
    first = 0
    for expert, end in enumerate(ends.tolist()):
        if end > first:
            scales = weight_scales[expert].repeat_interleave(_BLOCK, dim=0)
            scaled = weights[expert].float() * scales.repeat_interleave(_BLOCK, dim=1)
            torch.mm(left[first:end], scaled.t(), out=result[first:end])
        first = end
    return result


_HOW = {
    _grouped_fp8: "torch's grouped FP8 product per block of 128, its results in bfloat16",
    _grouped_float32: "no grouped FP8 in torch here: float32, one expert after the other",
}
