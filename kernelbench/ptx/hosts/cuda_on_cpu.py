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

if TYPE_CHECKING:
    import torch

_MIB = 1 << 20
_WITHOUT_EFFECT = ("set_device", "set_stream", "synchronize", "empty_cache")


class LiveTensors:
    """The tensors that torch has made and that are still there.

    A kernel may reach memory by addresses that it finds in memory, so that all of it has to be
    known before a launch.
    """

    def __init__(self) -> None:
        # By id, since == of tensors is one for each element.
        self._known: dict[int, weakref.ref[torch.Tensor]] = {}

    def keep(self, made: Any) -> None:
        """Remember what a function of torch has returned."""
        import torch

        if isinstance(made, torch.Tensor):
            self._known[id(made)] = weakref.ref(made)
        elif isinstance(made, (list, tuple)):
            for each in made:
                self.keep(each)

    def storages(self, named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Every storage once, as bytes, by a name.

        Args:
            named: Tensors whose names are known, or what has a tensor's ``untyped_storage``; the
                names of the others are made up.
        """
        self._known = {key: ref for key, ref in self._known.items() if ref() is not None}
        known = [tensor for ref in self._known.values() if (tensor := ref()) is not None]
        others = [each for each in known if not each.is_meta and each.layout == _strided()]
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in [*named.items(), *(("memory", each) for each in others)]:
            storage = tensor.untyped_storage()
            address = storage.data_ptr() if storage.nbytes() else 0
            if address and address not in found:
                found[address] = (name, _bytes_of_storage(storage))
        shown: dict[str, torch.Tensor] = {}
        for name, view in found.values():
            number = 1 + sum(each.partition(" ")[0] == name for each in shown)
            shown[name if number == 1 else f"{name} {number}"] = view
        return shown


def _strided() -> torch.layout:
    import torch

    return torch.strided


def _bytes_of_storage(storage: torch.UntypedStorage) -> torch.Tensor:
    import torch

    return torch.empty(0, dtype=torch.uint8).set_(storage)


class _Stream:
    """A stream, on which everything is done at once."""

    cuda_stream = 0

    def __init__(self, *_args: Any, **_options: Any) -> None:
        self.device = "cuda"

    def synchronize(self) -> None:
        """Do nothing: work on the emulator is done when it returns."""

    wait_stream = wait_event = record_event = lambda self, *_: None


class _Event:
    """An event; the time between two says nothing, and is never 0."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        """Do nothing: all work before it is done."""

    wait = synchronize = record

    def query(self) -> bool:
        """True: all work before it is done."""
        return True

    def elapsed_time(self, _other: _Event) -> float:
        """No time: the emulator has none."""
        return 1.0


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
        "current_stream": _Stream,
        "default_stream": _Stream,
        "is_current_stream_capturing": lambda: False,
        "Stream": _Stream,
        "Event": _Event,
        "stream": lambda *_: contextlib.nullcontext(),
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
    unchanged = {torch.Tensor.cuda, torch.Tensor.pin_memory, torch.Tensor.record_stream}
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
            if func in unchanged:
                return args[0]
            if func == is_cuda:
                return True
            if func == device_of:
                return torch.device("cuda", 0)
            if func == get_device:
                return 0
            given = {name: _moved(each) for name, each in (kwargs or {}).items()}
            given.pop("pin_memory", None)
            if isinstance(given.get("device"), int):  # a GPU's number
                given["device"] = "cpu"
            made = func(*map(_moved, args), **given)
            live.keep(made)
            return made

    names = _names(arch, sms)
    before = {name: getattr(torch.cuda, name) for name in names}
    try:
        for name, value in names.items():
            setattr(torch.cuda, name, value)
        with OnCpu():
            yield live
    finally:
        for name, value in before.items():
            setattr(torch.cuda, name, value)


def _moved(argument: Any) -> Any:
    """``cpu`` for ``cuda``, ``cuda:0`` or such a device; everything else as it is."""
    import torch

    if isinstance(argument, torch.device):
        return torch.device("cpu") if argument.type == "cuda" else argument
    if isinstance(argument, str) and argument.partition(":")[0] == "cuda":
        return "cpu"
    return argument
