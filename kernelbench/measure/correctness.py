"""The correctness check that every step passes before it is timed.

Three calls a class of inputs, each with an output storage full of random bits (the protocol's
items are those of the design, §5, and the README's threat model):

1. On inputs drawn from seed *a*. The inputs must come out unchanged, no byte outside the outputs
   may be written, and the result must match the reference.
2. On a second set of tensors with the same values, at other addresses, under another poison: the
   result must have the same bits (a step may declare itself not repeatable, and then must match the
   reference again). Stale, unwritten or cached results differ here.
3. On the tensors of call 1 with new values (seed *b*): a result cached by address differs here.

On a GPU it is also called where inputs are written late and where the device is busy, on the
default stream and on another (``stream_ordering_check.py``).

The reference is computed after the call, from regenerated inputs, so a step cannot reach it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from kernelbench.base.errors import KernelbenchError, MachineFault
from kernelbench.base.seeds import derive
from kernelbench.kinds.callables import describe_exception
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.measure.results import CheckResult, FaultOrigin, status_of
from kernelbench.measure.returned_memory import ReturnedMemory, poison_free_memory
from kernelbench.measure.stream_ordering_check import CallTrial, Elsewhere, StreamOrderingCheck
from kernelbench.project.arena import bits
from kernelbench.project.error_attribution import GuardedProblem, is_lost_device
from kernelbench.project.problem import (
    Case,
    Inputs,
    Kernel,
    OutputVerdict,
    Problem,
    copied,
    interchangeable,
    refill,
)
from kernelbench.records.run_record import ResultStatus

#: Seconds for what a problem computes, if it does not say itself.
_HOOK_LIMIT_S = 600.0


class Announce(Protocol):
    """Announces the phase that begins; see ``worker/launcher.py``."""

    def __call__(self, name: str, limit_s: float, whose: FaultOrigin = "step", /) -> None:
        """A phase that may take so many seconds, of whose code the blame is if it does not end."""


class _Failed(Exception):
    """Ends the check early with a result."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(result.reason)
        self.result = result


