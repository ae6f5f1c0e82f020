"""The fused MoE with vLLM's kernels: its top-k, quantization, sorted layout, grouped GEMM, sum.

vLLM's ``fused_experts`` multiplies twice, with an activation between. This problem is one product,
so the parts are called one by one, with vLLM's own choice of tile. Expert results stay in float32.
"""

import torch
from vllm import _custom_ops as ops
from vllm.model_executor.layers.fused_moe.fused_moe import (
    invoke_fused_moe_triton_kernel,
    try_get_optimal_moe_config,
)
from vllm.model_executor.layers.fused_moe.moe_align_block_size import moe_align_block_size
from vllm.model_executor.layers.fused_moe.router.fused_topk_router import fused_topk
from vllm.model_executor.layers.quantization.utils.fp8_utils import per_token_group_quant_fp8
from vllm.triton_utils import tl

_BLOCK = 128
# vLLM bounds amax instead of the scale amax / 448.
_AMAX_FLOOR = 448.0 * 1e-6


def custom_kernel(data):
    """Compute a fused mixture of experts with blockwise FP8 on an NVIDIA GPU.

    Args:
        data: The problem's named tuple: ``hidden`` bfloat16 ``[m, k]``; ``gating`` float32
            ``[m, e]``; ``weights`` float8_e4m3fn ``[e, n, k]``; ``weight_scales`` float32
            ``[e, n / 128, k / 128]``; ``output`` float32 ``[m, n]``; ``topk``; ``renormalize``;
            ``softcap``.

    Returns:
        ``data.output``.
    """
    m, k = data.hidden.shape
    experts, n, _ = data.weights.shape
    block_shape = [_BLOCK, _BLOCK]
    gating = data.gating
    if data.softcap > 0:
        gating = data.softcap * torch.tanh(gating / data.softcap)
    expert_weights, ids, *_ = fused_topk(data.hidden, gating, data.topk, data.renormalize)
    codes, scales = per_token_group_quant_fp8(data.hidden, _BLOCK, eps=_AMAX_FLOOR, use_ue8m0=False)
    # The second shape is that of the product that follows in a model; its last extent names the
    # file of tuned tiles.
    config = try_get_optimal_moe_config(
        (experts, n, k), (experts, k, n), data.topk, "fp8_w8a8", m, block_shape=block_shape
    )
    layout = moe_align_block_size(ids, config["BLOCK_SIZE_M"], experts)
    pairs = torch.empty(m, data.topk, n, dtype=torch.float32, device=data.hidden.device)
    invoke_fused_moe_triton_kernel(
        codes,
        data.weights,
        pairs,
        scales,
        data.weight_scales,
        expert_weights,
        *layout,
        mul_routed_weight=True,
        top_k=data.topk,
        config=config,
        compute_type=tl.float32,
        use_fp8_w8a8=True,
        use_int8_w8a8=False,
        use_int8_w8a16=False,
        use_int4_w4a16=False,
        per_channel_quant=False,
        block_shape=block_shape,
    )
    ops.moe_sum(pairs, data.output)
    custom_kernel.notes = ("vLLM tile: " + ", ".join(f"{k} {v}" for k, v in config.items()),)
    return data.output
