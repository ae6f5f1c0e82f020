"""torch without a GPU, for programs that are written for one: ``cuda`` means the CPU.

Only while :func:`cuda_on_cpu` lasts. Functions of torch that name the device get the CPU, and
``torch.cuda`` answers as a GPU of the emulated arch would.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelbench.ptx.arguments import memory_at
from kernelbench.ptx.hosts.torch_graphs import graph_names
from kernelbench.ptx.hosts.torch_streams import (
    StreamOrder,
    memory_behind,
    storage_of,
    stream_names,
    tensors_in,
)

if TYPE_CHECKING:
    import torch

_MIB = 1 << 20
_WITHOUT_EFFECT = ("set_device", "empty_cache")


class LiveTensors:
    """The tensors that torch has made and that are still there.

    A kernel may reach memory by addresses that it finds in memory, so that all of it has to be
    known before a launch.

    Attributes:
        order: What order torch's streams and events make.
    """

    def __init__(self) -> None:
        self.order = StreamOrder()
        # By address, where torch would find the storage again: == of tensors is for each element.
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def keep(self, made: Any, on_gpu: bool | None = None, *, pinned: bool = False) -> None:
        """Remember what a function of torch has returned.

        Args:
            on_gpu: Whether new memory of it is on the GPU; None if nothing tells.
            pinned: Whether it is the host's, and copies need not wait for it.
        """
        for tensor in tensors_in(made):
            storage = storage_of(tensor)
            if storage is None:
                continue
            if self._keep(storage):
                self.order.placed(tensor, on_gpu)
            if pinned:
                self.order.pinned.add(storage.data_ptr())

    def _keep(self, storage: torch.UntypedStorage) -> bool:
        """Whether it is new."""
        address, size = storage.data_ptr(), storage.nbytes()
        known = self._known.get(address)
        if not size or (known is not None and known() is storage):
            return False

        def gone(of: weakref.ref[torch.UntypedStorage]) -> None:
            if self._known.get(address) is of:
                del self._known[address]
                self.order.dropped(address, size)

        self._known[address] = weakref.ref(storage, gone)
        return True

    def known(self) -> dict[int, weakref.ref[torch.UntypedStorage]]:
        """The storages that are there, by address."""
        return dict(self._known)

    def storages(self, named: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Every storage once, as bytes, by a name.

        Args:
            named: Tensors whose names are known, or what has a tensor's ``untyped_storage``; the
                names of the others are made up.
        """
        every = [(name, each.untyped_storage()) for name, each in named.items()]
        for _, storage in every:
            self._keep(storage)
        every += [("memory", each) for ref in self._known.values() if (each := ref()) is not None]
        found: dict[int, tuple[str, Any]] = {}
        for name, storage in every:
            address = storage.data_ptr() if storage.nbytes() else 0
            if address and address not in found:
                found[address] = (name, memory_at(address, storage.nbytes()))
        shown: dict[str, Any] = {}
        for name, view in found.values():
            number = 1 + sum(each.partition(" ")[0] == name for each in shown)
            shown[name if number == 1 else f"{name} {number}"] = view
        return shown


def _names(arch: int, sms: int) -> dict[str, Any]:
    """What ``torch.cuda`` has instead."""
    major, minor = divmod(arch, 10)
    name = f"emulated sm_{arch}"
    properties = types.SimpleNamespace(
        name=name, major=major, minor=minor, multi_processor_count=sms, warp_size=32,
        total_memory=1 << 34, L2_cache_size=50 * _MIB, max_threads_per_multi_processor=2048,
    )  # fmt: skip

    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: (major, minor),
        "get_device_name": lambda *_: name,
        "get_device_properties": lambda *_: properties,
        "device": lambda *_: contextlib.nullcontext(),
        # A function of its own for each: torch's compiler has a table of them.
        **{name: lambda *_, **__: None for name in _WITHOUT_EFFECT},
    }


