"""Calls of compiled fused MoE steps: from :class:`MoeData` to ``kb::FusedMoeCall``."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from kernelbench.problems.fused_moe.fp8 import BLOCK
from kernelbench.problems.fused_moe.shape import MoeData
from kernelbench.project.arena import describe_tensor

if TYPE_CHECKING:
    from kernelbench.kinds.loaded_step import Buffer, LoadedStep
    from kernelbench.project.problem import Kernel

_SIZES = ("m", "n", "k", "e", "topk")
_TENSORS = ("hidden", "gating", "weights", "weight_scales", "output")
_INT32_MAX = 2**31 - 1
_ADDRESS = torch.Tensor.data_ptr


class FusedMoeCall(ctypes.Structure):
    """``kb::FusedMoeCall``."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in _SIZES),
        ("renormalize", ctypes.c_int32),
        ("softcap", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in _TENSORS),
        ("stream", ctypes.c_void_p),
    )


def bind_moe(entry: LoadedStep, device: str) -> Kernel:
    """``custom_kernel`` of a compiled step: it takes a :class:`MoeData` and returns its output."""
    return bind_tuple(entry, device, _TENSORS, make_call)


def bind_tuple(
    entry: LoadedStep, device: str, tensors: tuple[str, ...], make: Callable[..., Any]
) -> Kernel:
    """A step's callable on a named tuple: it returns what is ``output`` in it.

    The callable raises ValueError, before any launch, for tensors that do not fit each other or
    are not dense tensors on ``device``.

    Args:
        tensors: The first fields, those that are tensors.
        make: The call's structure, of the tuple, the device and the stream.
    """
    where = torch.device(device)
    stream, run = entry.stream_on(where), entry.call
    known = KnownCalls(len(tensors))

    def kernel(data: Any) -> Any:
        at = stream()
        call = known.find(data, at)
        if call is None:
            call = known.keep(make(data, where, at), data, at)
        run(call, _named(data, tensors) if where.type == "cpu" else ())
        return data.output

    return kernel


def _named(data: Any, tensors: tuple[str, ...]) -> Iterator[Buffer]:
    """What a kernel may touch, for the emulator."""
    return ((name, getattr(data, name), name == "output") for name in tensors)


class KnownCalls:
    """The structures of calls that were made before: to check one takes longer than to launch it.

    One is forgotten with the first of its tensors, so that another's identity is never taken for
    it, and is not used once a tensor's memory is elsewhere.

    Args:
        tensors: How many values of a call are tensors, its first ones.
    """

    def __init__(self, tensors: int) -> None:
        self._tensors = tensors
        self._known: dict[Any, tuple[Any, list[int], tuple[Any, ...]]] = {}

    def find(self, data: tuple[Any, ...], stream: int) -> Any:
        """The structure of an earlier call with these values; None if there is none."""
        found = self._known.get((*map(id, data), stream))
        if found is not None and found[1] == [*map(_ADDRESS, data[: self._tensors])]:
            return found[0]
        return None

    def keep(self, call: Any, data: tuple[Any, ...], stream: int) -> Any:
        """Keep, and return, the structure of a call that was checked."""
        key = (*map(id, data), stream)

        def forget(_: object, known: Any = self._known) -> None:
            known.pop(key, None)

        tensors, others = data[: self._tensors], data[self._tensors :]
        # The others are kept themselves: an identity that counts is nobody else's.
        kept = (*others, *(weakref.ref(tensor, forget) for tensor in tensors))
        self._known[key] = call, [*map(_ADDRESS, tensors)], kept
        return call


def make_call(data: MoeData, device: torch.device, stream: int) -> FusedMoeCall:
    """The call's structure; it points into the tensors of ``data``, which must outlive it.

    Raises:
        ValueError: With one line that names the argument and what it should be.
    """
    m, k = extents(data.hidden, "hidden", 2)
    e, n, _ = extents(data.weights, "weights", 3)
    for name, dtype, shape in (
        ("hidden", torch.bfloat16, (m, k)),
        ("gating", torch.float32, (m, e)),
        ("weights", torch.float8_e4m3fn, (e, n, k)),
        ("weight_scales", torch.float32, (e, n // BLOCK, k // BLOCK)),
        ("output", torch.float32, (m, n)),
    ):
        require_dense(name, getattr(data, name), dtype, shape, device)
    if type(data.topk) is not int:
        raise ValueError(f"topk: expected an integer, found {describe_tensor(data.topk)}")
    if type(data.softcap) not in (int, float):
        raise ValueError(f"softcap: expected a number, found {describe_tensor(data.softcap)}")
    sizes = dict(zip(_SIZES, (m, n, k, e, data.topk), strict=True))
    require_sizes(sizes)
    pointers = (getattr(data, name).data_ptr() for name in _TENSORS)
    return FusedMoeCall(*sizes.values(), bool(data.renormalize), data.softcap, *pointers, stream)


def require_dense(
    name: str, tensor: Any, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> None:
    """Refuse what is no dense tensor of this dtype and shape on ``device``.

    Raises:
        ValueError: With one line that names the argument and what it should be.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name}: expected a tensor, found {describe_tensor(tensor)}")
    if (
        tensor.dtype is not dtype
        or tensor.shape != shape
        or tensor.device != device
        or not tensor.is_contiguous()
    ):
        wanted = f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"
        raise ValueError(
            f"{name}: expected a dense {wanted}, "
            f"found {describe_tensor(tensor)} with strides {tensor.stride()}"
        )


def require_sizes(sizes: dict[str, int]) -> None:
    """Refuse sizes that a call's structure cannot hold: ValueError with the first of them."""
    for name, value in sizes.items():
        if not 0 < value <= _INT32_MAX:
            raise ValueError(f"{name} = {value}: expected a positive 32-bit integer")


def extents(tensor: Any, name: str, dimensions: int) -> torch.Size:
    """The extents of a tensor of so many dimensions; ValueError for what is none."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != dimensions:
        raise ValueError(
            f"{name}: expected a tensor of {dimensions} dimensions, found {describe_tensor(tensor)}"
        )
    return tensor.shape
