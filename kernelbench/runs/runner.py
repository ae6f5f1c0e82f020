"""``kernelbench run``, without its rendering: steps × shapes × input classes to result rows.

Each step runs in a worker (``worker/launcher.py``). A worker that hangs or dies costs the row that
it was at: the reason goes into that row and a fresh worker takes the remaining shapes.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, HarnessDefect, internal_error
from kernelbench.base.observer import OnProgress
from kernelbench.build.compiler import CompileFailure
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.executors.targets import Target
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.problem import Problem
from kernelbench.project.registry import Lineage, Step
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import Environment, Result
from kernelbench.runs.shape_rows import Failure, ShapeRows, against_floor, with_times
from kernelbench.worker.jobs import Arm, RunJob, Timing
from kernelbench.worker.launcher import Launcher, WorkerExit
from kernelbench.worker.messages import (
    BlockTimed,
    ClassChecked,
    EnvironmentRead,
    FloorRead,
    JobFailed,
    Message,
    MetricMeasured,
    PhaseBegins,
    ShapeBegins,
    TimingFailed,
    WorkCounted,
)


@dataclass(frozen=True)
class StepRun:
    """One step with all that is asked of it."""

    step: Step
    lineage: Lineage
    problem: Problem
    shapes: tuple[Any, ...]  #: Shapes to run, in order.
    classes: tuple[str, ...]  #: Input classes to check, the timed one first.
    target: Target
    #: Shape name to the limit of the step that it breaks.
    skip: dict[str, str] = field(default_factory=dict)


class Runner:
    """Runs steps one after another and yields their rows."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        seed: int,
        timing: Timing | None,
        call_limit_s: float,
        on_progress: OnProgress | None = None,
        references: str = "",
    ) -> None:
        self._launcher = launcher
        self._references = references
        self._seed = seed
        self._timing = timing
        self._call_limit_s = call_limit_s
        self._on_progress = on_progress or (lambda _text: None)
        #: The machine, as the first worker found it; None before.
        self.environment: Environment | None = None
        #: Raw samples, one entry per step, shape and metric.
        self.samples: list[dict[str, Any]] = []
        #: What the emulator found: step, shape, input class, report.
        self.reports: list[tuple[str, str, str, EmulatorReport]] = []
        self.internal_errors: list[HarnessDefect] = []  #: What went wrong in kernelbench itself.
        self._failed: JobFailed | None = None
        self._binary_sha: str | None = None

    def run(self, run: StepRun) -> Iterator[Result]:
        """Yield the rows of one step, shape by shape, as soon as each shape is finished.

        On KeyboardInterrupt the rows of the shape in hand are yielded with what was measured, and
        the interrupt is raised again.
        """
        for shape in run.shapes:
            if shape.name in run.skip:
                yield from self._skipped(run, shape, run.skip[shape.name])
        left = [shape for shape in run.shapes if shape.name not in run.skip]
        self._binary_sha = None
        if left:
            self._on_progress(f"{run.step.name}: building for {run.target.executor.name}")
            try:
                self._binary_sha = run.target.executor.prepare(run.step, run.problem, run.target)
            except CompileFailure as error:
                for shape in left:
                    yield from self._finish(run, shape, ShapeRows(), Failure("fault", str(error)))
                return
        while left:
            done = 0
            rows = ShapeRows()
            current: Any = None
            try:
                for message in self._launcher.run(self._job(run, tuple(left))):
                    if isinstance(message, ShapeBegins):
                        if current is not None:
                            yield from self._finish(run, current, rows)
                        current, rows = left[done], ShapeRows()
                        done += 1
                    self._take(run, current, rows, message)
            except KeyboardInterrupt:
                if current is not None and rows.checks and not rows.finished:
                    interrupted = Failure("skipped", "interrupted")
                    yield from self._finish(run, current, rows, interrupted)
                raise
            ending = self._launcher.ending
            failed, self._failed = self._failed, None
            if failed is None and (ending is None or ending.kind == "done"):
                if current is not None:
                    yield from self._finish(run, current, rows)
                left = left[done:]
                if current is None:
                    return
                continue
            failure = self._failure(failed, ending)
            if current is None:
                # It died while loading the step: every shape would.
                for shape in left:
                    yield from self._finish(run, shape, ShapeRows(), failure)
                return
            yield from self._finish(run, current, rows, failure)
            left = left[done:]

    def _failure(self, failed: JobFailed | None, ending: WorkerExit | None) -> Failure:
        """Why the worker did not go on; EnvironmentProblem if it never came as far as the step."""
        if failed is not None:
            if failed.traceback:
                self.internal_errors.append(internal_error(failed.reason, failed.traceback))
            return Failure(failed.status, failed.reason)
        assert ending is not None
        if self.environment is None and ending.phase in ("start", "environment"):
            raise EnvironmentProblem(
                f"the worker failed before it reached the step: {ending.reason}",
                "see `kernelbench doctor`",
            )
        return Failure(ending.status, ending.reason)

    def _job(self, run: StepRun, shapes: tuple[Any, ...]) -> RunJob:
        return RunJob(
            Arm(run.step),
            run.lineage,
            shapes,
            run.classes,
            run.target,
            self._seed,
            self._timing if run.target.timed else None,
            self._call_limit_s,
            own_stream=True,
            references=self._references,
        )

    def _take(self, run: StepRun, shape: Any, rows: ShapeRows, message: Message) -> None:
        match message:
            case PhaseBegins():
                where = f" {shape.name}" if shape is not None else ""
                self._on_progress(f"{run.step.name}{where}: {message.name}")
            case EnvironmentRead():
                self.environment = self.environment or message.environment
            case ClassChecked():
                rows.checks[message.inputs] = message.result
                if message.result.report is not None:
                    found = (run.step.name, shape.name, message.inputs, message.result.report)
                    self.reports.append(found)
            case WorkCounted():
                rows.work = message.work
            case FloorRead():
                rows.floor, rows.floor_note = message.floor, message.note
            case BlockTimed():
                rows.samples.setdefault(message.metric, []).append(message.block)
                self._report_blocks(run, shape, rows, message.metric)
            case MetricMeasured():
                rows.measured[message.metric] = message
            case JobFailed():
                self._failed = message
            case TimingFailed():
                rows.fault = Failure(message.status, message.reason)

    def _report_blocks(self, run: StepRun, shape: Any, rows: ShapeRows, metric: Metric) -> None:
        if self._timing is not None:
            taken = sum(len(block.values) for block in rows.samples[metric])
            self._on_progress(
                f"{run.step.name} {shape.name}: {metric} time, {taken}/{self._timing.reps} reps"
            )

    def _base(self, run: StepRun, shape: Any, input_class: str) -> Result:
        return Result(
            step=run.step.name, lineage=run.step.lineage, problem=run.problem.name,
            shape=shape.name, dims=shape.describe(), inputs=input_class,
            executor=run.target.executor.name, status="skipped", exact=None, max_abs_err=None,
            metrics={}, reason="", source_sha=source_sha(run.step), binary_sha=self._binary_sha,
        )  # fmt: skip

    def _skipped(self, run: StepRun, shape: Any, reason: str) -> Iterator[Result]:
        for input_class in run.classes:
            yield replace(self._base(run, shape, input_class), reason=reason)

    def _finish(
        self, run: StepRun, shape: Any, rows: ShapeRows, failure: Failure | None = None
    ) -> Iterator[Result]:
        """Rows of a shape; ``failure`` goes to the first class not checked, or to the timing.

        Ctrl-C waits until the last of them has been taken.
        """
        with defer_sigint():
            rows.finished = True
            yield from self._rows_of(run, shape, rows, failure)

    def _rows_of(
        self, run: StepRun, shape: Any, rows: ShapeRows, failure: Failure | None
    ) -> Iterator[Result]:
        failure = failure or rows.fault
        if failure is not None and any(c.status == "fault" for c in rows.checks.values()):
            # The worker went down with what the check has reported already.
            failure = Failure("skipped", "not run after the fault")
        for index, input_class in enumerate(run.classes):
            base = self._base(run, shape, input_class)
            check = rows.checks.get(input_class)
            if check is None:
                if failure is not None:
                    yield replace(base, status=failure.status, reason=failure.reason)
                    failure = self._afterwards(failure)
                else:
                    yield replace(base, reason="not run")
                continue
            row = replace(
                base, status=check.status, exact=check.exact, max_abs_err=check.max_abs_err,
                rel_rms_err=check.rel_rms_err, reason=check.reason, notes=check.notes,
            )  # fmt: skip
            if index == 0:
                row = self._timed(row, rows)
                if failure is not None and len(rows.checks) == len(run.classes):
                    row = self._with_failure(row, failure)
            yield row

    @staticmethod
    def _afterwards(failure: Failure) -> Failure:
        """What a failure means for the classes that come after the one whose row tells of it."""
        reason = failure.reason
        if failure.status != "skipped":
            reason = f"not run after the {failure.status}"
        elif not reason.startswith("not run"):
            reason = f"not run: {reason}"
        return Failure("skipped", reason)

    @staticmethod
    def _with_failure(row: Result, failure: Failure) -> Result:
        if failure.status == "skipped" or row.status != "pass":
            # A fault of the check says more than the end of the worker that it led to.
            return replace(row, notes=(*row.notes, failure.reason))
        return replace(row, status=failure.status, reason=failure.reason, metrics={})

    def _timed(self, row: Result, rows: ShapeRows) -> Result:
        """The row with its times, their raw samples kept."""
        row, samples = with_times(row, rows)
        self.samples += samples
        if self.environment is None or self._timing is None:
            return row
        return against_floor(row, rows.work, self.environment.device, self._timing)


def warnings_of(environment: Environment) -> Sequence[str]:
    """What a user must know about the machine before trusting figures."""
    found = []
    if environment.gpu_processes:
        found.append(
            f"{environment.gpu_processes} other process(es) use this GPU: times will be noisy"
        )
    if environment.mig:
        found.append("this GPU is a MIG slice: figures are not those of the whole device")
    return found


@contextlib.contextmanager
def defer_sigint() -> Iterator[None]:
    """Hold SIGINT back until the block has ended; then it is raised, for whoever handles it.

    For short work that loses something when it is interrupted, such as a first import of numpy: a
    module in C that was half imported cannot be imported again in the same process. Outside the
    main thread, which alone is interrupted, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        # None: a handler that was not installed from Python, which cannot be put back.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if came:
            signal.raise_signal(signal.SIGINT)
