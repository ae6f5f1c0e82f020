"""Trying the hooks of a problem: what each has to do, and what it must not let pass."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelbench.base.errors import KernelbenchError, ProblemError, UsageError
from kernelbench.measure.speed_of_light import PRECISIONS
from kernelbench.project.arena import bits
from kernelbench.project.problem import Case, Inputs, Problem, refill

#: Relative changes that are tried, in powers of two: from an ulp of float64 to twice the value.
_POWERS = range(-52, 1)
#: A tolerance that lets this relative change of every element pass is worth a warning.
_WIDE = 2.0**-3


class _Refused(Exception):
    """A hook does not do what it has to; one line."""


@dataclass
class Trials:
    """Tries every hook of a problem, case by case; the first fault of each hook is kept."""

    problem: Problem
    device: str
    #: ``faults``, ``warnings``: By hook, what is wrong.
    faults: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)  #: By hook, what was seen, newest last.
    cases: int = 0  #: How many shapes with a class of inputs were tried.

    def shape(self, shape: Any) -> float:
        """Try what depends on a shape, with every class of inputs; returns the seconds."""
        began = time.monotonic()
        self._try("broken_limit", self._limits, shape)
        for input_class in self.problem.input_classes:
            self.cases += 1
            self._try("make_inputs", self._case, Case(self.problem, shape, input_class))
        return time.monotonic() - began

    def _try(self, hook: str, trial: Callable[..., None], *arguments: Any) -> None:
        try:
            trial(*arguments)
        except _Refused as error:
            hook, _, text = str(error).partition(": ")
            self.faults.setdefault(hook, text)
        except KernelbenchError as error:
            known = error.hook if isinstance(error, ProblemError) else ""
            self.faults.setdefault(known or hook, str(error))

    def parse_shape(self, names: Sequence[str]) -> None:
        """Shapes are there, and a field that does not exist is refused."""
        self.found["parse_shape"] = f"{len(names)} shape(s): {', '.join(names)}"
        try:
            self.problem.parse_shape("trial", {"no_such_field": 1})
        except ProblemError as error:
            self.faults.setdefault("parse_shape", str(error))
        except ValueError:
            return
        else:
            self.warnings["parse_shape"] = "takes a field that does not exist"

    def _limits(self, shape: Any) -> None:
        if said := self.problem.broken_limit(shape, {}):
            raise _Refused(f"broken_limit: no limits are broken by {shape.name}: {said}")
        self.found["broken_limit"] = "no limits, none broken"
        try:
            self.problem.broken_limit(shape, {"no_such_limit": 1})
        except ProblemError:
            raise
        except UsageError:
            return
        self.warnings["broken_limit"] = "passes over a limit that does not exist"

    def _case(self, case: Case) -> None:
        inputs = self._inputs(case)
        reference = self._reference(inputs, case)
        self._try("work", self._work, case.shape, inputs)
        right_outputs = getattr(self.problem, "right_outputs", None)
        if right_outputs is None:
            self.warnings["compare"] = (
                "tried on nothing: right_outputs(reference, inputs) would give it right outputs"
            )
            return
        right = right_outputs(reference, inputs)
        self._judge(right, reference, case)
        self._returned(right, inputs, reference, case)

    def _inputs(self, case: Case) -> Inputs:
        one, two, other = (case.draw(seed, self.device) for seed in (12, 12, 15))
        if not _same(one.operands, two.operands):
            raise _Refused(f"make_inputs: two draws from one seed differ ({case})")
        if repr(one.plain) != repr(two.plain):
            raise _Refused(f"make_inputs: plain values of one seed differ ({case})")
        if _same(one.operands, other.operands):
            self.warnings["make_inputs"] = f"two seeds give the same values ({case})"
        refill(two, other)
        if not _same(two.operands, other.operands):
            raise _Refused(f"make_inputs: tensors share memory, so that none can be set ({case})")
        count = sum(operand.numel() * operand.element_size() for operand in one.operands)
        self.found["make_inputs"] = (
            f"{self.cases} case(s) on {self.device}; same bits from a seed, others from another; "
            f"{len(one.operands)} tensor(s), {count:,} bytes, {len(one.outputs)} output(s) to write"
        )
        return one

    def _reference(self, inputs: Inputs, case: Case) -> Any:
        before = [operand.clone() for operand in inputs.operands]
        reference = case.reference(inputs)
        if not _same(before, inputs.operands):
            raise _Refused(f"reference: it changes its inputs ({case})")
        self.found["reference"] = f"{self.cases} case(s); leaves its inputs as they are"
        return reference

    def _judge(self, right: list[torch.Tensor], reference: Any, case: Case) -> None:
        def passes(outputs: list[torch.Tensor]) -> bool:
            return case.compare(outputs, reference).ok

        verdict = case.compare(right, reference)
        if not verdict.ok:
            raise _Refused(
                f"compare: the reference does not pass its own comparison ({case}): "
                f"{verdict.reason}"
            )
        for index, output in enumerate(right):
            for what, wrong in _wrong_outputs(output):
                changed = [*right[:index], wrong, *right[index + 1 :]]
                if passes(changed):
                    raise _Refused(f"compare: {what} passes as output {index} ({case})")
        widest = self._widest(right, passes)
        text = "passes its reference; not poison, zeros, one NaN"
        if widest is None:
            self.found["compare"] = f"{text}; exact"
            return
        self.found["compare"] = f"{text}; not all elements changed by {widest:.2g} of themselves"
        if widest > _WIDE:
            self.warnings["compare"] = (
                f"wide: every element may be off by {widest / 2:.2g} of itself ({case})"
            )

    def _widest(
        self, right: list[torch.Tensor], passes: Callable[[list[torch.Tensor]], bool]
    ) -> float | None:
        """The least relative change of all elements, a power of two, that fails; None for any."""

        def fails(power: int) -> bool:
            changed = [
                (one.double() * (1 + 2.0**power)).to(one.dtype) if one.is_floating_point() else one
                for one in right
            ]
            return not _same(changed, right) and not passes(changed)

        if not any(one.is_floating_point() and bool(one.any()) for one in right):
            return None
        if not fails(_POWERS[-1]):
            raise _Refused("compare: outputs twice as large as they should be pass")
        least = bisect.bisect_left(_POWERS, True, key=fails)
        return 2.0 ** _POWERS[least] if least else None

    def _returned(
        self, right: list[torch.Tensor], inputs: Inputs, reference: Any, case: Case
    ) -> None:
        if not right:
            return
        other = torch.float32 if right[0].dtype is torch.float64 else torch.float64
        for what, result in (
            ("a text", "a text"),
            ("an output too many", (*right, right[0].clone())),
            ("another shape", (right[0].unsqueeze(0), *right[1:])),
            ("another dtype", (right[0].to(other), *right[1:])),
        ):
            try:
                outputs = self.problem.outputs_of(result, inputs)
            except ValueError:
                continue
            if case.compare(outputs, reference).ok:
                raise _Refused(f"outputs_of: a step that returns {what} passes ({case})")
        self.found["outputs_of"] = "refuses a text, an output too many, another shape or dtype"

    def _work(self, shape: Any, inputs: Inputs) -> None:
        work = self.problem.work(shape, inputs)
        numbers = (work.flops, work.bytes_read, work.bytes_written)
        if not all(math.isfinite(one) and one >= 0 for one in numbers) or not work.bytes_total:
            raise _Refused(f"work: {work} of shape {shape.name} is no amount of work")
        if work.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise _Refused(f"work: precision {work.precision!r}: expected one of {known}")
        held = sum(one.numel() * one.element_size() for one in inputs.operands)
        if work.bytes_read > 1.001 * held:
            self.warnings["work"] = (
                f"reads {work.bytes_read:,.0f} bytes of inputs that have {held:,}: a step that "
                "reads each once could seem impossibly fast"
            )
        flops = f"{work.flops:.3g} FLOPs in {work.precision}" if work.flops else "bytes only"
        self.found["work"] = f"{work.bytes_total:,.0f} bytes, {flops} (shape {shape.name})"


def _wrong_outputs(output: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Outputs that are wrong, each with its name; none that could be right by chance."""
    found: list[tuple[str, torch.Tensor]] = []
    if not output.numel():
        return found
    if output.numel() * output.element_size() >= 16:
        generator = torch.Generator(output.device).manual_seed(1)
        poison = torch.empty_like(output, memory_format=torch.contiguous_format)
        bits(poison).reshape(-1).view(torch.uint8).random_(0, 256, generator=generator)
        if output.dtype is not torch.bool:
            found.append(("poison", poison))
    if bool(output.any()):
        found.append(("an output of zeros", torch.zeros_like(output)))
    if output.dtype.is_floating_point and not bool(output.isnan().any()):
        spoiled = output.clone(memory_format=torch.contiguous_format)
        spoiled.view(-1)[output.numel() // 2] = float("nan")
        if bool(spoiled.isnan().any()):  # not every format has a NaN
            found.append(("an output with one NaN", spoiled))
    return found


def _same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(
        one.shape == other.shape
        and one.dtype == other.dtype
        and torch.equal(bits(one), bits(other))
        for one, other in zip(some, others, strict=True)
    )
