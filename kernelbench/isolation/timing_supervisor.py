"""A series of timed calls of submissions on a GPU, as the judge sees it.

Times are taken in the submissions' process (:mod:`kernelbench.isolation.isolated_timing`), by the
timer of every other step: the same events, graphs and flushes, so that they are the same times. The
judge has what they are worth in its hands: the values of every block are new, it compares what a
block has left, and it has single repetitions made that it times by its own clock, on values that
are new and behind a flush of its own.
"""

from __future__ import annotations

import math
import random
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelbench.base.errors import MachineFault
from kernelbench.base.seeds import derive
from kernelbench.isolation.isolated_kernel import IsolatedKernel
from kernelbench.isolation.requests import Go, Once, Request, Time, close
from kernelbench.isolation.sandbox import read_answer
from kernelbench.kinds.callables import RaisedElsewhere
from kernelbench.machine.environment import foreign_processes
from kernelbench.measure.correctness import Announce
from kernelbench.measure.kernel_activity import ProfilerError
from kernelbench.measure.results import TimedBlock, error_of
from kernelbench.measure.timing import (
    CHECKED_REPS,
    Deferred,
    Flush,
    FreshValues,
    InputSet,
    Measurement,
    OnBlock,
    TimingFault,
    ValueExchange,
)
from kernelbench.project.problem import Case, copied
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import CallForm, L2Mode

#: Single repetitions of each arm by the judge's clock, over the blocks.
_TRIALS = 24
#: At most so many before one block.
_TRIALS_A_BLOCK = 4
#: What asking, answering and describing results may take beyond the answer of an idle process.
_ASKING_S = 100e-6
#: By how much a call is slower whose process has slept before, with a host path of its own.
_COLDER = 0.25
#: Seconds for drawing values; then sets exchange theirs.
_DRAWING_S = 10.0
#: Answers before the last that a process may give, for each block, arm and input set.
_ANSWERS = 4


#: An arm, the reference of its input set, and a copy of its outputs.
Output = tuple[int, Any, list[torch.Tensor]]


