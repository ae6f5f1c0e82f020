"""Calls one after another: a step may keep nothing of a call that the next one contradicts.

Each call is made with something of an earlier one changed and something kept, in one process: what
a host path remembers too long (a pointer, a table, a captured graph, a staging buffer that a copy
still reads) gives a wrong result here. Inputs are drawn anew for every call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kernelbench.base.seeds import derive
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.problems import pytree
from kernelbench.project.arena import GuardedOutputs, bits, extent
from kernelbench.project.problem import Case, Inputs, refill
from kernelbench.worker.checked_call import A_STREAM, Called, CheckedStep
from kernelbench.worker.messages import ScheduleRun

#: The calls, in order, as findings and results name them.
NEW_ADDRESSES = "inputs and outputs at other addresses"
NEW_VALUES = "new values at the same addresses"
FEWER_ROWS = "fewer rows at the same addresses"
KEPT_OUTPUTS = "inputs at other addresses, the outputs kept"
OTHER_SHAPE = "another shape"
FIRST_AGAIN = "the first shape and addresses again"
QUEUED = "two calls queued without a wait"
CALLS = (NEW_ADDRESSES, NEW_VALUES, FEWER_ROWS, KEPT_OUTPUTS, OTHER_SHAPE, FIRST_AGAIN, QUEUED)
#: Of shapes of more than one block.
LESS_DEPTH = "less depth at the same addresses"
#: Of problems that have options.
OTHER_OPTIONS = "other options at the same addresses"
#: And the last two, of a step that never waits for its stream.
RECORDED = "a call that the caller records, replayed on new values"
MANY_RECORDED = "calls to many outputs that the caller records"
#: How many of them: a host path that keeps a few calls has to make room.
_MANY = 20
#: Of steps with ``[config] workspace = "stream"`` alone: others keep memory for one stream.
TWO_STREAMS = "two calls on two streams"
#: What is drawn for the two calls that are queued.
_FIRST, _SECOND = "queued first", "queued second"
#: What is drawn, in the order in which it takes the problem's classes of inputs by turns.
_DRAWN = (
    NEW_ADDRESSES, NEW_VALUES, KEPT_OUTPUTS, OTHER_SHAPE, FIRST_AGAIN, _FIRST, _SECOND, FEWER_ROWS,
    RECORDED, OTHER_OPTIONS, LESS_DEPTH,
)  # fmt: skip
_STREAMS = (A_STREAM, 2 * A_STREAM)
#: The name of each call, and what makes it.
_Calls = Iterator[tuple[str, Callable[[str], "ScheduleRun"]]]


def turn_of(case: Case) -> int:
    """A number of a shape, by which it differs from others in what a short check makes."""
    return derive(0, "turn", case.shape.name)


def schedule_run(
    case: Case, sms: int, index: int, reason: str, report: EmulatorReport, calls: str = ""
) -> ScheduleRun:
    """The message of one schedule; of one that is not right, with what explains it."""
    found = report.explaining() if reason else report
    return ScheduleRun(case.shape.name, case.input_class, sms, index, reason, found, calls)


@dataclass
class CallSequence:
    """The calls of one case."""

    step: CheckedStep
    case: Case
    sms: int
    announce: Callable[[str], None]
    _made: int = field(default=0, init=False)

    def run(self, parts: int = 1) -> Iterator[ScheduleRun]:
        """Every call, or of ``parts`` one, about; the first that is not right is the last."""
        for name, make in self._calls(parts):
            self.announce(name)
            found = make(name)
            if found.reason.startswith("skipped: "):
                continue  # a limit that the step does not declare, of the other shape
            self._made += 1
            yield found
            if found.reason:
                return

    def _calls(self, parts: int) -> _Calls:
        # The schedules before were calls at addresses of their own.
        first = self._draw(NEW_ADDRESSES)
        yield NEW_ADDRESSES, lambda name: self._one(name, first, name)
        yield NEW_VALUES, partial(self._new_values, first)
        groups = (
            self._of_other_options, self._of_smaller_shapes, self._of_kept_outputs,
            self._of_another_shape, self._of_queued, self._of_recorded,
        )  # fmt: skip
        # Which part it is differs with the shape: together the shapes of a step make all calls.
        turn = turn_of(self.case)
        for at, group in enumerate(groups):
            if (turn + at) % len(groups) < len(groups) // parts:
                yield from group(first)

    def _new_values(self, first: Inputs, name: str) -> ScheduleRun:
        refill(first, self._draw(name))
        return self._one(name, first, name)

    def _of_other_options(self, first: Inputs) -> _Calls:
        for other in self._other_options():
            yield OTHER_OPTIONS, partial(self._in_place, shape=other, earlier=first)

    def _of_smaller_shapes(self, first: Inputs) -> _Calls:
        for name, method in ((FEWER_ROWS, "fewer_rows"), (LESS_DEPTH, "less_depth")):
            if (smaller := self._smaller(method)) is not None:
                yield name, partial(self._in_place, shape=smaller, earlier=first)

    def _of_kept_outputs(self, first: Inputs) -> _Calls:
        kept = with_outputs_of(self._draw(KEPT_OUTPUTS), first)
        if kept is not None:
            yield KEPT_OUTPUTS, lambda name: self._one(name, kept, name)

    def _of_another_shape(self, first: Inputs) -> _Calls:
        elsewhere = self.step.job.other_shape
        if elsewhere is not None:
            yield (
                OTHER_SHAPE,
                lambda name: self._one(name, self._draw(name, elsewhere), name, elsewhere),
            )
            yield FIRST_AGAIN, partial(self._new_values, first)

    def _of_queued(self, first: Inputs) -> _Calls:
        yield QUEUED, lambda name: self._two(name, first, (A_STREAM, A_STREAM))
        if self.step.job.step.config.get("workspace") == "stream":
            yield TWO_STREAMS, lambda name: self._two(name, first, _STREAMS)

    def _of_recorded(self, first: Inputs) -> _Calls:
        if self.step.recordable:
            yield RECORDED, lambda name: self._recorded(name, first)
            many = [each for _ in range(_MANY) if (each := with_new_outputs(first)) is not None]
            if many:
                yield MANY_RECORDED, lambda name: self._never_replayed(name, many)

    def _other_options(self) -> Sequence[Any]:
        """Shapes of the same sizes, one option of the problem changed in each, if it has some."""
        options = getattr(self.step.problem, "other_options", None)
        return () if options is None else options(self.case.shape)

    def _smaller(self, method: str) -> Any | None:
        """The shape that the problem's method has for it, if the step takes that."""
        problem = self.step.problem
        smaller = getattr(problem, method, None)
        shape = None if smaller is None else smaller(self.case.shape)
        taken = shape is not None and not problem.broken_limit(shape, self.step.job.step.limits)
        return shape if taken else None

    def _in_place(self, name: str, shape: Any, earlier: Inputs) -> ScheduleRun:
        """A call of ``shape`` whose tensors begin where those of ``earlier`` do."""
        inputs = laid_over(self._draw(name, shape), earlier)
        if inputs is None:
            return self._run_of(name, "skipped: its tensors do not fit", EmulatorReport())
        return self._one(name, inputs, name, shape)

    def _one(self, name: str, inputs: Inputs, drawn: str, shape: Any | None = None) -> ScheduleRun:
        called = self.step.call(inputs, self.sms, self._seed(name, "schedule"))
        why = self._judge(called, inputs, drawn, shape)
        return self._run_of(name, why, called.report)

    def _two(self, name: str, earlier: Inputs, streams: tuple[int, int]) -> ScheduleRun:
        """``earlier`` with its values, then others elsewhere, before the first has begun."""
        fresh = self._draw(_FIRST)
        refill(earlier, fresh)
        later = self._draw(_SECOND)
        seed = self._seed(name, "schedule")
        both = self.step.call_queued([earlier, later], self.sms, seed, streams)
        for called, inputs, drawn in zip(both, (earlier, later), (_FIRST, _SECOND), strict=True):
            if why := self._judge(called, inputs, drawn):
                break
        return self._run_of(name, why, both[-1].report)

    def _recorded(self, name: str, inputs: Inputs) -> ScheduleRun:
        seed = self._seed(name, "schedule")
        called = self.step.call_recorded(inputs, self._draw(name), self.sms, seed)
        why = self._judge(called, inputs, name)
        return self._run_of(name, why, called.report)

    def _never_replayed(self, name: str, calls: Sequence[Inputs]) -> ScheduleRun:
        why = self.step.record(calls, self.sms, self._seed(name, "schedule"))
        return self._run_of(name, why, EmulatorReport())

    def _seed(self, *parts: str) -> int:
        case = self.case
        return derive(self.step.job.seed, "sequence", case.shape.name, case.input_class, *parts)

    def _draw(self, what: str, shape: Any | None = None) -> Inputs:
        seed, device = self._seed("inputs", what), self.step.job.target.device
        return self._drawn_as(what, shape).draw(seed, device)

    def _judge(self, called: Called, inputs: Inputs, drawn: str, shape: Any | None = None) -> str:
        case = self._drawn_as(drawn, shape)
        # From a copy: the kernel has not seen it.
        reference = case.reference(self._draw(drawn, shape))
        return self.step.judge(called, inputs, case, reference)

    def _drawn_as(self, drawn: str, shape: Any | None) -> Case:
        """What is drawn takes the problem's classes by turns, if its first one is asked for.

        A step that is right on random values alone, such as one without a rule for ties, is so
        found by the calls that are made anyway.
        """
        problem, chosen = self.case.problem, self.case.input_class
        classes = problem.input_classes
        if chosen == classes[0]:
            chosen = classes[_DRAWN.index(drawn) % len(classes)]
        return Case(problem, shape or self.case.shape, chosen)

    def _run_of(self, name: str, why: str, report: EmulatorReport) -> ScheduleRun:
        return schedule_run(self.case, self.sms, self._made, why, report, name)


