"""mref: the fused MoE in torch, one stage after the other; every step of the lineage must agree.

Route each token to its experts, quantize it to FP8 per block of 128, multiply with each expert's
weights, and sum the weighted results.
"""

import torch

_BLOCK = 128
_E4M3_MAX = 448.0
_SCALE_FLOOR = 1e-6
_EXPERTS_A_BATCH = 32
_ROWS_A_BATCH = 8192


def custom_kernel(data):
    """Compute a fused mixture of experts with blockwise FP8.

    Args:
        data: A named tuple of ``hidden`` bfloat16 ``[m, k]``; ``gating`` float32 ``[m, e]``;
            ``weights`` float8_e4m3fn ``[e, n, k]``; ``weight_scales`` float32
            ``[e, n / 128, k / 128]``; ``output`` float32 ``[m, n]``, which is written; ``topk``,
            the number of experts per token; ``renormalize``, whether their weights sum to one; and
            ``softcap``, the bound of the logits (0 for none). All on one device, CPU or GPU.

    Returns:
        ``data.output``. Products are accumulated in float32, in the same order in every call.
    """
    ids, expert_weights = _route(data.gating, data.topk, data.renormalize, data.softcap)
    codes, scales = _quantize(data.hidden)
    routed = _multiply(codes, scales, data.weights, data.weight_scales, ids)
    data.output.copy_((routed * expert_weights.unsqueeze(-1)).sum(dim=1))
    return data.output


def _route(gating, topk, renormalize, softcap):
    """-> experts int64 ``[m, topk]`` (ties to the lower index), their weights float32."""
    logits = softcap * torch.tanh(gating / softcap) if softcap > 0 else gating
    ranked = torch.sort(torch.softmax(logits, dim=-1), dim=-1, descending=True, stable=True)
    ids, weights = ranked.indices[:, :topk], ranked.values[:, :topk]
    if renormalize:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return ids, weights


def _quantize(hidden):
    """bfloat16 ``[m, k]`` -> e4m3 values as float32 ``[m, k / 128, 128]``, scales of the blocks."""
    blocks = hidden.float().view(hidden.shape[0], -1, _BLOCK)
    limit = torch.full((), _E4M3_MAX, device=hidden.device)  # a number would turn into 1 / 448
    scales = (blocks.abs().amax(dim=-1, keepdim=True) / limit).clamp(min=_SCALE_FLOOR)
    codes = (blocks / scales).clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn)
    return codes.float(), scales


def _multiply(codes, scales, weights, weight_scales, ids):
    """Each token times each of its experts -> float32 ``[m, topk, n]``.

    Pairs of token and expert are sorted by expert, and experts with similar numbers of tokens are
    multiplied in one batch, padded to the largest.
    """
    experts, n, _ = weights.shape
    m, topk = ids.shape
    order = torch.argsort(ids.flatten(), stable=True)
    counts = torch.bincount(ids.flatten(), minlength=experts)
    starts = counts.cumsum(0) - counts
    tokens = codes * scales
    # One row more than there are pairs: the padding of a batch goes there.
    routed = torch.empty(m * topk + 1, n, device=ids.device)
    by_count = torch.argsort(counts, descending=True, stable=True)
    sizes = counts[by_count].tolist()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # TF32 would drop bits of the scaled values
    try:
        first = 0
        while first < experts and sizes[first]:
            rows = sizes[first]
            batch = by_count[first : first + _batch_size(rows, ids.is_cuda)]
            slot = torch.arange(rows, device=ids.device)
            filled = slot < counts[batch].unsqueeze(1)
            pairs = order[(starts[batch].unsqueeze(1) + slot).clamp(max=m * topk - 1)]
            product = _scaled_product(tokens[pairs // topk], weights[batch], weight_scales[batch])
            target = torch.where(filled, pairs, m * topk)
            routed.index_copy_(0, target.flatten(), product.view(-1, n))
            first += len(batch)
    finally:
        torch.set_float32_matmul_precision(precision)
    return routed[:-1].view(m, topk, n)


def _batch_size(rows, on_gpu):
    """How many experts to multiply at once: on a CPU one, whose weights stay in the cache."""
    return max(1, min(_EXPERTS_A_BATCH, _ROWS_A_BATCH // rows)) if on_gpu else 1


def _scaled_product(tokens, weights, weight_scales):
    """``[b, rows, k / 128, 128]`` times ``[b, n, k]`` with scales ``[b, n / 128, k / 128]``.

    The weights' scales go to the tokens' side, once per 128 columns: it is the smaller one.
    """
    batch, rows, blocks, _ = tokens.shape
    n, k = weights.shape[1:]
    tiles = n // _BLOCK
    left = tokens.unsqueeze(1) * weight_scales.view(batch, tiles, 1, blocks, 1)
    right = weights.float().view(batch * tiles, _BLOCK, k)
    product = torch.bmm(left.view(batch * tiles, rows, k), right.transpose(1, 2))
    return product.view(batch, tiles, rows, _BLOCK).transpose(1, 2).reshape(batch, rows, n)