@contextlib.contextmanager
def cuda_on_cpu(arch: int, sms: int) -> Iterator[LiveTensors]:
    """While it lasts, torch's device ``cuda`` is the CPU.

    Args:
        arch: 90 for sm_90, and so on.
        sms: What programs are told of the number of SMs.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    live = LiveTensors()
    reads_device = {torch.device, torch._C._nn._parse_to}
    moves = {torch.Tensor.cuda, torch.Tensor.cpu, torch.Tensor.to}
    order = live.order
    host_reads = {torch.Tensor.cpu, torch.Tensor.to, torch.Tensor.numpy, torch.Tensor.tolist}
    is_cuda = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
    device_of = torch.Tensor.device.__get__
    get_device = torch.Tensor.get_device

    class OnCpu(TorchFunctionMode):
        """Every call of torch comes by here."""

        def __torch_function__(
            self,
            func: Any,
            types: Sequence[type],
            args: tuple[Any, ...] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            if func == torch.Tensor.pin_memory:
                live.keep(args[0], on_gpu=False, pinned=True)
                return args[0]
            if func in reads_device:
                return func(*args, **(kwargs or {}))
            if func == is_cuda:
                return True
            if func == device_of:
                return torch.device("cuda", 0)
            if func == get_device:
                return 0
            target = _target(func, args, kwargs or {}, order)
            given = {name: _moved(each) for name, each in (kwargs or {}).items()}
            pinned = bool(given.pop("pin_memory", False))
            later = bool(given.get("non_blocking"))
            if isinstance(given.get("device"), int):  # a GPU's number
                given["device"] = "cpu"
            waits = (
                func in host_reads
                and not later
                and order.place_of(args[0]) is not False
                and not (order.records and func == torch.Tensor.to)
            )
            if waits:
                order.host_waits_for_current()
            if func == torch.Tensor.numpy:  # what is written there from now on is not seen
                order.freed(*memory_behind(args[0]))
            with order.makes(target):
                made = args[0] if func == torch.Tensor.cuda else func(*map(_moved, args), **given)
            copied = func in moves and target is not None and _is_copy(order, args[0], target)
            if copied and memory_behind(made) == memory_behind(args[0]):
                with order.makes(target):
                    made = made.clone()
                if waits:
                    order.host_waits_for_current()
            live.keep(made, target, pinned=pinned or (copied and later and not target))
            return made

    class OnCpuGenerator(torch.Generator):
        """Of whatever device is named."""

        def __new__(cls, *_: Any, **__: Any) -> OnCpuGenerator:
            return super().__new__(cls)

    def set_default_device(device: Any) -> None:
        order.new_on_gpu = _device_kind(device) == "cuda" or isinstance(device, int)

    def record_stream(tensor: torch.Tensor, stream: Any) -> None:
        order.recorded(tensor, stream)

    streams = stream_names(live.order)
    graphs = graph_names(live.order, streams["Stream"], live.known)
    names = _names(arch, sms) | streams | graphs
    before = {name: getattr(torch.cuda, name) for name in names}
    own = {"Generator": OnCpuGenerator, "set_default_device": set_default_device}
    torchs = {name: getattr(torch, name) for name in own}
    try:
        for name, value in own.items():
            setattr(torch, name, value)
        for name, value in names.items():
            setattr(torch.cuda, name, value)
        # torch's own takes its own streams only.
        torch.Tensor.record_stream = record_stream  # type: ignore[method-assign,assignment]
        with OnCpu():
            yield live
    finally:
        del torch.Tensor.record_stream
        for name, value in torchs.items():
            setattr(torch, name, value)
        for name, value in before.items():
            setattr(torch.cuda, name, value)


def _target(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], order: StreamOrder
) -> bool | None:
    """Whether what a function of torch returns is on the GPU; None if nothing tells."""
    import torch

    if func in (torch.Tensor.cuda, torch.Tensor.cpu):
        return bool(func == torch.Tensor.cuda)
    for each in (*args, *kwargs.values()):
        kind = _device_kind(each)
        if kind in ("cuda", "cpu"):
            return kind == "cuda"
    if isinstance(kwargs.get("device"), int):
        return True
    if func == torch.Tensor.to and len(args) > 1 and isinstance(args[1], torch.Tensor):
        return order.place_of(args[1])
    places = {order.place_of(each) for each in tensors_in((*args, *kwargs.values()))}
    if not places and func not in (torch.from_numpy, torch.frombuffer):
        return order.new_on_gpu
    return True if True in places else None if None in places else False


def _is_copy(order: StreamOrder, source: Any, to_gpu: bool) -> bool:
    """Whether a tensor is moved to where it is not: to the GPU only if it is known to be aside."""
    place = order.place_of(source)
    return place is False if to_gpu else place is not False


def _moved(argument: Any) -> Any:
    """``cpu`` for ``cuda``, ``cuda:0`` or such a device; everything else as it is."""
    import torch

    if _device_kind(argument) != "cuda":
        return argument
    return torch.device("cpu") if isinstance(argument, torch.device) else "cpu"


def _device_kind(argument: Any) -> str:
    """``cuda`` for a device, or the name of one; of another word its beginning; else nothing."""
    import torch

    return str(argument).partition(":")[0] if isinstance(argument, (torch.device, str)) else ""
