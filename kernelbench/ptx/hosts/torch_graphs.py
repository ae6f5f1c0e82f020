"""torch's CUDA graphs for scripts on the emulator: what a capture records, and its replays.

A capture does not run what is asked for meanwhile: its tensors hold nothing before a replay, and
what it changes in place is as before. torch's operators run all the same, since what they return
decides what comes next, and the memory that they have changed is put back.
"""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import UsageError
from kernelbench.ptx.hosts.torch_streams import (
    ScriptStream,
    StreamLine,
    StreamOrder,
    calling_line,
    storage_of,
    tensors_in,
)

if TYPE_CHECKING:
    import torch


@dataclass
class _Node:
    """An operation of a graph.

    Attributes:
        number: Below 0, as of no operation that has run.
        line: The number of the stream that it was asked for on.
        after: Numbers of those that it comes after.
        run: Does it, on the current stream.
    """

    number: int
    line: int
    after: list[int]
    run: Callable[[], None]


class Recording:
    """What is recorded between the begin and the end of a capture.

    Args:
        order: The script's, whose current stream begins it.
        known: The storages that were there before, by address.
    """

    def __init__(
        self, order: StreamOrder, known: dict[int, weakref.ref[torch.UntypedStorage]]
    ) -> None:
        self.nodes: list[_Node] = []
        self.main = order.current
        self.root = order.captured_number()
        self._order = order
        self._known = known
        self._made: list[torch.Tensor] = []
        self._changed: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._outside: dict[int, tuple[StreamLine, int, list[int], bool]] = {}
        self._join(self.main, self.root)

    def has(self, line: StreamLine) -> bool:
        """Whether what a stream is asked for is recorded."""
        return line.number in self._outside

    def _join(self, line: StreamLine, newest: int) -> None:
        self._outside[line.number] = (line, line.newest, line.waits, line.launched)
        line.newest, line.waits, line.launched = newest, [], False

    def waits(self, line: StreamLine, point: list[int]) -> None:
        """A stream waits for ``point``: it takes part from now on if that is recorded.

        Raises:
            RuntimeError: If it takes part, and that is not recorded.
        """
        if self.has(line) and any(each > 0 for each in point):
            raise RuntimeError(
                "CUDA error: dependency created on uncaptured work in another stream"
            )
        if not self.has(line) and any(each < 0 for each in point):
            self._join(line, 0)

    def record(self, run: Callable[[], None], *, launched: bool) -> None:
        """The current stream is asked for an operation."""
        line = self._order.current
        number = self._order.captured_number()
        self.nodes.append(_Node(number, line.number, line.point, run))
        line.newest, line.launched = number, launched
        line.waits.clear()

    def held(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor | None]:
        """What gives a tensor later: None if it was there before the capture and is not now."""
        import torch

        storage = storage_of(tensor)
        if storage is None:
            return lambda: tensor
        known = self._known.get(storage.data_ptr())
        if known is None or known() is not storage:
            return lambda: tensor
        there = weakref.ref(storage)
        place = tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride())
        dtype = tensor.dtype

        def again() -> torch.Tensor | None:
            now = there()
            with self._order.aside():
                return None if now is None else torch.empty(0, dtype=dtype).set_(now, *place)

        return again

    def operator(
        self, function: Any, args: Any, kwargs: Any, made: Any, reads: list[torch.Tensor],
        writes: list[torch.Tensor],
    ) -> None:  # fmt: skip
        """The current stream is asked for an operator of torch.

        Args:
            made: What it has returned for ``args`` and ``kwargs``: where a replay puts its results.
        """
        import torch
        from torch.utils._pytree import tree_leaves, tree_map_only

        order, caller = self._order, calling_line()
        name = function._schema.name.rpartition("::")[2]
        given = tree_map_only(torch.Tensor, self.held, (args, kwargs, reads, writes))
        kept = tensors_in(made)
        new = {id(each) for each in kept} - {id(each) for each in tree_leaves((args, kwargs))}

        def tensor(held: Callable[[], torch.Tensor | None]) -> torch.Tensor:
            found = held()
            if found is None:
                raise RuntimeError(f"a graph's {name}{caller} uses a tensor that is gone")
            return found

        def run() -> None:
            again = tree_map_only(types.FunctionType, tensor, given)
            with torch.no_grad(), order.aside():
                results = tensors_in(function(*again[0], **again[1]))
                for old, result in zip(kept, results, strict=True):
                    if id(old) in new:
                        old.copy_(result)
            order.operator(name, again[2], again[3], caller)

        self.record(run, launched=False)

    def changes(self, tensors: list[torch.Tensor]) -> None:
        """An operator is about to change tensors, and does not in the end."""
        for each in tensors:
            storage = storage_of(each)
            if storage is not None and storage.data_ptr() not in self._changed:
                self._changed[storage.data_ptr()] = storage, storage.clone()

    def made(self, tensors: list[torch.Tensor]) -> None:
        """An operator has made tensors; the graph keeps their memory."""
        self._made += tensors

    def end(self) -> None:
        """Memory and streams are as before.

        Raises:
            RuntimeError: If a stream that takes part was not waited for in the end.
        """
        joined = self._before(self.main.point)
        apart = [
            line for line, *_ in self._outside.values() if not self._before(line.point) <= joined
        ]
        for line, newest, waits, launched in self._outside.values():
            line.newest, line.waits, line.launched = newest, waits, launched
        with self._order.aside():
            for storage, before in self._changed.values():
                storage.copy_(before)
        for tensor in self._made:
            self._order.made_empty(tensor)
        if apart:
            raise RuntimeError(
                "CUDA error: capturing stream has unjoined work: the capturing stream has to wait "
                "for every stream that takes part"
            )

    def _before(self, point: list[int]) -> set[int]:
        after = {each.number: each.after for each in self.nodes}
        found: set[int] = set()
        ahead = list(point)
        while ahead:
            number = ahead.pop()
            if number not in found:
                found.add(number)
                ahead += after.get(number, [])
        return found