def with_outputs_of(inputs: Inputs, other: Inputs) -> Inputs | None:
    """``inputs`` with the output tensors of ``other`` in their place.

    None if the data is of a kind that cannot be put together again.
    """
    return _with_outputs(inputs, other.outputs, other.arena)


def with_new_outputs(inputs: Inputs) -> Inputs | None:
    """``inputs`` with outputs elsewhere that hold nothing yet, or None as above."""
    return _with_outputs(inputs, [*map(torch.empty_like, inputs.outputs)], inputs.arena)


def _with_outputs(
    inputs: Inputs, outputs: list[torch.Tensor], arena: GuardedOutputs
) -> Inputs | None:
    places = {id(mine): theirs for mine, theirs in zip(inputs.outputs, outputs, strict=True)}
    data, seen = _replaced(inputs.data, places)
    if seen != places.keys():
        return None
    return _with(inputs, data=data, outputs=outputs, arena=arena)


def laid_over(inputs: Inputs, other: Inputs) -> Inputs | None:
    """``inputs`` with each tensor where that of ``other`` begins, which loses what it held.

    None if one does not fit there, or if the data cannot be put together again.
    """
    mine, theirs = [*inputs.operands, *inputs.outputs], [*other.operands, *other.outputs]
    if len(mine) != len(theirs):
        return None
    places: dict[int, torch.Tensor] = {}
    for tensor, place in zip(mine, theirs, strict=True):
        if tensor.dtype != place.dtype or extent(tensor) > extent(place):
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


def _replaced(data: Any, places: dict[int, torch.Tensor]) -> tuple[Any, set[int]]:
    """``data`` with other tensors, by identity, in their place; which of them were there."""
    seen: set[int] = set()

    def place(_path: pytree.Path, leaf: Any) -> Any:
        if id(leaf) in places:
            seen.add(id(leaf))
        return places.get(id(leaf), leaf)

    return pytree.rebuilt(data, place), seen