@dataclass
class Checker:
    """Checks one step on one shape.

    Args:
        kernel: The step's callable on the problem's data.
        problem: The problem.
        shape: A shape of that problem.
        device: ``cpu`` or ``cuda:N``.
        seed: Run seed; every input and poison is derived from it.
        call_limit_s: Longest that one call of the step may take.
        source: The step's file, to name the line that raised.
        own_stream: Also require correctness on a stream other than the default one. Steps of a
            lineage must pass; other people's submissions get a note instead.
        references: Folder of the references that several steps share, or empty.
        elsewhere: What is done in the process that the step is called in, if it is not this one.
    """

    kernel: Kernel
    problem: Problem
    shape: Any
    device: str
    seed: int
    announce: Announce
    call_limit_s: float
    source: Path | None = None
    own_stream: bool = True
    references: str = ""
    elsewhere: Elsewhere | None = None
    _notes: list[str] = field(default_factory=list)
    _returned: ReturnedMemory = field(default_factory=ReturnedMemory)
    _like: list[torch.Tensor] = field(default_factory=list)

    def check(self, input_class: str) -> CheckResult:
        """Run the check for one class of inputs; never raises, whoever is at fault."""
        self._notes = []
        self._returned, self._like = ReturnedMemory(), []
        try:
            return self._check(Case(self.problem, self.shape, input_class))
        except _Failed as failed:
            return failed.result
        except KernelbenchError as error:
            return CheckResult(status_of(error), reason=str(error))

    def _check(self, case: Case) -> CheckResult:
        input_class = case.input_class
        # An even and an odd seed: some classes draw two kinds of operands by the seed's parity.
        seed_a = derive(self.seed, "inputs", input_class, "a") & ~1
        seed_b = derive(self.seed, "inputs", input_class, "b") | 1
        limit_s = getattr(self.problem, "hook_limit_s", _HOOK_LIMIT_S)
        self.announce(f"{input_class}: inputs", limit_s, "problem")
        first = case.draw(seed_a, self.device)
        out_first, poison_first = self._call(first, input_class, "first call", 1)

        self.announce(f"{input_class}: reference", limit_s, "reference")
        second = case.draw(seed_a, self.device)
        self._require_unchanged(first, second, "first call")
        reference = shared_reference(self.references, case, second, seed_a)
        verdict = self._compare(out_first, reference, case, first, poison_first)
        out_second, _ = self._call(second, input_class, "second call", 2)
        self._require_repeatable(out_first, out_second, reference, case)

        self.announce(f"{input_class}: second inputs", limit_s, "reference")
        fresh = case.draw(seed_b, self.device)
        same_form = interchangeable(first, fresh)
        if same_form or not getattr(self.problem, "forms_vary", False):
            refill(first, fresh)
        else:
            self._notes.append("seeds give data of different forms: a cache by address not tried")
            first, fresh = fresh, case.draw(seed_b, self.device)
        out_third, poison_third = self._call(first, input_class, "call on new values", 3)
        self._require_unchanged(first, fresh, "call on new values")
        reference = shared_reference(self.references, case, fresh, seed_b)
        verdict = self._merge(
            verdict,
            self._compare(out_third, reference, case, first, poison_third, before=out_first),
        )
        if self.device.startswith("cuda") and same_form:
            self._check_ordering(case, first, second, reference)
        return _judged("pass", verdict, "", tuple(self._notes))

    def _call(
        self, inputs: Inputs, input_class: str, what: str, number: int
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Poison the outputs, call the step, and copy its outputs."""
        seed = derive(self.seed, "poison", input_class, number)
        poison = inputs.arena.draw_poison(seed)
        inputs.arena.fill(poison)
        there = self.elsewhere
        (there.poison_free_memory if there else poison_free_memory)(self._like, seed)
        _synchronize(self.device)
        with self._guarded(input_class, what):
            result = self.kernel(inputs.data)
            _synchronize(self.device)
        outputs = self._outputs(result, inputs, what)
        if not inputs.outputs:
            self._like = outputs
            fault = self._returned.fault(self._tensors(result, inputs, what), what)
            if fault and not getattr(self.problem, "may_reuse_memory", False):
                raise _wrong(f"{what}: {fault}")
        if not inputs.arena.guards_intact(poison):
            raise _wrong(f"{what}: wrote outside its outputs (guard band changed)")
        return outputs, poison

    @contextmanager
    def _guarded(self, input_class: str, what: str) -> Iterator[None]:
        """Turn whatever the step's own code raises into a result row."""
        self.announce(f"{input_class}: {what}", self.call_limit_s)
        try:
            yield
        except _Failed:
            raise
        except NotImplementedError as error:
            text = " ".join(str(error).split()) or "NotImplementedError"
            raise _Failed(CheckResult("skipped", reason=text)) from error
        except KernelFault as fault:
            status: ResultStatus = "hang" if fault.hang else "fault"
            failed = CheckResult(status, reason=f"{what}: {fault}", report=fault.report)
            raise _Failed(failed) from fault
        except torch.OutOfMemoryError as error:
            reason = f"{what}: out of memory ({' '.join(str(error).split())[:160]})"
            raise _Failed(CheckResult("fault", reason=reason)) from error
        except Exception as error:
            if self.elsewhere is not None and isinstance(error, KernelbenchError):
                raise  # of what hands the data over: a step's own come in another form
            if is_lost_device(error):
                raise MachineFault(f"{what}: {describe_exception(error, self.source)}") from error
            reason = f"{what}: raised {describe_exception(error, self.source)}"
            raise _Failed(CheckResult("fault", reason=reason)) from error

    def _tensors(self, result: Any, inputs: Inputs, what: str) -> list[torch.Tensor]:
        try:
            return self.problem.outputs_of(result, inputs)
        except ValueError as error:
            raise _wrong(f"{what}: {error}") from error

    def _outputs(self, result: Any, inputs: Inputs, what: str) -> list[torch.Tensor]:
        return copied(self._tensors(result, inputs, what))

    def _require_unchanged(self, used: Inputs, pristine: Inputs, what: str) -> None:
        for index, (operand, original) in enumerate(
            zip(used.operands, pristine.operands, strict=True)
        ):
            if not torch.equal(bits(operand), bits(original)):
                count = int((bits(operand) != bits(original)).sum())
                raise _wrong(
                    f"{what}: overwrote its inputs (operand {index}: {count} elements changed)"
                )

    def _compare(
        self,
        outputs: list[torch.Tensor],
        reference: Any,
        case: Case,
        inputs: Inputs,
        poison: torch.Tensor,
        before: list[torch.Tensor] | None = None,
    ) -> OutputVerdict:
        """``before``: what a call that was right gave for other values at the same addresses."""
        verdict = case.compare(outputs, reference)
        if verdict.ok:
            return verdict
        reason = why_wrong(verdict, inputs, poison)
        if before is not None:
            same = _differing_elements(outputs, before) == 0
            reason = f"call on new values: {'it gives the earlier result; ' * same}{reason}"
        raise _Failed(_judged("wrong", verdict, reason))

    def _require_repeatable(
        self, first: list[torch.Tensor], second: list[torch.Tensor], reference: Any, case: Case
    ) -> None:
        differing = _differing_elements(first, second)
        if differing == 0:
            return
        again = case.compare(second, reference)
        if not again.ok:
            reason = (
                f"second call on the same values differs in {differing} elements: {again.reason}"
            )
            raise _Failed(_judged("wrong", again, reason))
        if getattr(self.problem, "repeatable", True):
            self._notes.append(f"not bitwise repeatable ({differing} elements)")

    @staticmethod
    def _merge(a: OutputVerdict, b: OutputVerdict) -> OutputVerdict:
        worst = [c.max_abs_err for c in (a, b) if c.max_abs_err is not None]
        relative = [c.rel_rms_err for c in (a, b) if c.rel_rms_err is not None]
        exact = None if None in (a.exact, b.exact) else bool(a.exact and b.exact)
        return OutputVerdict(
            True, exact, max(worst, default=None), rel_rms_err=max(relative, default=None)
        )

    def _check_ordering(self, case: Case, current: Inputs, stale: Inputs, reference: Any) -> None:
        """On a GPU: the step must wait for, and be waited for by, the current stream.

        ``current`` holds the values of ``reference``, ``stale`` older ones. Judged on the default
        stream for every file; on a stream of its own as ``own_stream`` says.
        """
        device = torch.device(self.device)
        poison = current.arena.draw_poison(
            derive(self.seed, "poison", case.input_class, "ordering")
        )
        there = self.elsewhere
        make = there.stream_ordering_check if there else partial(StreamOrderingCheck, self.kernel)
        trial = make(device, current, stale, poison)
        for where, stream, required in (
            ("the current stream", torch.cuda.default_stream(device), True),
            ("a current stream of its own", torch.cuda.Stream(device), self.own_stream),
        ):
            fault = self._ordering_fault(trial, stream, case, current, reference)
            if fault and required:
                raise _wrong(f"not ordered with {where}: {fault}")
            if fault:
                self._notes.append("works on the default stream only")

    def _ordering_fault(
        self,
        trial: CallTrial,
        stream: torch.cuda.Stream,
        case: Case,
        current: Inputs,
        reference: Any,
    ) -> str:
        what = "call on late inputs"
        with self._guarded(case.input_class, what):
            result = trial.on_late_inputs(stream)
        outputs = self._outputs(result, current, what)
        verdict = case.compare(outputs, reference)
        if not verdict.ok:
            return f"it read its inputs before they were written ({verdict.reason})"
        with self._guarded(case.input_class, "call on a busy device"):
            like = [] if current.outputs else outputs
            result, snapshot, copies = trial.on_busy_device(
                stream, like, lambda found: self._tensors(found, current, what)
            )
        late = "its outputs were still being written after work queued behind the call had run"
        if any(
            not torch.equal(bits(copy), bits(output.cpu()))
            for copy, output in zip(copies, self._tensors(result, current, what), strict=False)
        ):
            return late
        in_place = bool(current.outputs) and all(
            any(output.data_ptr() == view.data_ptr() for view in current.outputs)
            for output in self.problem.outputs_of(result, current)
        )
        if in_place and not torch.equal(bits(snapshot), bits(current.arena.flat.cpu())):
            return late
        return ""


def _differing_elements(first: list[torch.Tensor], second: list[torch.Tensor]) -> int:
    """Elements that differ in their bits; all of a tensor that has another shape or type."""
    if len(first) != len(second):
        return sum(output.numel() for output in (*first, *second))
    return sum(
        int((bits(a.contiguous()) != bits(b.contiguous())).sum())
        if a.shape == b.shape and a.dtype == b.dtype
        else max(1, a.numel(), b.numel())
        for a, b in zip(first, second, strict=True)
    )


def why_wrong(verdict: OutputVerdict, inputs: Inputs, poison: torch.Tensor) -> str:
    """Why a result is not right, in one line, with how many elements were never written.

    Args:
        verdict: What the comparison says.
        inputs: Those of the call, its outputs as the call has left them.
        poison: What the outputs were filled with before the call.
    """
    kept = by_chance = 0.0
    # There are no masks where a step has returned tensors of its own.
    for mask, view in zip(inputs.arena.unwritten(poison), inputs.arena.views, strict=False):
        # What is written equals its random poison by chance: one of 65536 if it has 16 bits.
        chance = 256.0 ** -view.element_size()
        held = int(mask.sum())
        written = (mask.numel() - held) / (1 - chance)
        kept, by_chance = kept + held, by_chance + written * chance
    never = kept - by_chance
    if never <= 16 + 5 * by_chance**0.5:
        return verdict.reason
    total = sum(output.numel() for output in inputs.outputs)
    count = f"about {float(f'{never:.3g}'):.0f}" if by_chance > 0.5 else f"{never:.0f}"
    return f"{count} of {total} output elements were never written; {verdict.reason}"


def _judged(
    status: ResultStatus, verdict: OutputVerdict, reason: str, notes: tuple[str, ...] = ()
) -> CheckResult:
    return CheckResult(
        status, verdict.exact, verdict.max_abs_err, reason, notes, rel_rms_err=verdict.rel_rms_err
    )


def _wrong(reason: str) -> _Failed:
    return _Failed(CheckResult("wrong", reason=reason))


def _synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(torch.device(device))


def shared_reference(folder: str, case: Case, inputs: Inputs, seed: int) -> Any:
    """The reference of inputs drawn from ``seed``, from the folder, or computed and left there.

    The float64 product of a large shape takes as long as many calls of a step, and the steps of one
    run are judged on the same inputs. Only for steps of a lineage on a CPU: a submission must find
    no result that it has not computed, and a GPU computes a reference in no time.

    Args:
        folder: Of :func:`kernelbench.runs.api.shared_folder`; empty to compute it in any case.
            One that cannot hold it costs time and nothing else.
        case: What the inputs are of, with the problem as the step is judged by it.
        inputs: Drawn from ``seed``.
        seed: Theirs.
    """
    problem = case.problem
    if not folder or not getattr(problem, "shares_references", True):
        return case.reference(inputs)

    settings = problem.settings() if isinstance(problem, GuardedProblem) else vars(problem)
    what = repr((problem.name, settings, case.shape, case.input_class, seed))
    path = Path(folder) / f"{hashlib.sha256(what.encode()).hexdigest()}.pt"
    if path.exists():
        # Our own file in a folder that only we can write; its classes are the problem's.
        return torch.load(path, weights_only=False, mmap=True)
    value = case.reference(inputs)
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        torch.save(value, unfinished)
        unfinished.replace(path)
    except (OSError, RuntimeError):  # torch's writer raises the latter on a full disk
        unfinished.unlink(missing_ok=True)
    return value