@dataclass
class SupervisedSeries:
    """One series: its sets, what is timed, and what was seen.

    Attributes:
        kernels: Submissions in one process, one for each arm.
        order: The arms of each block.
        clocks: What the SM clock is, and why it is slowed.
    """

    kernels: Sequence[IsolatedKernel]
    order: Sequence[Sequence[int]]
    sets: Sequence[InputSet]
    case: Case
    metric: Metric
    l2: L2Mode
    call: CallForm
    warmups: int
    batch: int
    seed: int
    announce: Announce
    call_limit_s: float
    on_block: OnBlock | None = None
    clocks: Any = None
    _trials: list[list[float]] = field(init=False)
    _blocks: list[TimedBlock] = field(default_factory=list, init=False)
    _kept: list[Output] = field(default_factory=list, init=False)
    _newest: list[Output] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._apart = self.kernels[0].apart
        self._trials = [[] for _ in self.kernels]
        #: Nobody else's: what is looked at must not be known.
        self._rng = random.Random(secrets.randbits(64))
        self._fresh = FreshValues(
            self.case, derive(self.seed, self.metric, "judged"), self.announce
        )
        self._exchange = ValueExchange(self.sets, derive(self.seed, self.metric, "exchange"), 1)

    def run(self) -> Measurement:
        """Have the series timed.

        Raises:
            TimingFault: If an output is wrong, or a time that was said cannot be.
            MachineFault: If a time that was said cannot be, and others use the GPU.
            ProfilerError: If the profiler has failed.
            KernelbenchError: If something else than the submissions is to blame.
            Exception: What a submission raised.
        """
        apart = self._apart
        self._flush = Flush(torch.device(apart.device), self.l2)
        message = apart.message([(one.inputs, tuple(one.poisons)) for one in self.sets])
        self._used = [apart.shared.used_by(one.inputs.data) for one in self.sets]
        apart.shared.copy_in(message.used)
        apart.settle()
        apart.nothing_s()  # the first makes its context
        request = Time(
            self.metric, tuple(kernel.arm for kernel in self.kernels),
            tuple(tuple(arms) for arms in self.order), self.warmups, self.l2, self.call,
            self.batch, derive(self.seed, "order elsewhere"), self.call_limit_s, message,
        )  # fmt: skip
        self.announce("warm-up", self.call_limit_s)
        answer, results = self._ask(request, message.descriptors)
        close(message.descriptors)
        answers = _ANSWERS * (len(self.order) + 2) * len(self.kernels) * (len(self.sets) + 1)
        answers += 2 * self.warmups * len(self.kernels)
        while answer.get("at") in ("phase", "renew", "block"):
            answers -= 1
            if answers < 0:
                raise RaisedElsewhere("the submission's process answered without end")
            if answer["at"] == "phase":
                self.announce(str(answer.get("name"))[:40], self.call_limit_s)
            elif answer["at"] == "renew":
                self._renew()
            else:
                self._take_block(answer, results)
            answer, results = self._ask(Go())
        return self._measured(answer)

    def _ask(self, request: Request, descriptors: Sequence[int] = ()) -> tuple[dict[str, Any], Any]:
        """The answer, and the results that came with it."""
        raw, found, nonce = self._apart.process.ask(request, descriptors)
        try:
            answer = read_answer(raw, nonce)
            if "raised" in answer:
                self.kernels[0].reraise(answer)
            if "failed" in answer:
                raise error_of(answer["failed"], str(answer.get("reason", "")))
            if "result" not in answer:
                return answer, None
            for used in self._used:
                self._apart.shared.copy_out(used)
            self._apart.settle()
            return answer, self._apart.results(answer, found)[0]
        finally:
            close(found)

    def _draw(self, sets: Sequence[InputSet]) -> None:
        """Values for these sets that no call has had; once time is up, those of others."""
        for chosen in sets:
            if self._fresh.spent_s < _DRAWING_S and not self._fresh.refused:
                self._fresh(chosen)
        if self._fresh.refused or self._fresh.spent_s >= _DRAWING_S:
            self._exchange()
        for chosen in self.sets:
            chosen.inputs.arena.fill(chosen.poisons[0])

    def _give(self) -> None:
        """Put the values of all sets where the submissions find them."""
        for used in self._used:
            self._apart.shared.copy_in(used)
        self._apart.settle()

    def _renew(self) -> None:
        """Time single repetitions, and give the sets new values for a block."""
        for _ in range(min(_TRIALS_A_BLOCK, max(1, _TRIALS // max(1, len(self.order))))):
            for arm in self._rng.sample(range(len(self.kernels)), len(self.kernels)):
                self._try_once(arm)
        self._draw(self.sets)
        self._give()
        self.announce("timed block", self.call_limit_s)

    def _try_once(self, arm: int) -> None:
        """Time a repetition by the judge's clock, and beside it an answer of an idle process."""
        apart = self._apart
        which = self._rng.randrange(len(self.sets))
        self._draw([self.sets[which]])
        self.announce("timed call", self.call_limit_s)
        # On the values of before: a host path that has slept takes longer than in a block.
        self._once(Once(arm, which, rehearsal=True))
        self._give()
        self._empty_l2()
        result, passed = self._once(Once(arm, which))
        self._empty_l2()
        self._trials[arm].append(passed - apart.nothing_s())
        if self.batch == 1 and self._rng.random() < CHECKED_REPS / _TRIALS:
            self._kept.append(self._looked_at(arm, self.sets[which], result))

    def _empty_l2(self) -> None:
        self._flush()
        self._apart.settle()

    def _once(self, request: Once) -> tuple[Any, float]:
        """What a repetition has returned, and the seconds that it took, as far as it ran."""
        kernel = self.kernels[request.arm]
        taken = () if request.rehearsal else self._used[request.which]
        answer, passed, found = kernel.asked(request, (), taken)
        try:
            if answer.get("at") != "once":
                raise RaisedElsewhere("the submission's process answered what was not asked")
            result = None if request.rehearsal else self._apart.results(answer, found)[0]
        finally:
            close(found)
        return result, passed - kernel.waited_s

    def _looked_at(self, arm: int, chosen: InputSet, result: Any) -> Output:
        """A copy of what a call has left, for :meth:`_verify`."""
        try:
            outputs = self.case.problem.outputs_of(result, chosen.inputs)
        except ValueError as error:
            raise TimingFault(f"a timed output is wrong: {error}") from error
        return arm, chosen.reference, copied(outputs)

    def _take_block(self, answer: dict[str, Any], results: Any) -> None:
        """Believe a block's form, and look at what it has left."""
        block = read_block(answer.get("block"), self.order, len(self._blocks), len(self.sets))
        if self.clocks is not None:
            mhz, block.throttle = self.clocks()
            block.sm_mhz = block.sm_mhz or mhz
        self._blocks.append(block)
        if not isinstance(results, dict) or not set(results) <= set(range(len(self.sets))):
            raise RaisedElsewhere("the submission's process answered what was not asked")
        by = dict(zip(block.input_set, block.arm, strict=True))
        found = []
        for arm in range(len(self.kernels)):
            some = [which for which in results if by.get(which, arm) == arm]
            for which in self._rng.sample(some, min(1, len(some))):
                found.append(self._looked_at(arm, self.sets[which], results[which]))
        self._newest = found or self._newest
        if self._rng.random() < CHECKED_REPS / len(self.order):
            self._kept += found
        if self.on_block is not None:
            self.on_block(block)

    def _measured(self, answer: dict[str, Any]) -> Measurement:
        """What was measured, if it can be believed."""
        for kernel in self.kernels:
            kernel.lost = kernel.lost or answer.get("lost") is True
            kernel.generator_lost = kernel.generator_lost or answer.get("generator") is True
        reason = " ".join(str(answer.get("reason", "")).split())[:500]
        match answer.get("at"):
            case "fault" if answer.get("status") == "wrong":
                raise TimingFault(reason)
            case "fault":
                raise ProfilerError(reason)
            case "unmeasured" if self.metric == "device" and not self._blocks:
                note = (
                    f"no device time: capture failed ({reason}), and what a profiler in the "
                    "submission's process says cannot be checked from another one"
                )
                return Measurement(self.metric, "none", notes=[note])
            case "measured" if len(self._blocks) == len(self.order) and self._newest:
                pass
            case _:
                raise RaisedElsewhere("the submission's process answered what was not asked")
        method = str(answer.get("method"))
        if method not in ("graph", "events", "competition"):
            raise RaisedElsewhere("the submission's process answered what was not asked")
        notes = answer.get("notes")
        measurement = Measurement(self.metric, method, self._blocks)
        measurement.notes = [str(note)[:200] for note in notes] if isinstance(notes, list) else []
        measurement.notes.append("judged from another process")
        self._verify()
        for arm in range(len(self.kernels)):
            if fault := clock_fault(measurement.of(arm), self._trials[arm], self.batch):
                if others := foreign_processes(torch.device(self._apart.device).index or 0):
                    raise MachineFault(
                        f"not judged: {fault}; {others} other process(es) use this GPU: try again "
                        "when nothing else uses it"
                    )
                raise TimingFault(fault)
        if self._fresh.refused:
            measurement.notes.append("seeds give data of different forms: timed on the same values")
        return measurement

    def _verify(self) -> None:
        for arm, reference, outputs in (*self._newest, *self._kept):
            if isinstance(reference, Deferred):
                reference = reference()
            verdict = self.case.compare(outputs, reference)
            if not verdict.ok:
                which = f" of arm {arm}" if arm else ""
                raise TimingFault(f"a timed output{which} is wrong: {verdict.reason}")


def clock_fault(said_us: Sequence[float], trials: Sequence[float], batch: int = 1) -> str:
    """Why times that a process says cannot be, by the judge's clock; empty if they can.

    A single repetition takes longer by that clock: its host path is colder, and results are
    described. That is :data:`_ASKING_S` and :data:`_COLDER` at most. Looked at is the quarter of
    them that was disturbed least.

    Args:
        said_us: Microseconds of each repetition, as said.
        trials: By how many seconds single repetitions took longer than an answer of a process that
            does nothing.
        batch: Replays in a single repetition.
    """
    if not trials:
        return ""
    said = statistics.median(said_us) * 1e-6 * batch
    seen = sorted(trials)[len(trials) // 4]
    if seen <= (1 + _COLDER) * said + _ASKING_S:
        return ""
    return (
        f"its timer says {said * 1e6:.0f} µs, but by the judge's clock it takes "
        f"{seen * 1e6:.0f} µs longer than nothing"
    )


def read_block(said: Any, order: Sequence[Sequence[int]], index: int, sets: int) -> TimedBlock:
    """A block as a process tells it.

    Raises:
        RaisedElsewhere: If it cannot be one.
    """
    wrong = RaisedElsewhere("the submission's process answered times that cannot be")
    if not isinstance(said, dict) or index >= len(order):
        raise wrong
    arms, which, times = (said.get(name) for name in ("arm", "input_set", "time_us"))
    if not (isinstance(arms, list) and isinstance(which, list) and isinstance(times, list)):
        raise wrong
    if arms != list(order[index]) or not len(arms) == len(which) == len(times):
        raise wrong
    if any(type(one) is not int or not 0 <= one < sets for one in which):
        raise wrong
    if any(type(t) is not float or not math.isfinite(t) or t < 0 for t in times):
        raise wrong
    mhz = said.get("sm_mhz")
    if mhz is not None and (type(mhz) is not float or not math.isfinite(mhz)):
        raise wrong
    return TimedBlock(arms, which, times, mhz)
