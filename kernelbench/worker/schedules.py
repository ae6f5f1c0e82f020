"""The worker's part of ``kernelbench check``: one step under many schedules of the emulator.

There is one message for each schedule, with what it found, and then one for each call of the
sequence (:mod:`kernelbench.worker.call_sequence`). A shape ends at its first wrong output or at a
finding that ended a launch.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

from kernelbench.base.errors import KernelbenchError, MachineFault, ProblemError
from kernelbench.base.seeds import derive
from kernelbench.emulator import branches
from kernelbench.executors.emulated import EMULATOR
from kernelbench.kinds import compiled
from kernelbench.kinds.callables import LoadError
from kernelbench.kinds.protocol import CompiledProblem
from kernelbench.project.arena import bits
from kernelbench.project.problem import Case, Inputs, judging
from kernelbench.project.problem_loading import load_problem
from kernelbench.worker.call_sequence import CallSequence, schedule_run, turn_of
from kernelbench.worker.checked_call import Called, CheckedStep
from kernelbench.worker.jobs import HALF_A_ROUND, LEAST_OF_A_ROUND, NO_ROUND, CheckJob
from kernelbench.worker.messages import Reporter, ShapeBegins, StepNotLoaded

_COUNTERS_INTERVAL_S = 2.0


def run_schedules(job: CheckJob, report: Reporter) -> None:
    """Run every shape, class, number of SMs and schedule of a job."""
    if job.counters:
        branches.collect_into(Path(job.counters))
    step = open_checked(job, report)
    if step is None:
        return
    counters = _Counters(step)
    for shape in job.shapes:
        report(ShapeBegins(shape.name))
        for input_class in job.classes:
            if not _Schedules(step, Case(step.problem, shape, input_class), report, counters).run():
                break
        if job.counters:
            counters.write()


def open_checked(job: CheckJob, report: Reporter) -> CheckedStep | None:
    """The step, built and loaded for the checker; None if it cannot be, which is reported."""
    problem = cast(CompiledProblem, judging(load_problem(job.lineage), job.step))
    report.phase("build and load", compiled.BUILD_LIMIT_S)
    try:
        # Calls on the first number of SMs are made in this one.
        opened = EMULATOR.opened(job.step, problem, job.target.device, job.sms[0], check=True)
    except (ProblemError, MachineFault):
        raise
    except (KernelbenchError, LoadError) as error:
        report(StepNotLoaded(str(error)))
        return None
    return CheckedStep(job, problem, opened)


def schedule_seed(job: CheckJob, case: Case, sms: int, index: int) -> int:
    """The seed of one schedule.

    No part of the request but what the schedule belongs to: --sms 3 repeats what 1,2,3 found.
    """
    return derive(job.seed, "schedule", case.shape.name, case.input_class, sms, index)


def draw_with_reference(job: CheckJob, case: Case) -> tuple[Inputs, Any]:
    """The inputs of all schedules of a case, and their reference."""
    seed = derive(job.seed, "inputs", case.shape.name, case.input_class)
    # From a copy: the kernel has not seen it.
    inputs, copy = (case.draw(seed, job.target.device) for _ in range(2))
    return inputs, case.reference(copy)


class _Counters:
    """Writes the counts now and then: a worker that is killed takes along what it has not."""

    def __init__(self, step: CheckedStep) -> None:
        self._step = step
        self._written = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._written > _COUNTERS_INTERVAL_S:
            self._written = now
            self.write()

    def write(self) -> None:
        """Write the counters of branches to their folder."""
        for library in self._step.libraries:
            branches.write_counters(library)


class _Schedules:
    """Those of one case."""

    def __init__(
        self, step: CheckedStep, case: Case, report: Reporter, counters: _Counters
    ) -> None:
        self._step = step
        self._job = step.job
        self._case = case
        self._class = case.input_class
        self._report = report
        self._counters = counters

    def run(self) -> bool:
        """Every schedule and the sequence of calls; False if the shape is to end here.

        A round is one schedule on each number of SMs; the sequence comes after the first. Half of
        that round is run whatever it takes, and the other half if the budget of time allows: what
        little there is is spread over all shapes, which differ in what belongs to their half. Where
        one schedule takes more than half of the time, less than half of the round is run.
        """
        job = self._job
        rounds = job.rounds[job.classes.index(self._class)] if job.rounds else None
        if rounds == NO_ROUND:
            return True
        self._limit_s = job.budget_s if rounds is None else 0.0
        self._began = time.monotonic()
        self._begin()
        if not self._first_round(rounds):
            return False
        for index in range(1, job.schedules if rounds is None else rounds):
            # As long as those before took: a round that would end too late does not begin.
            if self._is_over((index + 1) / index):
                break
            if not all(self._schedule(sms, index) for sms in job.sms):
                return False
        return True

    def _first_round(self, rounds: int | None) -> bool:
        job = self._job
        turn = turn_of(self._case)
        first = [sms for at, sms in enumerate(job.sms) if (at + turn) % 2 == 0] or [*job.sms]
        others = [sms for sms in job.sms if sms not in first]
        begin = turn // 2 % len(first)
        head, *first = first[begin:] + first[:begin]
        if not job.budget_s:  # as it was asked for: a check that is repeated has it, too
            (head, *first), others = job.sms, []
        if not self._schedule(head, 0):
            return False
        least = rounds == LEAST_OF_A_ROUND or (len(first) > 1 and self._is_over(2))
        if not all(self._schedule(sms, 0) for sms in (first[:1] if least else first)):
            return False
        # The calls in sequence take about as long as the schedules.
        half = least or rounds == HALF_A_ROUND or self._is_over(4)
        if not half and not all(self._schedule(sms, 0) for sms in others):
            return False
        return not job.sequence or self._sequence(6 if least else 2 if half else 1)

    def _is_over(self, factor: float) -> bool:
        """Whether ``factor`` times what was spent is more than the budget."""
        return 0 < self._limit_s < (time.monotonic() - self._began) * factor

    def _begin(self) -> None:
        self._report.phase(f"{self._class}: inputs and reference", 600, "reference")
        self._inputs, self._reference = draw_with_reference(self._job, self._case)
        #: Outputs of the first schedule, by number of SMs.
        self._first: dict[int, list[Any]] = {}

    def _schedule(self, sms: int, index: int) -> bool:
        job, case = self._job, self._case
        self._announce(f"{sms} SM{'s' if sms > 1 else ''}, schedule {index + 1}/{job.schedules}")
        called = self._step.call(self._inputs, sms, schedule_seed(job, case, sms, index))
        reason = self._judge(called, self._first.get(sms))
        if called.outputs is not None:
            self._first.setdefault(sms, called.outputs)
        self._report(schedule_run(case, sms, index, reason, called.report))
        if job.counters and not reason:
            self._counters()
        return not reason

    def _sequence(self, parts: int) -> bool:
        calls = CallSequence(self._step, self._case, self._job.sequence_sms, self._announce)
        for run in calls.run(parts):
            self._report(run)
            if run.reason:
                return False
        return True

    def _announce(self, what: str) -> None:
        job = self._job
        limit = job.target.executor.watchdog_limit(job.call_limit_s)
        self._report.phase(f"{self._class}, {what}", limit)

    def _judge(self, called: Called, first: list[Any] | None) -> str:
        """Why outputs are wrong; empty if they are right."""
        differing = 0
        if first is not None and called.outputs is not None:
            differing = sum(
                int((bits(a) != bits(b)).sum()) for a, b in zip(called.outputs, first, strict=True)
            )
            if not differing:
                return ""
        wrong = self._step.judge(called, self._inputs, self._case, self._reference)
        if wrong or not differing or not self._step.problem.repeatable:
            return wrong
        return f"wrong: {differing} elements differ in their bits from those of the first schedule"
