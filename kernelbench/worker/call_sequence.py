"""Calls one after another: a step may keep nothing of a call that the next one contradicts.

Each call is made with something of an earlier one changed and something kept, in one process: what
a host path remembers too long (a pointer, a table, a captured graph, a staging buffer that a copy
still reads) gives a wrong result here. Inputs are drawn anew for every call.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelbench.base.seeds import derive
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.project.arena import bits
from kernelbench.project.problem import Inputs, refill
from kernelbench.worker.checked_call import CheckedStep

#: The calls, in order, as findings and results name them.
NEW_ADDRESSES = "inputs and outputs at other addresses"
NEW_VALUES = "new values at the same addresses"
FEWER_ROWS = "fewer rows at the same addresses"
KEPT_OUTPUTS = "inputs at other addresses, the outputs kept"
OTHER_SHAPE = "another shape"
FIRST_AGAIN = "the first shape and addresses again"
QUEUED = "two calls queued without a wait"
CALLS = (NEW_ADDRESSES, NEW_VALUES, FEWER_ROWS, KEPT_OUTPUTS, OTHER_SHAPE, FIRST_AGAIN, QUEUED)
#: And the last, of a step that never waits for its stream.
RECORDED = "a call that the caller records, replayed on new values"
#: Of steps with ``[config] workspace = "stream"`` alone: others keep memory for one stream.
TWO_STREAMS = "two calls on two streams"
#: What is drawn for the two calls that are queued.
_FIRST, _SECOND = "queued first", "queued second"
#: What is drawn, in the order in which it takes the problem's classes of inputs by turns.
_DRAWN = (
    NEW_ADDRESSES, NEW_VALUES, KEPT_OUTPUTS, OTHER_SHAPE, FIRST_AGAIN, _FIRST, _SECOND, FEWER_ROWS,
    RECORDED,
)  # fmt: skip
#: Their handles. The emulator asks for no more than that they differ.
_STREAMS = (16, 32)


@dataclass(frozen=True)
class SequenceStep:
    """One call of the sequence: what it was, why it is not right (or empty), what was found."""

    calls: str
    reason: str
    report: EmulatorReport


@dataclass
class CallSequence:
    """The calls of one shape and class of inputs.

    Attributes:
        other: A second shape that the step takes; None if there is none, and then it is left out.
    """

    step: CheckedStep
    shape: Any
    other: Any | None
    input_class: str
    sms: int
    announce: Callable[[str], None]

    def run(self) -> Iterator[SequenceStep]:
        """Every call; the first that is not right is the last."""
        for name, make in self._calls():
            self.announce(name)
            found = make(name)
            if found.reason.startswith("skipped: "):
                continue  # a limit that the step does not declare, of the other shape
            yield found
            if found.reason:
                return

    def _calls(self) -> Iterator[tuple[str, Callable[[str], SequenceStep]]]:
        # The schedules before were calls at addresses of their own.
        first = self._draw(NEW_ADDRESSES)
        yield NEW_ADDRESSES, lambda name: self._one(name, first, name)

        def new_values(name: str) -> SequenceStep:
            refill(first, self._draw(name))
            return self._one(name, first, name)

        yield NEW_VALUES, new_values
        fewer = self._fewer_rows()
        if fewer is not None:
            yield FEWER_ROWS, lambda name: self._in_place(name, fewer, first)
        kept = with_outputs_of(self._draw(KEPT_OUTPUTS), first)
        if kept is not None:
            yield KEPT_OUTPUTS, lambda name: self._one(name, kept, name)
        if self.other is not None:
            yield OTHER_SHAPE, self._other_shape
            yield FIRST_AGAIN, new_values
        yield QUEUED, lambda name: self._two(name, first)
        if self.step.job.step.config.get("workspace") == "stream":
            yield TWO_STREAMS, lambda name: self._two(name, first, _STREAMS)
        if self.step.recordable:
            yield RECORDED, lambda name: self._recorded(name, first)

    def _fewer_rows(self) -> Any | None:
        """The shape that the problem has for it, if the step takes that."""
        problem = self.step.problem
        if not hasattr(problem, "fewer_rows"):
            return None
        shape = problem.fewer_rows(self.shape)
        taken = shape is not None and not problem.broken_limit(shape, self.step.job.step.limits)
        return shape if taken else None

    def _in_place(self, name: str, shape: Any, earlier: Inputs) -> SequenceStep:
        """A call of ``shape`` whose tensors begin where those of ``earlier`` do."""
        inputs = laid_over(self._draw(name, shape), earlier)
        if inputs is None:
            return SequenceStep(name, "skipped: its tensors do not fit", EmulatorReport())
        return self._one(name, inputs, name, shape)

    def _other_shape(self, name: str) -> SequenceStep:
        inputs = self._draw(name, self.other)
        return self._one(name, inputs, name, self.other)

    def _one(self, name: str, inputs: Inputs, drawn: str, shape: Any | None = None) -> SequenceStep:
        shape = shape or self.shape
        called = self.step.call(inputs, self.sms, self._seed(name, "schedule"))
        why = self.step.judge(
            called, inputs, shape, self._class(drawn), self._reference(drawn, shape)
        )
        return SequenceStep(name, why, called.report.explaining() if why else called.report)

    def _two(self, name: str, earlier: Inputs, streams: tuple[int, int] = (0, 0)) -> SequenceStep:
        """``earlier`` with its values, then others elsewhere, before the first has begun."""
        fresh = self._draw(_FIRST)
        refill(earlier, fresh)
        later = self._draw(_SECOND)
        seed = self._seed(name, "schedule")
        both = self.step.call_queued([earlier, later], self.sms, seed, streams)
        for called, inputs, drawn in zip(both, (earlier, later), (_FIRST, _SECOND), strict=True):
            reference = self._reference(drawn, self.shape)
            why = self.step.judge(called, inputs, self.shape, self._class(drawn), reference)
            if why:
                break
        report = both[-1].report
        return SequenceStep(name, why, report.explaining() if why else report)

    def _recorded(self, name: str, inputs: Inputs) -> SequenceStep:
        seed = self._seed(name, "schedule")
        called = self.step.call_recorded(inputs, self._draw(name), self.sms, seed)
        reference = self._reference(name, self.shape)
        why = self.step.judge(called, inputs, self.shape, self._class(name), reference)
        return SequenceStep(name, why, called.report.explaining() if why else called.report)

    def _seed(self, *parts: str) -> int:
        return derive(self.step.job.seed, "sequence", self.shape.name, self.input_class, *parts)

    def _draw(self, what: str, shape: Any | None = None) -> Inputs:
        return self.step.problem.make_inputs(
            shape or self.shape, self._class(what), self._seed("inputs", what),
            self.step.job.target.device,
        )  # fmt: skip

    def _reference(self, drawn: str, shape: Any) -> Any:
        # From a copy: the kernel has not seen it.
        return self.step.problem.reference(self._draw(drawn, shape), shape, self._class(drawn))

    def _class(self, drawn: str) -> str:
        """What is drawn takes the problem's classes by turns, if its first one is asked for.

        A step that is right on random values alone, such as one without a rule for ties, is so
        found by the calls that are made anyway.
        """
        classes = self.step.problem.input_classes
        if self.input_class != classes[0]:
            return self.input_class
        return classes[_DRAWN.index(drawn) % len(classes)]


def with_outputs_of(inputs: Inputs, other: Inputs) -> Inputs | None:
    """``inputs`` with the output tensors of ``other`` in their place.

    None if the data is of a kind that cannot be put together again.
    """
    places = {id(mine): theirs for mine, theirs in zip(inputs.outputs, other.outputs, strict=True)}
    data, seen = _replaced(inputs.data, places)
    if seen != places.keys():
        return None
    return _with(inputs, data=data, outputs=other.outputs, arena=other.arena)


def laid_over(inputs: Inputs, other: Inputs) -> Inputs | None:
    """``inputs`` with each tensor where that of ``other`` begins, which loses what it held.

    None if one does not fit there, or if the data cannot be put together again.
    """
    mine, theirs = [*inputs.operands, *inputs.outputs], [*other.operands, *other.outputs]
    if len(mine) != len(theirs):
        return None
    places: dict[int, torch.Tensor] = {}
    for tensor, place in zip(mine, theirs, strict=True):
        if tensor.dtype != place.dtype or _extent(tensor) > _extent(place):
            return None
        words = bits(place)
        view = words.as_strided(tensor.shape, tensor.stride(), words.storage_offset())
        view.copy_(bits(tensor))
        places[id(tensor)] = view.view(tensor.dtype)
    data, seen = _replaced(inputs.data, places)
    if seen != places.keys():
        return None
    operands, outputs = (
        [places[id(tensor)] for tensor in tensors] for tensors in (inputs.operands, inputs.outputs)
    )
    arena = other.arena.beginning(outputs)
    return _with(inputs, data=data, operands=operands, outputs=outputs, arena=arena)


def _with(inputs: Inputs, **changes: Any) -> Inputs:
    """``inputs`` with some attributes changed, of the class that its problem has for them."""
    changed = copy.copy(inputs)
    vars(changed).update(changes)
    return changed


def _extent(tensor: torch.Tensor) -> int:
    """From its first element to behind its last, in elements."""
    if not tensor.numel():
        return 0
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _replaced(data: Any, places: dict[int, torch.Tensor]) -> tuple[Any, set[int]]:
    """``data`` with other tensors, by identity, in their place; which of them were there."""
    seen: set[int] = set()

    def replaced(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) in places:
                seen.add(id(value))
            return places.get(id(value), value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
            return type(value)(*(replaced(item) for item in value))
        if type(value) in (list, tuple):
            return type(value)(replaced(item) for item in value)
        if type(value) is dict:
            return {key: replaced(item) for key, item in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                field.name: replaced(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.init
            }
            return dataclasses.replace(value, **fields)
        return value

    return replaced(data), seen
