"""torch's streams and events for scripts on the emulator, which is told the order that they make.

Everything is done at once, in the order in which the script asks for it. What may come in another
order on a GPU follows from streams, events and what the host waits for, as of CUDA programs
(operations.cpp): launches and torch's own operators are operations of a stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernelbench.emulator.runtime import Runtime, runtime
from kernelbench.project.shipped import shipped_blocks

if TYPE_CHECKING:
    import torch

#: Operators by which the host learns a value, and so waits for it; or copies, that may be from it.
_COPIES = {"copy_", "_to_copy"}
_HOST_WAITS = {"_local_scalar_dense", "equal", "nonzero", "is_nonzero", "copy_"}
#: Bytes of the largest block that torch's allocator counts as small.
_SMALL = 1 << 20
#: No address: the stand-in for CUDA's runtime looks at nothing behind a stream's handle.
_HANDLES = 1 << 48


@dataclass
class StreamLine:
    """A stream: the number of its newest operation, and what the next one waits for beside it."""

    number: int
    name: str = "the default stream"
    newest: int = 0
    waits: list[int] = field(default_factory=list)
    launched: bool = False

    @property
    def handle(self) -> int:
        """What host code of CUDA is given for it."""
        return 0 if self.number == 1 else _HANDLES + self.number

    @property
    def point(self) -> list[int]:
        """Operations that are over when all that is on it now is."""
        return [*self.waits, *([self.newest] if self.newest else [])]


@dataclass
class DroppedBlock:
    """Memory of a tensor that is no more, while another stream may still access it.

    Attributes:
        line: Of the stream on which it was made, whose tensors may get it.
        number: By which the emulator knows it.
    """

    line: StreamLine
    size: int
    number: int


class Capture(Protocol):
    """What records operations of streams, :class:`kernelbench.ptx.hosts.torch_graphs.Recording`."""

    def has(self, line: StreamLine) -> bool: ...

    def waits(self, line: StreamLine, point: list[int]) -> None: ...

    def record(self, run: Callable[[], None], *, launched: bool) -> None: ...

    def held(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor | None]: ...

    def changes(self, tensors: list[torch.Tensor]) -> None: ...

    def made(self, tensors: list[torch.Tensor]) -> None: ...

    def operator(
        self, function: Any, args: Any, kwargs: Any, made: Any, reads: list[torch.Tensor],
        writes: list[torch.Tensor],
    ) -> None: ...  # fmt: skip


class StreamOrder:
    """The order of a script's operations; nobody is told of it unless it is checked."""

    def __init__(self) -> None:
        self._running: Runtime | None = None
        self._numbers = itertools.count(1)
        self._lines = [StreamLine(1)]
        self._fresh: set[int] = set()
        self._captured = itertools.count(-1, -1)
        self._current = self._lines[0]
        #: Told of the handle of each stream that becomes the current one.
        self.switched: Callable[[int], None] | None = None
        self.capture: Capture | None = None
        # By the address of a storage; what is not there may be on either side.
        self._on_gpu: dict[int, bool] = {}
        self.now_makes: bool | None = None
        self.pinned: set[int] = set()
        self.new_on_gpu = False
        #: What comes before the first stream is opened may be beside what is on it.
        self.opens_streams = False
        #: Of memory that holds nothing: NaN, as `cudaMalloc`'s here.
        self.new_bytes = 0xFF
        self._host: StreamLine | None = None
        # By the address of a storage of the GPU's: where it was made, what it takes over.
        self._made_on: dict[int, StreamLine] = {}
        self._taken_over: dict[int, int] = {}
        self._dropped: list[DroppedBlock] = []

    @property
    def current(self) -> StreamLine:
        """The current stream."""
        return self._current

    @current.setter
    def current(self, line: StreamLine) -> None:
        self._current = line
        if self.switched is not None:
            self.switched(line.handle)

    @contextlib.contextmanager
    def on(self, line: StreamLine) -> Iterator[None]:
        """Meanwhile a stream is the current one."""
        outer, self.current = self.current, line
        try:
            yield
        finally:
            self.current = outer

    @property
    def _in_order(self) -> bool:
        return len(self._lines) == 1 and not self.pinned and not self.opens_streams

    @property
    def is_checked(self) -> bool:
        """Whether the emulator is told of it."""
        return self._running is not None

    def place_of(self, tensor: torch.Tensor) -> bool | None:
        """Whether a tensor is on the GPU; None if nothing tells."""
        return self._on_gpu.get(memory_behind(tensor)[0])

    def _places(self, tensors: Iterable[torch.Tensor]) -> set[bool | None]:
        """Without those of numbers, which torch makes tensors without dimensions of."""
        found = ((self.place_of(each), each.dim()) for each in tensors)
        return {place for place, dimensions in found if dimensions or place is not None}

    def placed(self, tensor: torch.Tensor, on_gpu: bool | None) -> None:
        """New memory is on the GPU, or aside, or nothing tells."""
        address, size = memory_behind(tensor)
        self.pinned.discard(address)
        if on_gpu is None:
            self._on_gpu.pop(address, None)
        else:
            self._on_gpu[address] = on_gpu
        if on_gpu and size and self.capture is None and address not in self._made_on:
            self._made_on[address] = self.current
            self._take_over(address, size)

    def _take_over(self, address: int, size: int) -> None:
        """New memory may be that of a dropped tensor (PyTorch, "CUDA semantics": caching allocator,
        which has blocks of each stream, in multiples of 512 bytes, and small ones of their own).
        """
        fit = [
            each for each in self._dropped
            if each.line is self.current and each.size >= size
            and (each.size > _SMALL) == (size > _SMALL)
        ]  # fmt: skip
        if fit:
            block = min(fit, key=lambda each: each.size)
            self._dropped.remove(block)
            self._taken_over[address] = block.number

    def uses(self, tensors: Iterable[torch.Tensor]) -> None:
        """The operation that is done now writes to tensors, or may."""
        for each in tensors if self._taken_over else ():
            number = self._taken_over.pop(memory_behind(each)[0], 0)
            if number and self._running is not None:
                self._running.reused(number, "memory of a tensor dropped without record_stream")

    def recorded(self, tensor: torch.Tensor, stream: Any) -> None:
        """``record_stream``: memory is kept until what is on the stream is over."""
        address = memory_behind(tensor)[0]
        if getattr(stream, "line", None) is not self._made_on.get(address):
            self._made_on.pop(address, None)

    @contextlib.contextmanager
    def makes(self, on_gpu: bool | None) -> Iterator[None]:
        """Whether memory that torch asks for meanwhile is on the GPU; None if nothing tells."""
        before, self.now_makes = self.now_makes, on_gpu
        try:
            yield
        finally:
            self.now_makes = before

    def copy_waits(self, to: torch.Tensor, source: torch.Tensor, *, later: bool) -> bool:
        """Whether the host waits for a copy.

        Args:
            later: ``non_blocking``, which holds for pinned memory.
        """
        if len(places := self._places([to, source])) == 1 and None not in places:
            return False
        host = [each for each in (to, source) if self.place_of(each) is not True]
        return not later or any(memory_behind(each)[0] not in self.pinned for each in host)

    @property
    def records(self) -> Capture | None:
        """The capture that the current stream takes part in."""
        return self.capture if self.capture and self.capture.has(self.current) else None

    def captured_number(self) -> int:
        """Of an operation that is recorded: below 0, and of no other."""
        return next(self._captured)

    def require_no_capture(self) -> None:
        """Refuse, as CUDA does, what no capture can record.

        Raises:
            RuntimeError: While a stream is being captured.
        """
        if self.capture is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def wait(self, line: StreamLine, point: list[int]) -> None:
        """What comes on a stream waits for operations."""
        if self.capture is not None:
            self.capture.waits(line, point)
        line.waits += point

    @property
    def default(self) -> StreamLine:
        """The default stream."""
        return self._lines[0]

    def opened(self) -> StreamLine:
        """A new stream. torch's are in no order with the default one (cudaStreamNonBlocking)."""
        return self._added(f"stream {len(self._lines) - (self._host in self._lines)}")

    def _added(self, name: str) -> StreamLine:
        self._lines.append(StreamLine(len(self._lines) + 1, name))
        return self._lines[-1]

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """While it lasts, the emulator is told, and torch's operators are operations, too."""
        self._running = runtime(shipped_blocks())
        self._running.program(True)
        try:
            with _operators_on(self):
                yield
        finally:
            self._running.program(False)
            self._running = None

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """What torch does meanwhile is not the script's."""
        running, self._running = self._running, None
        try:
            yield
        finally:
            self._running = running

    @contextlib.contextmanager
    def operation(self, kind: str, name: str, *, programmatic: bool = False) -> Iterator[None]:
        """What is done meanwhile is the current stream's next operation.

        Args:
            kind: One of :data:`~kernelbench.emulator.runtime.OPERATIONS`.
            programmatic: Whether it may begin before the launch ahead of it has ended.
        """
        if self._running is None:
            yield
            return
        line, number = self.current, next(self._numbers)
        ahead = line.newest if programmatic and line.launched else 0
        after = [each for each in line.point if each != ahead]
        self._running.operation(number, line.number, kind, name, f" on {line.name}", ahead, after)
        line.newest, line.launched = number, kind == "launch"
        line.waits.clear()
        with self._running.during(number):
            yield

    def operator(
        self, name: str, reads: list[torch.Tensor], writes: list[torch.Tensor], caller: str = ""
    ) -> None:
        """An operator of torch was made on the current stream.

        As long as nothing can come out of order with what it has accessed, it counts in memory that
        held nothing at first.
        """
        name = f"torch's {name}{caller or calling_line()}"
        with self._on_host([*reads, *writes]), self.operation("transfer", name):
            if self._running is None:
                return
            for writing, tensors in enumerate((reads, writes)):
                for each in tensors:
                    memory = memory_behind(each)
                    if writing:
                        self.uses([each])
                    if not memory[1] or (self._in_order and memory[0] not in self._fresh):
                        continue
                    if _dense(each):
                        part = each.data_ptr(), each.numel() * each.itemsize
                        self._running.touched(memory, "a tensor", part, writing=bool(writing))
                    elif writing:
                        self.freed(*memory)

    @contextlib.contextmanager
    def _on_host(self, tensors: list[torch.Tensor]) -> Iterator[None]:
        """What is asked for meanwhile is done by the host if all of the tensors are there.

        As long as nothing can come out of order, it may count as the current stream's.
        """
        if self._in_order or self._places(tensors) != {False}:
            yield
            return
        self._host = self._host or self._added("the host")
        with self.on(self._host):
            yield
        self.host_waits(self._host.point)

    def made_empty(self, tensor: torch.Tensor) -> None:
        """A tensor was made that holds nothing."""
        address, size = memory_behind(tensor)
        if self._running is not None and size:
            ctypes.memset(address, self.new_bytes, size)
            self._fresh.add(address)
            self._running.fresh(address)

    def report(self) -> dict[str, Any]:
        """What was found where no launch was, as :meth:`Runtime.report` has it."""
        return {"findings": []} if self._running is None else self._running.program_report()

    def dropped(self, address: int, size: int) -> None:
        """The last tensor of some memory is no more."""
        line = self._made_on.pop(address, None)
        self._taken_over.pop(address, None)
        self._on_gpu.pop(address, None)
        if self._running is not None and line is not None and len(self._lines) > 1:
            number = self._running.dropped(address, line.number)
            if number:
                self._dropped.append(DroppedBlock(line, -(-size // 512) * 512, number))
        self.freed(address, size)

    def freed(self, address: int, size: int) -> None:
        """Memory of a tensor is there no longer, or nothing is known of it."""
        self._fresh.discard(address)
        if self._running is not None:
            self._running.freed(address, size, "a tensor")

    def host_waits(self, point: list[int]) -> None:
        """The host has waited for these operations."""
        self.require_no_capture()
        if self._running is not None:
            for each in point:
                self._running.host_knows(each)

    def host_waits_for_current(self) -> None:
        """The host has waited for what is on the current stream."""
        self.host_waits(self.current.point)

    def host_waits_for_all(self) -> None:
        """The host has waited for everything."""
        self.host_waits([each for line in self._lines for each in line.point])


def calling_line() -> str:
    """Which line asks for an operator: the innermost of no package, nor of this one."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    return f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _is_installed(file: str) -> bool:
    return "site-packages" in file or file.startswith(("<", str(Path(__file__).parents[2])))


def tensors_in(given: Any) -> list[torch.Tensor]:
    """A tensor, or all in a list of what else there may be."""
    import torch

    if isinstance(given, (list, tuple)):
        return [tensor for each in given for tensor in tensors_in(each)]
    return [given] if isinstance(given, torch.Tensor) else []


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Its storage; None for one that has none here: meta, fake, sparse."""
    try:
        storage = tensor.untyped_storage()
    except RuntimeError:
        return None
    return storage if storage.device.type != "meta" else None


def memory_behind(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and bytes of its storage; no bytes for one that has none."""
    storage = storage_of(tensor)
    return (0, 0) if storage is None else (storage.data_ptr(), storage.nbytes())


def _dense(tensor: torch.Tensor) -> bool:
    """Whether it is one range of memory."""
    return tensor.numel() > 0 and tensor.is_contiguous()


class _OnOrder:
    """Of streams and events: whose order they make."""

    order: StreamOrder


class ScriptStream(_OnOrder):
    """``torch.cuda.Stream``."""

    def __init__(self, *_args: Any, line: StreamLine | None = None, **_options: Any) -> None:
        self.device = "cuda"
        self.line = line or self.order.opened()
        self._outer: list[StreamLine] = []

    @property
    def cuda_stream(self) -> int:
        """Its handle."""
        return self.line.handle

    def synchronize(self) -> None:
        """Have the host wait for what is on it."""
        self.order.host_waits(self.line.point)

    def query(self) -> bool:
        """True: all is done when it is asked for."""
        self.synchronize()
        return True

    def wait_stream(self, other: ScriptStream) -> None:
        """Have what comes wait for what is on another one."""
        self.order.wait(self.line, other.line.point)

    def wait_event(self, event: ScriptEvent) -> None:
        """Have what comes wait for an event."""
        self.order.wait(self.line, event.point)

    def record_event(self, event: ScriptEvent | None = None) -> ScriptEvent:
        """An event that is over once all that is on it is."""
        made = event or type("Event", (ScriptEvent,), {"order": self.order})()
        made.record(self)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScriptStream) and other.line is self.line

    def __hash__(self) -> int:
        return id(self.line)

    def __enter__(self) -> ScriptStream:
        self._outer.append(self.order.current)
        self.order.current = self.line
        return self

    def __exit__(self, *_: object) -> None:
        self.order.current = self._outer.pop()


class ScriptEvent(_OnOrder):
    """``torch.cuda.Event``; the time between two says nothing, and is never 0."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        self.point: list[int] = []

    def record(self, stream: ScriptStream | None = None) -> None:
        """Stand for what is on a stream, or on the current one, now."""
        self.point = (self.order.current if stream is None else stream.line).point

    def wait(self, stream: ScriptStream | None = None) -> None:
        """Have what comes on a stream, or on the current one, wait for it."""
        self.order.wait(self.order.current if stream is None else stream.line, self.point)

    def synchronize(self) -> None:
        """Have the host wait for it."""
        self.order.host_waits(self.point)

    def query(self) -> bool:
        """True: all is done when it is asked for."""
        self.synchronize()
        return True

    def elapsed_time(self, _other: ScriptEvent) -> float:
        """No time: the emulator has none."""
        return 1.0


def stream_names(order: StreamOrder) -> dict[str, Any]:
    """What ``torch.cuda`` has of streams instead."""
    stream = type("Stream", (ScriptStream,), {"order": order})

    def set_stream(to: ScriptStream | None) -> None:
        order.current = order.current if to is None else to.line

    return {
        "Stream": stream,
        "Event": type("Event", (ScriptEvent,), {"order": order}),
        "current_stream": lambda *_: stream(line=order.current),
        "default_stream": lambda *_: stream(line=order.default),
        "stream": lambda to: contextlib.nullcontext() if to is None else to,
        "set_stream": set_stream,
        "synchronize": lambda *_: order.host_waits_for_all(),
    }


@contextlib.contextmanager
def _operators_on(order: StreamOrder) -> Iterator[None]:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Noted(TorchDispatchMode):
        """Every operator comes by here."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            schema, name = func._schema, func._schema.name.rpartition("::")[2]
            reads: list[torch.Tensor] = []
            writes: list[torch.Tensor] = []
            for at, each in enumerate(schema.arguments):
                given = tensors_in(args[at] if at < len(args) else kwargs.get(each.name))
                if each.alias_info is None:
                    reads += given
                elif each.alias_info.is_write:
                    writes += given
            capture = order.records
            if capture is not None:
                capture.changes(writes)
            made = func(*args, **kwargs)
            returned = made if len(schema.returns) > 1 else (made,)
            for result, each in zip(returned, schema.returns, strict=False):
                new = tensors_in(result) if each.alias_info is None else []
                for tensor in new:
                    order.placed(tensor, order.now_makes)
                if name.startswith(("empty", "new_empty")):
                    if capture is None:
                        for tensor in new:
                            order.made_empty(tensor)
                    reads = []  # of those that it is like, the shape only
                else:
                    writes += new
                if capture is not None:
                    capture.made(new)
            if capture is not None:
                if name in _HOST_WAITS - _COPIES:
                    order.require_no_capture()
                if reads or writes:
                    capture.operator(func, args, kwargs, made, reads, writes)
                return made
            if reads or writes:
                order.operator(name, reads, writes)
            later = bool(kwargs.get("non_blocking")) or (name == "copy_" and args[2:3] == (True,))
            waits = name == "_to_copy" and kwargs.get("device") and not later
            if name == "copy_":
                waits = order.copy_waits(args[0], args[1], later=later)
            elif name in _HOST_WAITS:
                waits = any(order.place_of(each) is not False for each in reads)
            if waits:
                order.host_waits_for_current()
            return made

    with Noted():  # type: ignore[no-untyped-call]
        yield