class _Graph:
    """``torch.cuda.CUDAGraph``."""

    order: StreamOrder
    known: Callable[[], dict[int, weakref.ref[torch.UntypedStorage]]]

    def __init__(self, *_: Any, **__: Any) -> None:
        self._begun: Recording | None = None
        self._recorded: Recording | None = None
        self._lines: dict[int, StreamLine] = {}

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Record what the current stream is asked for."""
        if not self.order.is_checked:
            raise UsageError(
                "torch's CUDA graphs are emulated only where launches are checked",
                "use `kernelbench check`, or check= of `triton_emulation`",
            )
        if self.order.capture is not None:
            raise RuntimeError("CUDA error: a capture is under way")
        self.order.capture = self._begun = Recording(self.order, self.known())

    def capture_end(self) -> None:
        """Record no more."""
        capture, self._begun = self._begun, None
        self.order.capture = None
        if capture is None:
            raise RuntimeError("CUDA error: no capture is under way")
        capture.end()
        self._recorded = capture

    def replay(self) -> None:
        """The current stream is asked for what was recorded."""
        order, recorded = self.order, self._recorded
        if recorded is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        order.require_no_capture()
        outer = order.current
        points = {recorded.root: outer.point}
        with order.on(outer):
            for node in recorded.nodes:
                if node.line == recorded.main.number:
                    line = outer
                else:
                    if node.line not in self._lines:
                        self._lines[node.line] = order.opened()
                    line = self._lines[node.line]
                line.waits += [at for each in node.after for at in points[each]]
                order.current = line
                node.run()
                points[node.number] = line.point
        # What comes next on the stream waits for all of it.
        outer.waits += [at for line in self._lines.values() for at in line.point]

    def reset(self) -> None:
        """What was recorded is there no longer."""
        self._recorded = None

    def pool(self) -> tuple[int, int]:
        """There is one pool."""
        return (0, 0)


def graph_names(
    order: StreamOrder,
    new_stream: type[ScriptStream],
    known: Callable[[], dict[int, weakref.ref[torch.UntypedStorage]]],
) -> dict[str, Any]:
    """What ``torch.cuda`` has of graphs instead.

    Args:
        order: The script's streams.
        new_stream: Their class.
        known: Gives the storages that are there, by address.
    """
    own_stream = functools.cache(new_stream)

    @contextlib.contextmanager
    def graph(
        cuda_graph: _Graph, pool: Any = None, stream: ScriptStream | None = None, **_: Any
    ) -> Iterator[None]:
        order.host_waits_for_all()
        with stream or own_stream():
            cuda_graph.capture_begin()
            try:
                yield
            finally:
                cuda_graph.capture_end()

    def refuse(*_: Any, **__: Any) -> None:
        raise UsageError(
            "torch's make_graphed_callables is not emulated", "capture with torch.cuda.graph"
        )

    return {
        "CUDAGraph": type("CUDAGraph", (_Graph,), {"order": order, "known": staticmethod(known)}),
        "graph": graph,
        "graph_pool_handle": lambda: (0, 0),
        "make_graphed_callables": refuse,
        "is_current_stream_capturing": lambda: order.records is not None,
    }
