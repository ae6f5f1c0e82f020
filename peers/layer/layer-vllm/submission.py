"""A MoE layer as vLLM's Triton experts compute it, kernel for kernel, behind the router.

Results are bfloat16, as the engine has them; a copy to the problem's float32 ends the call.
"""

import torch
from vllm import _custom_ops as ops
from vllm.model_executor.layers.fused_moe.fused_moe import (
    _prepare_expert_assignment,
    invoke_fused_moe_triton_kernel,
    try_get_optimal_moe_config,
)
from vllm.model_executor.layers.quantization.utils.fp8_utils import per_token_group_quant_fp8
from vllm.triton_utils import tl

_BLOCK = 128
# vLLM bounds amax instead of the scale amax / 448.
_AMAX_FLOOR = 448.0 * 1e-6


def custom_kernel(data):
    """Compute a MoE layer with blockwise FP8, behind its router, on an NVIDIA GPU.

    Args:
        data: The problem's named tuple: ``hidden`` bfloat16 ``[m, h]``; ``ids`` int32 and
            ``expert_weights`` float32 ``[m, topk]``; ``w13`` float8_e4m3fn ``[e, 2 i, h]`` and
            ``w2`` ``[e, h, i]`` with ``w13_scales`` and ``w2_scales``; ``output`` float32
            ``[m, h]``.

    Returns:
        ``data.output``.
    """
    m, h = data.hidden.shape
    topk = data.ids.shape[1]
    experts, _, i = data.w2.shape
    config = try_get_optimal_moe_config(
        data.w13.shape, data.w2.shape, topk, "fp8_w8a8", m, block_shape=[_BLOCK, _BLOCK]
    )
    codes, scales = per_token_group_quant_fp8(data.hidden, _BLOCK, eps=_AMAX_FLOOR, use_ue8m0=False)
    tiles = _prepare_expert_assignment(
        data.ids, config, m, topk, experts, None, ignore_invalid_experts=True
    )

    def multiply(codes, matrices, scales, matrix_scales, weights, routes):
        """One grouped product; each row of ``codes`` has ``routes`` of them."""
        pairs = torch.empty(
            m, topk, matrices.shape[1], dtype=torch.bfloat16, device=data.hidden.device
        )
        invoke_fused_moe_triton_kernel(
            codes,
            matrices,
            pairs,
            scales,
            matrix_scales,
            weights,
            *tiles,
            mul_routed_weight=weights is not None,
            top_k=routes,
            config=config,
            compute_type=tl.bfloat16,
            use_fp8_w8a8=True,
            use_int8_w8a8=False,
            use_int8_w8a16=False,
            use_int4_w4a16=False,
            per_channel_quant=False,
            block_shape=[_BLOCK, _BLOCK],
        )
        return pairs

    gate_up = multiply(codes, data.w13, scales, data.w13_scales, None, topk)
    codes, scales = ops.silu_and_mul_per_block_quant(
        gate_up.view(-1, 2 * i), group_size=_BLOCK, quant_dtype=torch.float8_e4m3fn
    )
    pairs = multiply(codes, data.w2, scales, data.w2_scales, data.expert_weights, 1)
    summed = torch.empty(m, h, dtype=torch.bfloat16, device=data.hidden.device)
    ops.moe_sum(pairs, summed)
    custom_kernel.notes = (
        "vLLM tile: " + ", ".join(f"{name} {value}" for name, value in config.items()),
        "bfloat16 result, copied to float32",
    )
    return data.output.copy_(summed)
