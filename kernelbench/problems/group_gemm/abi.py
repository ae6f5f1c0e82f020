"""Calls of compiled group GEMM steps: from the problem's tensors to ``kb::GroupGemmCall``.

How a step's call is put together is part of the lineage's story, ``[config] marshal``:

``tensors``
    Small torch tensors of pointers and sizes are built in every call, and the step reads them.
``tuples``
    The tensors themselves go to a shared extension as tuples, which takes them apart in C++
    (where calls are timed; elsewhere like ``direct``, which needs no headers of Python).
``items``
    Like ``tuples``, through Python's own interface instead of pybind11's containers, which take
    longer than the rest of a short call.
``direct`` (the default)
    Python takes the pointers, writes them and the sizes into C arrays, and calls the step through
    ctypes: no tensor reaches C++.
"""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from kernelbench.base.errors import UsageError
from kernelbench.problems.group_gemm.nvfp4 import ATOM_ROWS, ceil_div
from kernelbench.problems.group_gemm.tuples import EXTENDED, load_tuples
from kernelbench.project.arena import describe_tensor
from kernelbench.project.model import Step

if TYPE_CHECKING:
    from kernelbench.kinds.loaded_step import Buffer, LoadedStep
    from kernelbench.project.problem import Kernel

MARSHALS = ("direct", "tensors", "tuples", "items")
#: ``kb::kMostGroups`` of hopper/common: of a call. What a step takes is in its ``[limits]``.
MAX_GROUPS = 64
_POINTERS = ("a", "b", "c", "sfa", "sfb")

_Data = tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]


class GroupGemmCall(ctypes.Structure):
    """``kb::GroupGemmCall``."""

    _fields_ = (
        ("group_count", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_void_p) for name in ("m", "n", "k")),
        ("stream", ctypes.c_void_p),
    )


def marshal_of(step: Step) -> str:
    """How a step's call is put together; UsageError if that is none of :data:`MARSHALS`."""
    marshal = str(step.config.get("marshal", "direct"))
    if marshal not in MARSHALS:
        raise UsageError(
            f"{step.path / 'step.toml'}: config.marshal is {marshal!r}",
            f"choose from {', '.join(MARSHALS)}",
        )
    return marshal


def bind_group_gemm(entry: LoadedStep, step: Step, device: str) -> Kernel:
    """``custom_kernel`` of a compiled step.

    Raises:
        UsageError: If the step's ``marshal`` is unknown.
    """
    marshal, groups = marshal_of(step), str(most_groups(step))
    if marshal in EXTENDED and entry.timed:
        return bind_marshal(entry, device, marshal, groups, load_tuples())
    return bind_marshal(entry, device, marshal, groups)


def most_groups(step: Step) -> int:
    """How many groups a step takes, by its ``[limits]``."""
    return int(step.limits.get("max_groups", MAX_GROUPS))


def bind_marshal(
    entry: LoadedStep, device: str, marshal: str, groups: str, extension: Any = None
) -> Kernel:
    """``custom_kernel`` of a compiled step; an exported step's, too.

    Args:
        groups: See :func:`most_groups`.
        extension: What takes tuples apart; without, ``tuples`` and ``items`` are like ``direct``.
    """
    where = torch.device(device)
    stream = entry.stream_on(where)
    tensors_fit = _Known(where, int(groups))
    make = _tensors if marshal == "tensors" else _direct

    def kernel(data: _Data) -> list[torch.Tensor]:
        tensors_fit.require(data)
        # `kept` is what the call points into: it must outlive it.
        call, kept = make(data, stream())
        entry.call(call, _memory(data))
        del kept
        return [c for _, _, c in data[0]]

    if extension is None:
        return kernel
    run = entry.address_of("kb_run")
    call = extension.call
    if marshal == "items":
        call = extension.call_items
        tensors_fit.key_of = extension.key_of

    def through_extension(data: _Data) -> list[torch.Tensor]:
        tensors_fit.require(data)
        abc, _, blocked, sizes = data
        status, message = call(run, abc, blocked, sizes, stream())
        if status:
            entry.check(status, message)
        return [c for _, _, c in abc]

    return through_extension


def _direct(data: _Data, stream: int) -> tuple[GroupGemmCall, Any]:
    abc, _, blocked, sizes = data
    count = len(abc)
    pointers = array("Q", [group[i].data_ptr() for i in range(3) for group in abc])
    pointers.extend([group[i].data_ptr() for i in range(2) for group in blocked])
    extents = array("i", [size[i] for i in range(3) for size in sizes])
    at, size_at = pointers.buffer_info()[0], extents.buffer_info()[0]
    call = GroupGemmCall(
        count,
        *range(at, at + 5 * 8 * count, 8 * count),
        *range(size_at, size_at + 3 * 4 * count, 4 * count),
        stream,
    )
    return call, (pointers, extents)


