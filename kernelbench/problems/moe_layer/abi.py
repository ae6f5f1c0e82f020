"""Calls of compiled MoE layer steps: from :class:`LayerData` to ``kb::MoeLayerCall``."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from kernelbench.problems.fused_moe.abi import bind_tuple, extents, require_dense, require_sizes
from kernelbench.problems.fused_moe.fp8 import BLOCK
from kernelbench.problems.moe_layer.shape import LayerData

if TYPE_CHECKING:
    from kernelbench.kinds.loaded_step import LoadedStep
    from kernelbench.project.problem import Kernel

_SIZES = ("m", "h", "i", "e", "topk")


class MoeLayerCall(ctypes.Structure):
    """``kb::MoeLayerCall``."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in LayerData._fields),
        ("stream", ctypes.c_void_p),
    )


def bind_layer(entry: LoadedStep, device: str) -> Kernel:
    """``custom_kernel`` of a compiled step: it takes a :class:`LayerData`, returns its output."""
    return bind_tuple(entry, device, LayerData._fields, make_layer_call)


def make_layer_call(data: LayerData, device: torch.device, stream: int) -> MoeLayerCall:
    """The call's structure; it points into the tensors of ``data``, which must outlive it.

    Raises:
        ValueError: With one line that names the argument and what it should be.
    """
    m, h = extents(data.hidden, "hidden", 2)
    _, topk = extents(data.ids, "ids", 2)
    e, _, i = extents(data.w2, "w2", 3)
    shapes = {
        "hidden": (torch.bfloat16, (m, h)),
        "ids": (torch.int32, (m, topk)),
        "expert_weights": (torch.float32, (m, topk)),
        "w13": (torch.float8_e4m3fn, (e, 2 * i, h)),
        "w13_scales": (torch.float32, (e, 2 * i // BLOCK, h // BLOCK)),
        "w2": (torch.float8_e4m3fn, (e, h, i)),
        "w2_scales": (torch.float32, (e, h // BLOCK, i // BLOCK)),
        "output": (torch.float32, (m, h)),
    }
    for name, (dtype, shape) in shapes.items():
        require_dense(name, getattr(data, name), dtype, shape, device)
    sizes = dict(zip(_SIZES, (m, h, i, e, topk), strict=True))
    require_sizes(sizes)
    pointers = (getattr(data, name).data_ptr() for name in LayerData._fields)
    return MoeLayerCall(*sizes.values(), *pointers, stream)
