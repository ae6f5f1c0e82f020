"""The worker's part of ``check --minimize`` and ``replay``: one schedule, again and shorter.

A schedule of a check is run in a process of its own. A call with usual decisions goes before it,
as others did in the check: the host path has what it keeps from a first call. A finding of a call
in sequence comes again with the whole sequence, as the seed draws it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from kernelbench.base import files
from kernelbench.emulator import branches
from kernelbench.emulator.decisions import Decision, OutOfTime, fewest
from kernelbench.emulator.findings import findings_in_time, resolve_report
from kernelbench.emulator.runtime import Runtime
from kernelbench.emulator.state import state_at
from kernelbench.emulator.trace import Trace, chrome_trace
from kernelbench.project.problem import Case
from kernelbench.worker.call_sequence import CallSequence
from kernelbench.worker.checked_call import Called, CheckedStep
from kernelbench.worker.jobs import ReplayJob
from kernelbench.worker.messages import Reporter, ScheduleRun, ScheduleShortened, StateTold
from kernelbench.worker.schedules import draw_with_reference, open_checked, schedule_seed


def run_replay(job: ReplayJob, report: Reporter) -> None:
    """Run a schedule as often as is asked, or look for a shorter one."""
    if job.check.counters:
        branches.collect_into(Path(job.check.counters))
    step = open_checked(job.check, report)
    if step is None:
        return
    replay = _Replay(job, step, report)
    if job.fewest_s:
        replay.shorten()
        return
    if job.calls:
        replay.sequence()
    else:
        replay.repeat()
    replay.tell()


class _Replay:
    """One schedule of one shape, class and number of SMs."""

    def __init__(self, job: ReplayJob, step: CheckedStep, report: Reporter) -> None:
        self._job = job
        self._step = step
        self._report = report
        check = job.check
        self._case = Case(step.problem, check.shapes[0], check.classes[0])
        self._sms = check.sms[0]
        report.phase("inputs and reference", 600, "reference")
        self._inputs, self._reference = draw_with_reference(check, self._case)
        self._seed = schedule_seed(check, self._case, self._sms, job.index)

    def repeat(self) -> None:
        """Run it, and report each time what came of it."""
        self._warm_up()
        for _ in range(self._job.times):
            called = self._call(self._job.decisions, traced=self._traced)
            shape, input_class = self._case.shape.name, self._case.input_class
            at, why = self._job.index, self._why(called)
            self._report(ScheduleRun(shape, input_class, self._sms, at, why, called.report))

    def sequence(self) -> None:
        """The calls of the sequence up to the one that showed it."""
        job = self._job
        calls = CallSequence(self._step, self._case, self._sms, self._announce)
        # The first schedules of a check go before the sequence.
        self._call(None)
        self._step.prepare = Runtime.trace if self._traced else _nothing
        for run in calls.run():
            if run.calls == job.calls:
                self._report(run)
                return

    def shorten(self) -> None:
        """Keep what the seed draws, then leave out what it takes not."""
        self._warm_up()
        first = self._call(None)
        kept, made = self._step.runtime.decisions()
        trials, ends = 1, time.monotonic() + self._job.fewest_s

        def shows(decisions: Sequence[Decision]) -> bool:
            nonlocal trials
            if time.monotonic() > ends:
                raise OutOfTime
            trials += 1
            return self._shows(self._call(decisions))

        found: list[Decision] | None = None
        if self._shows(first) and shows(kept):
            found = fewest(kept, shows)
        shortest = None if found is None else tuple(found)
        self._report(ScheduleShortened(shortest, made, len(kept), trials))

    def _warm_up(self) -> None:
        self._call(())

    @property
    def _traced(self) -> bool:
        return bool(self._job.trace) or self._job.state

    def tell(self) -> None:
        """The trace of the last run, and the state at its finding."""
        if not self._traced:
            return
        job, runtime, symbols = self._job, self._step.runtime, self._step.symbols
        raw = runtime.report()
        waits = resolve_report(raw, symbols).waits
        found = findings_in_time(raw, symbols, waits)
        self._report.phase("trace", 600, "harness")
        trace = Trace(runtime.trace_events(), found, symbols)
        if job.state:
            self._report(StateTold(tuple(state_at(trace, job.identity))))
        if job.trace:
            title = f"{job.check.step.name} {self._case.shape.name}, {self._sms} SMs"
            files.write_text(Path(job.trace), json.dumps(chrome_trace(trace, title)))

    def _call(self, decisions: Sequence[Decision] | None, *, traced: bool = False) -> Called:
        self._announce("replayed")

        def prepare(runtime: Runtime) -> None:
            runtime.decide(decisions)
            if traced:
                runtime.trace()

        self._step.prepare = prepare
        try:
            return self._step.call(self._inputs, self._sms, self._seed)
        finally:
            self._step.prepare = _nothing

    def _announce(self, what: str) -> None:
        check = self._job.check
        self._report.phase(what, check.target.executor.watchdog_limit(check.call_limit_s))

    def _shows(self, called: Called) -> bool:
        if self._job.identity == "wrong":
            return self._why(called).startswith("wrong: ")
        return any(each.identity == self._job.identity for each in called.report.findings)

    def _why(self, called: Called) -> str:
        return self._step.judge(called, self._inputs, self._case, self._reference)


def _nothing(_runtime: Runtime) -> None:
    """No more than the options."""
