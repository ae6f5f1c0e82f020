"""Calls one after another: a step may keep nothing of a call that the next one contradicts.

Each call is made with something of an earlier one changed and something kept, in one process: what
a host path remembers too long (a pointer, a table, a captured graph, a staging buffer that a copy
still reads) gives a wrong result here. Inputs are drawn anew for every call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelbench.base.seeds import derive
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.project.problem import Inputs, refill
from kernelbench.worker.checked_call import CheckedStep

#: The calls, in order, as findings and results name them.
NEW_ADDRESSES = "inputs and outputs at other addresses"
NEW_VALUES = "new values at the same addresses"
KEPT_OUTPUTS = "inputs at other addresses, the outputs kept"
OTHER_SHAPE = "another shape"
FIRST_AGAIN = "the first shape and addresses again"
QUEUED = "two calls queued without a wait"
CALLS = (NEW_ADDRESSES, NEW_VALUES, KEPT_OUTPUTS, OTHER_SHAPE, FIRST_AGAIN, QUEUED)
#: And the last, of a step that never waits for its stream.
RECORDED = "a call that the caller records, replayed on new values"


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
        kept = with_outputs_of(self._draw(KEPT_OUTPUTS), first)
        if kept is not None:
            yield KEPT_OUTPUTS, lambda name: self._one(name, kept, name)
        if self.other is not None:
            yield OTHER_SHAPE, self._other_shape
            yield FIRST_AGAIN, new_values
        yield QUEUED, lambda name: self._two(name, first)
        if self.step.recordable:
            yield RECORDED, lambda name: self._recorded(name, first)

    def _other_shape(self, name: str) -> SequenceStep:
        inputs = self._draw(name, self.other)
        return self._one(name, inputs, name, self.other)

    def _one(self, name: str, inputs: Inputs, drawn: str, shape: Any | None = None) -> SequenceStep:
        shape = shape or self.shape
        called = self.step.call(inputs, self.sms, self._seed(name, "schedule"))
        why = self.step.judge(
            called, inputs, shape, self.input_class, self._reference(drawn, shape)
        )
        return SequenceStep(name, why, called.report.explaining() if why else called.report)

    def _two(self, name: str, earlier: Inputs) -> SequenceStep:
        """``earlier`` with its values, then others elsewhere, before the first has begun."""
        fresh = self._draw("queued first")
        refill(earlier, fresh)
        later = self._draw("queued second")
        seed = self._seed(name, "schedule")
        both = self.step.call_queued([earlier, later], self.sms, seed)
        for called, inputs, drawn in zip(
            both, (earlier, later), ("queued first", "queued second"), strict=True
        ):
            reference = self._reference(drawn, self.shape)
            why = self.step.judge(called, inputs, self.shape, self.input_class, reference)
            if why:
                break
        report = both[-1].report
        return SequenceStep(name, why, report.explaining() if why else report)

    def _recorded(self, name: str, inputs: Inputs) -> SequenceStep:
        seed = self._seed(name, "schedule")
        called = self.step.call_recorded(inputs, self._draw(name), self.sms, seed)
        reference = self._reference(name, self.shape)
        why = self.step.judge(called, inputs, self.shape, self.input_class, reference)
        return SequenceStep(name, why, called.report.explaining() if why else called.report)

    def _seed(self, *parts: str) -> int:
        return derive(self.step.job.seed, "sequence", self.shape.name, self.input_class, *parts)

    def _draw(self, what: str, shape: Any | None = None) -> Inputs:
        return self.step.problem.make_inputs(
            shape or self.shape, self.input_class, self._seed("inputs", what),
            self.step.job.target.device,
        )  # fmt: skip

    def _reference(self, drawn: str, shape: Any) -> Any:
        # From a copy: the kernel has not seen it.
        return self.step.problem.reference(self._draw(drawn, shape), shape, self.input_class)


def with_outputs_of(inputs: Inputs, other: Inputs) -> Inputs | None:
    """``inputs`` with the output tensors of ``other`` in their place.

    None if the data is of a kind that cannot be put together again.
    """
    places = {id(mine): theirs for mine, theirs in zip(inputs.outputs, other.outputs, strict=True)}
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

    data = replaced(inputs.data)
    if seen != places.keys():
        return None
    return Inputs(data, inputs.operands, other.outputs, other.arena)
