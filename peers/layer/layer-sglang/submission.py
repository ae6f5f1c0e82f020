"""A MoE layer by SGLang's Triton runner, behind the router.

Results are bfloat16, as the engine has them; a copy to the problem's float32 ends the call.
"""

from sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe import outplace_fused_experts
from sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config import (
    try_get_optimal_moe_config,
)

_BLOCKS = [128, 128]


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
    summed = outplace_fused_experts(
        data.hidden,
        data.w13,
        data.w2,
        data.expert_weights,
        data.ids,
        use_fp8_w8a8=True,
        w1_scale=data.w13_scales,
        w2_scale=data.w2_scales,
        block_shape=_BLOCKS,
        filter_expert=False,
    )
    m, topk = data.ids.shape
    config, (down, _) = try_get_optimal_moe_config(
        data.w13.shape,
        data.w2.shape,
        topk,
        "fp8_w8a8",
        m,
        block_shape=_BLOCKS,
        return_down_config=True,
    )
    custom_kernel.notes = (
        f"SGLang tiles: {_words(config)}; down: {_words(down) if down else 'the same'}",
        "bfloat16 result, copied to float32",
    )
    return data.output.copy_(summed)


def _words(config):
    return ", ".join(f"{name} {value}" for name, value in config.items())
