"""``kernelbench check`` without its rendering: steps × shapes to findings, and branches."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.base.observer import OnProgress
from kernelbench.build.compiler import CompileFailure
from kernelbench.checks import allowances
from kernelbench.checks.rows import (
    CheckRequest,
    CheckRow,
    CheckStatus,
    Seen,
    StepCheck,
    why_formal,
)
from kernelbench.emulator import branches
from kernelbench.emulator.memory_map import MemoryMap
from kernelbench.executors.emulated import EMULATOR
from kernelbench.kinds import compiled
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.measure.results import error_of
from kernelbench.project.building_blocks import source_sha
from kernelbench.records.run_record import UNJUDGED
from kernelbench.runs.runner import StepRun
from kernelbench.worker.jobs import HALF_A_ROUND, LEAST_OF_A_ROUND, NO_ROUND, CheckJob
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import JobFailed, Message, PhaseBegins, ScheduleRun, StepNotLoaded

if TYPE_CHECKING:
    from kernelbench.kinds.protocol import CompiledProblem


_STILL_RUNNING = ": a loop without end, or slow: a larger --timeout tells"
#: A budget that is over before the first round is: half a round is never cut short.
_ONE_ROUND_S = 1e-3


@dataclass
class _Progress:
    """A row as messages build it up."""

    schedules: int = 0
    calls: dict[str, None] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    assumptions: dict[str, None] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    behind: set[str] = field(default_factory=set)
    rounds: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    unloadable: bool = False


class _Allotment:
    """Divides a step's budget of time: each case gets its part of what is left when it begins.

    Args:
        budget_s: From now on, for all cases; 0 for no limit.
        cases: Shapes and classes that will be run.
        at_once: How many run side by side.
    """

    def __init__(self, budget_s: float, cases: int, at_once: int) -> None:
        self._until = time.monotonic() + budget_s
        self._unlimited = not budget_s
        self._left = cases
        self._at_once = at_once
        self._lock = threading.Lock()

    def take(self, cases: int) -> float:
        """What each of so many cases that begin now may take; 0 for no limit."""
        if self._unlimited:
            return 0.0
        with self._lock:
            share = (self._until - time.monotonic()) * min(self._at_once, self._left) / self._left
            self._left -= cases
        return max(share, _ONE_ROUND_S)


class ScheduleChecker:
    """Checks steps one after another, shapes of a step in ``jobs`` workers at the same time."""

    _request: CheckRequest
    _allotment: _Allotment

    def __init__(self, jobs: int, on_progress: OnProgress) -> None:
        self._jobs = jobs
        self._on_progress = on_progress
        self._stop = threading.Event()
        #: Whether Ctrl-C ended it; what was done until then is in the results.
        self.interrupted = False

    def run(
        self, planned: Sequence[tuple[StepRun, CheckRequest]]
    ) -> Generator[StepCheck, None, None]:
        """Check every step as is asked of it; after Ctrl-C the step in hand is the last."""
        with contextlib.ExitStack() as stack:
            launchers = [stack.enter_context(Launcher()) for _ in range(self._jobs)]
            # One for all steps: a launcher goes with the thread that started it.
            pool = stack.enter_context(ThreadPoolExecutor(len(launchers)))
            for run, request in planned:
                self._request = request
                if self._stop.is_set():
                    return
                with tempfile.TemporaryDirectory(prefix="kernelbench-") as folder:
                    yield self._step(run, launchers, pool, Path(folder))

    def _step(
        self, run: StepRun, launchers: Sequence[Launcher], pool: ThreadPoolExecutor, counters: Path
    ) -> StepCheck:
        rows = [
            self._row(run, shape, "skipped", _Progress(reason=run.skip[shape.name]), 0.0)
            for shape in run.shapes
            if shape.name in run.skip
        ]
        left = [shape for shape in run.shapes if shape.name not in run.skip]
        self._memory: dict[MemoryMap, None] = {}
        sha = source_sha(run.step)
        if not left:
            return StepCheck(run.step.name, sha, None, tuple(rows))
        cases = len(run.classes) * len(left)
        self._allotment = _Allotment(self._request.budget_s, cases, min(self._jobs, cases))
        self._on_progress(f"{run.step.name}: building for the checker")
        try:
            binary = self._build(run)
        except CompileFailure as error:
            failed = _Progress(reason=str(error))
            rows += [self._row(run, shape, "fault", failed, 0.0) for shape in left]
            return StepCheck(run.step.name, sha, None, tuple(rows))
        rows += self._rows(run, left, launchers, pool, counters)
        order = {shape.name: i for i, shape in enumerate(run.shapes)}
        rows.sort(key=lambda row: order[row.shape])
        reached, not_reached = self._situations(run, rows)
        checked = StepCheck(
            *(run.step.name, sha, binary, tuple(rows)),
            reached=reached,
            not_reached=not_reached,
            unmatched=allowances.unmatched(allowances.of_step(run.step, {}), rows),
            memory=tuple(self._memory),
        )
        return self._with_coverage(checked, run, counters)

    def _situations(
        self, run: StepRun, rows: Sequence[CheckRow]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the shapes that were run through have made the step do, and what they have not."""
        done = {row.shape for row in rows if row.status == "clean"}
        if not hasattr(run.problem, "situations"):
            return (), ()
        problem = cast("CompiledProblem", run.problem)
        found: dict[str, bool] = {}
        for shape in run.shapes:
            for sms in self._request.sms:
                for name, happens in problem.situations(shape, run.step, sms).items():
                    found[name] = found.get(name, False) or (happens and shape.name in done)
        reached = tuple(name for name, happens in found.items() if happens)
        return reached, tuple(name for name in found if name not in reached)

    @staticmethod
    def _build(run: StepRun) -> str | None:
        """Build what a worker will open, and the hash of it; None if it is built by the calls."""
        EMULATOR.prepare_runtime(run.step)
        return EMULATOR.prepare_step(run.step, check=True)

    def _rows(
        self,
        run: StepRun,
        shapes: Sequence[Any],
        launchers: Sequence[Launcher],
        pool: ThreadPoolExecutor,
        counters: Path,
    ) -> list[CheckRow]:
        if len(launchers) == 1:
            return [
                self._shape(launchers[0], run, shape, counters)
                for shape in shapes
                if not self._stop.is_set()
            ]
        idle = [*launchers]

        def one(shape: Any) -> CheckRow:
            launcher = idle.pop()
            try:
                return self._shape(launcher, run, shape, counters)
            finally:
                idle.append(launcher)

        futures: list[Future[CheckRow]] = [pool.submit(one, shape) for shape in shapes]
        try:
            return [future.result() for future in futures]
        except BaseException as error:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            if not isinstance(error, KeyboardInterrupt):
                raise
            self.interrupted = True
            return [future.result() for future in futures if not future.cancelled()]

    def _shape(self, launcher: Launcher, run: StepRun, shape: Any, counters: Path) -> CheckRow:
        """Check one shape in a worker of its own."""
        began = time.monotonic()
        progress = _Progress()
        messages = launcher.run(self._job(run, shape, counters))
        try:
            for message in messages:
                self._take(run, shape, progress, message)
                if self._stop.is_set():
                    break
        except KeyboardInterrupt:
            self.interrupted = True
            self._stop.set()
        finally:
            close: Callable[[], None] = messages.close  # type: ignore[attr-defined]
            close()
        seconds = time.monotonic() - began
        ending = launcher.ending
        status: CheckStatus
        if ending is not None and ending.kind != "done":
            if ending.status in UNJUDGED:
                raise error_of(ending.status, f"{ending.reason} (shape {shape.name})")
            # A hang is what the emulator finds: nothing can run. Here threads still could.
            slow = ending.kind == "hang"
            status = "timeout" if slow else "fault"
            progress.reason = ending.reason + (_STILL_RUNNING if slow else "")
        else:
            allowances.apply(progress.seen, allowances.of_step(run.step, self._request.allow))
            status = self._status(progress)
        return self._row(run, shape, status, progress, seconds)

    def _status(self, progress: _Progress) -> CheckStatus:
        if progress.unloadable:
            return "fault"
        if progress.reason.startswith("skipped: "):
            return "skipped"
        if progress.reason.startswith("wrong: "):
            return "wrong"
        if any(seen.finding.kind == "hang" for seen in progress.seen.values()):
            return "hang"
        if any(seen.finding.kind == "timeout" for seen in progress.seen.values()):
            return "timeout"
        if any(not seen.allowed for seen in progress.seen.values()):
            return "finding"
        if progress.reason:
            # What ends a launch leaves nothing to be right: an allowance cannot make it so.
            return "finding" if progress.seen else "fault"
        if self._request.strict and progress.assumptions:
            progress.reason = f"rests on {', '.join(progress.assumptions)}, and --strict refuses it"
            return "finding"
        return "interrupted" if self._stop.is_set() else "clean"

    def _job(self, run: StepRun, shape: Any, counters: Path) -> CheckJob:
        request = self._request
        return CheckJob(
            step=run.step,
            lineage=run.lineage,
            shapes=(shape,),
            classes=run.classes,
            target=run.target,
            sms=request.sms,
            schedules=request.schedules,
            seed=request.seed,
            call_limit_s=request.call_limit_s,
            max_findings=request.max_findings,
            counters=str(counters),
            # Threads would fight for the counters of branches: shapes run side by side instead.
            os_threads=1,
            sequence=request.sequence,
            sequence_sms=sequence_sms(run, shape, request.sms),
            other_shape=other_shape(run, shape),
            budget_s=self._allotment.take(len(run.classes)),
            rounds=self._rounds(run, shape),
        )

    def _rounds(self, run: StepRun, shape: Any) -> tuple[int, ...]:
        asked = self._request.rounds.get(shape.name)
        return () if asked is None else tuple(asked.get(each, NO_ROUND) for each in run.classes)

    def _take(self, run: StepRun, shape: Any, progress: _Progress, message: Message) -> None:
        if isinstance(message, PhaseBegins):
            found = len(progress.seen)
            so_far = f", {found} finding{'s' if found > 1 else ''}" if found else ""
            self._on_progress(f"{run.step.name} {shape.name}: {message.name}{so_far}")
        elif isinstance(message, JobFailed):
            raise message.as_error()
        elif isinstance(message, StepNotLoaded):
            progress.reason, progress.unloadable = message.reason, True
        elif isinstance(message, ScheduleRun):
            if message.calls:
                progress.calls[message.calls] = None
                progress.behind.add(message.inputs)
            else:
                progress.schedules += 1
                progress.made[message.inputs] += 1
                progress.rounds[message.inputs] = message.index + 1
            progress.reason = message.reason
            if message.reason and message.calls:
                progress.reason += f" ({message.calls})"
            self._add(progress, message)
            self._memory |= dict.fromkeys(message.report.memory)

    @staticmethod
    def _add(progress: _Progress, message: ScheduleRun) -> None:
        report = message.report
        progress.assumptions |= dict.fromkeys(report.assumptions)
        counted = set()
        faults = report.faults
        for finding in report.findings:
            allowed = "" if finding in faults else why_formal(finding)
            known = progress.seen.get(finding.identity)
            if known is None:
                waits = report.waits if finding.kind == "hang" else ()
                seen = Seen(
                    finding, message.inputs, message.sms, message.index, waits=waits,
                    calls=message.calls, allowed=allowed,
                )  # fmt: skip
            else:
                total = replace(known.finding, count=known.finding.count + finding.count)
                again = finding.identity not in counted
                seen = replace(
                    known, finding=total, schedules=known.schedules + again,
                    allowed=known.allowed and allowed,
                )  # fmt: skip
            counted.add(finding.identity)
            progress.seen[finding.identity] = seen

    def _row(
        self, run: StepRun, shape: Any, status: CheckStatus, progress: _Progress, seconds: float
    ) -> CheckRow:
        request = self._request
        # What has ended the shape may have ended a round, too, unless its calls have come behind.
        ended = {*progress.made} - progress.behind if progress.reason else set()
        halves = {
            each: HALF_A_ROUND if made * 2 >= len(request.sms) else LEAST_OF_A_ROUND
            for each, made in progress.made.items()
            if made < len(request.sms) and each not in ended
        }
        return CheckRow(
            step=run.step.name,
            shape=shape.name,
            dims=shape.describe(),
            status=status,
            schedules=progress.schedules,
            asked=request.schedules * len(request.sms) * len(run.classes),
            seconds=round(seconds, 3),
            seen=tuple(progress.seen.values()),
            reason=progress.reason,
            calls=tuple(progress.calls),
            assumptions=tuple(progress.assumptions),
            rounds=progress.rounds | halves,
        )

    def _with_coverage(self, checked: StepCheck, run: StepRun, counters: Path) -> StepCheck:
        if not run.step.compiled:
            return replace(checked, note="branches of PTX are not counted")
        library = EMULATOR.library(run.step, check=True)
        folders = compiled.symbol_folders(run.step)
        try:
            found = branches.read_counters(counters, library, folders, emulator_compiler())
        except (branches.NoCoverage, EnvironmentProblem) as error:
            return replace(checked, note=str(error))
        return replace(checked, coverage=found)


def other_shape(run: StepRun, shape: Any) -> Any:
    """The next shape that the step takes, round the end; None if there is no other."""
    taken = [each for each in run.shapes if each.name not in run.skip]
    other = taken[(taken.index(shape) + 1) % len(taken)]
    return None if other is shape else other


def sequence_sms(run: StepRun, shape: Any, sms: Sequence[int]) -> int:
    """The number of SMs of a shape's calls in sequence, by turns a large and a middle one.

    What a host path sizes by its first call is too small for a later one only where SMs are left
    for more CTAs. The largest number is a whole GPU's, and takes long.

    Args:
        run: The step.
        shape: One of its shapes.
        sms: The numbers of SMs that were asked for.
    """
    taken = [each for each in run.shapes if each.name not in run.skip]
    return sorted(sms)[-2:][0] if taken.index(shape) % 2 == 0 else sms[len(sms) // 2]
