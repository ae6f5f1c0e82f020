"""A MoE layer by the one kernel of sgl-deep-gemm for Hopper, as a group of one GPU.

Results are bfloat16, as the engine has them; a copy to the problem's float32 ends the call.
"""

from types import SimpleNamespace
from unittest import mock

import deep_gemm
import torch

_LAST = 8  # sets of tensors whose memory is kept
_kept = {}


def custom_kernel(data):
    """Compute a MoE layer with blockwise FP8, behind its router, on a Hopper GPU.

    Args:
        data: The problem's named tuple: ``hidden`` bfloat16 ``[m, h]``; ``ids`` int32 and
            ``expert_weights`` float32 ``[m, topk]``; ``w13`` float8_e4m3fn ``[e, 2 i, h]`` and
            ``w2`` ``[e, h, i]`` with ``w13_scales`` and ``w2_scales``; ``output`` float32
            ``[m, h]``.

    Returns:
        ``data.output``.
    """
    kept = _kept[_key(data)]
    buffer = kept.buffer
    deep_gemm.mega_moe_pre_dispatch_sm90(
        data.hidden,
        data.ids,
        data.expert_weights,
        buffer.x,
        buffer.x_sf,
        buffer.topk_idx,
        buffer.topk_weights,
        num_tokens=len(data.hidden),
    )
    deep_gemm.fp8_mega_moe(kept.summed, kept.w13, kept.w2, buffer)
    return data.output.copy_(kept.summed)


def interleave(data):
    """Copies w13 with its gate and up rows interleaved, and makes the kernel's buffer."""
    key = _key(data)
    if key not in _kept:
        while len(_kept) >= _LAST:
            del _kept[next(iter(_kept))]
        summed = torch.empty_like(data.hidden)
        _kept[key] = SimpleNamespace(buffer=_buffer(data), summed=summed)
    _kept[key].w13, _kept[key].w2 = deep_gemm.transform_weights_for_mega_moe_sm90(
        (data.w13, data.w13_scales), (data.w2, data.w2_scales)
    )


custom_kernel.untimed_setup = interleave
custom_kernel.notes = (
    "gate and up interleaved beforehand, not timed",
    "bfloat16 result, copied to float32",
)


def _key(data):
    return tuple(tensor.data_ptr() for tensor in data)


def _buffer(data):
    """The buffer that GPUs share, here of one that shares it with nobody."""
    alone = SimpleNamespace(size=lambda: 1, rank=lambda: 0, barrier=lambda: None)
    with mock.patch.multiple(
        "torch.distributed._symmetric_memory",
        empty=torch.empty,
        rendezvous=lambda memory, group: SimpleNamespace(buffer_ptrs=[memory.data_ptr()]),
    ):
        return deep_gemm.get_symm_buffer_for_mega_moe(
            alone,
            len(data.w13),
            len(data.hidden),
            data.ids.shape[1],
            data.hidden.shape[1],
            data.w2.shape[2],
            use_fp8_dispatch=True,
        )