def _tensors(data: _Data, stream: int) -> tuple[GroupGemmCall, Any]:
    abc, _, blocked, sizes = data
    arrays = (
        *(torch.tensor([g[i].data_ptr() for g in abc], dtype=torch.uint64) for i in range(3)),
        *(torch.tensor([g[i].data_ptr() for g in blocked], dtype=torch.uint64) for i in range(2)),
        *(torch.tensor([size[i] for size in sizes], dtype=torch.int32) for i in range(3)),
    )
    return GroupGemmCall(len(abc), *(array.data_ptr() for array in arrays), stream), arrays


def _memory(data: _Data) -> Iterator[Buffer]:
    """Which memory the kernel may touch; scales with the padding of their last atom."""
    abc, _, blocked, _ = data
    for index, ((a, b, c), (sfa, sfb)) in enumerate(zip(abc, blocked, strict=True)):
        for name, tensor in (("A", a), ("B", b), ("C", c), ("SFA", sfa), ("SFB", sfb)):
            yield f"{name}[{index}]", tensor, name == "C"


class _Known:
    """Refuses tensors that do not fit, looking at each set of them once.

    A look costs more than a fast step's whole call. What is known of a set is forgotten with the
    first of its tensors, so that another one's identity is never taken for it.
    """

    def __init__(self, device: torch.device, max_groups: int = MAX_GROUPS) -> None:
        self._device = device
        self._max_groups = max_groups
        self._known: dict[Any, list[weakref.ref[torch.Tensor]]] = {}
        self.key_of: Callable[..., Any] = _key_of

    def require(self, data: _Data) -> None:
        """See :func:`_require`."""
        abc, _, blocked, sizes = data
        key = self.key_of(abc, blocked, sizes)
        if key in self._known:
            return
        _require(data, self._device, self._max_groups)

        def forget(_: object, known: Any = self._known, key: Any = key) -> None:
            known.pop(key, None)

        self._known[key] = [weakref.ref(tensor, forget) for tensor in chain(*abc, *blocked)]


def _key_of(abc: Sequence[Any], blocked: Sequence[Any], sizes: Sequence[Any]) -> Any:
    return (*map(id, chain(*abc, *blocked)), len(abc), *chain(*sizes))


def _require(data: _Data, device: torch.device, max_groups: int) -> None:
    """Refuse, with ValueError, tensors that a kernel would read or write out of bounds."""
    abc, _, blocked, sizes = data
    if not len(abc) == len(blocked) == len(sizes):
        raise ValueError(
            f"{len(abc)} groups of tensors, {len(blocked)} of scales and {len(sizes)} of sizes"
        )
    if not 0 < len(abc) <= max_groups:
        raise NotImplementedError(f"takes 1 to {max_groups} groups, not {len(abc)}")
    for index, ((a, b, c), (sfa, sfb), (m, n, k, _)) in enumerate(
        zip(abc, blocked, sizes, strict=True)
    ):
        for name, tensor, dtype, shape in (
            ("A", a, torch.float4_e2m1fn_x2, (m, k // 2, 1)),
            ("B", b, torch.float4_e2m1fn_x2, (n, k // 2, 1)),
            ("C", c, torch.float16, (m, n, 1)),
            ("SFA", sfa, torch.float8_e4m3fn, (32, 4, ceil_div(m, ATOM_ROWS), 4, k // 64, 1)),
            ("SFB", sfb, torch.float8_e4m3fn, (32, 4, ceil_div(n, ATOM_ROWS), 4, k // 64, 1)),
        ):
            if (
                tensor.dtype is not dtype
                or tensor.shape != shape
                or tensor.device != device
                or not _in_order(tensor)
            ):
                wanted = f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"
                raise ValueError(
                    f"{name} of group {index}: expected a dense {wanted}, "
                    f"found {describe_tensor(tensor)} with strides {tensor.stride()}"
                )


def _in_order(tensor: torch.Tensor) -> bool:
    """Whether it lies in memory as the kernels read it."""
    if not tensor.numel():
        return True
    if tensor.dim() == 3:
        return tensor.stride()[:2] == (tensor.shape[1], 1)
    # [32, 4, rows, 4, k, 1] over memory of [rows, k, 32, 4, 4].
    k = tensor.shape[4]
    return tensor.stride()[:5] == (16, 4, 512 * k, 1, 512)
