"""``kernelbench run``, without its rendering: steps × shapes × input classes to result rows.

Each step runs in a worker (``worker/launcher.py``). A worker that hangs or dies costs the row that
it was at: the reason goes into that row and a fresh worker takes the remaining shapes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelbench.base.callbacks import OnProgress
from kernelbench.base.defects import defect
from kernelbench.base.errors import EnvironmentProblem, HarnessDefect
from kernelbench.base.interrupts import held_back
from kernelbench.build.compiler import CompileFailure
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.executors.targets import Target
from kernelbench.measure import speed_of_light
from kernelbench.measure.outcomes import CheckResult, TimedBlock
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.problem import Problem, Work
from kernelbench.project.registry import Lineage, Step
from kernelbench.records.run_record import (
    Environment,
    ReadFloor,
    Result,
    ResultStatus,
    TimeStats,
    summarize,
)
from kernelbench.worker.jobs import Arm, RunJob, Timing
from kernelbench.worker.launcher import Launcher
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
    """One step with all that is asked of it.

    Attributes:
        shapes: Shapes to run, in order.
        classes: Input classes to check, the timed one first.
        skip: Shape name to the limit of the step that it breaks.
    """

    step: Step
    lineage: Lineage
    problem: Problem
    shapes: tuple[Any, ...]
    classes: tuple[str, ...]
    target: Target
    skip: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """What ended a shape before all of it was done."""

    status: ResultStatus
    reason: str


@dataclass
class _Rows:
    """The rows of one shape as messages build them up."""

    checks: dict[str, CheckResult] = field(default_factory=dict)
    samples: dict[str, list[TimedBlock]] = field(default_factory=dict)
    measured: dict[str, MetricMeasured] = field(default_factory=dict)
    fault: Failure | None = None
    work: Work | None = None
    floor: ReadFloor | None = None
    floor_note: str = ""
    finished: bool = False


class Runner:
    """Runs steps one after another and yields their rows.

    Attributes:
        environment: The machine, as the first worker found it; None before.
        samples: Raw samples, one entry per step, shape and metric.
        reports: What the emulator found: step, shape, input class, report.
        defects: What went wrong in kernelbench itself.
    """

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
        self.environment: Environment | None = None
        self.samples: list[dict[str, Any]] = []
        self.reports: list[tuple[str, str, str, EmulatorReport]] = []
        self.defects: list[HarnessDefect] = []
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
                    yield from self._finish(run, shape, _Rows(), Failure("fault", str(error)))
                return
        while left:
            done = 0
            rows = _Rows()
            current: Any = None
            try:
                for message in self._launcher.run(self._job(run, tuple(left))):
                    if isinstance(message, ShapeBegins):
                        if current is not None:
                            yield from self._finish(run, current, rows)
                        current, rows = left[done], _Rows()
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
            if failed is not None:
                failure = Failure(failed.status, failed.reason)
                if failed.traceback:
                    self.defects.append(defect(failed.reason, failed.traceback))
            else:
                assert ending is not None
                failure = Failure(ending.status, ending.reason)
            if (
                failed is None
                and self.environment is None
                and ending is not None
                and ending.phase in ("start", "environment")
            ):
                raise EnvironmentProblem(
                    f"the worker failed before it reached the step: {ending.reason}",
                    "see `kernelbench doctor`",
                )
            if current is None:
                # It died while loading the step: every shape would.
                for shape in left:
                    yield from self._finish(run, shape, _Rows(), failure)
                return
            yield from self._finish(run, current, rows, failure)
            left = left[done:]

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

    def _take(self, run: StepRun, shape: Any, rows: _Rows, message: Message) -> None:
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

    def _report_blocks(self, run: StepRun, shape: Any, rows: _Rows, metric: str) -> None:
        if self._timing is not None:
            taken = sum(len(block.time_us) for block in rows.samples[metric])
            self._on_progress(
                f"{run.step.name} {shape.name}: {metric} time, {taken}/{self._timing.reps} reps"
            )

    def _base(self, run: StepRun, shape: Any, input_class: str) -> Result:
        return Result(
            step=run.step.name,
            lineage=run.step.lineage,
            problem=run.problem.name,
            shape=shape.name,
            dims=shape.describe(),
            inputs=input_class,
            executor=run.target.executor.name,
            status="skipped",
            exact=None,
            max_abs_err=None,
            call_us=None,
            device_us=None,
            reason="",
            source_sha=source_sha(run.step),
            binary_sha=self._binary_sha,
        )

    def _skipped(self, run: StepRun, shape: Any, reason: str) -> Iterator[Result]:
        for input_class in run.classes:
            yield replace(self._base(run, shape, input_class), reason=reason)

    def _finish(
        self,
        run: StepRun,
        shape: Any,
        rows: _Rows,
        failure: Failure | None = None,
    ) -> Iterator[Result]:
        """Rows of a shape; ``failure`` goes to the first class not checked, or to the timing.

        Ctrl-C waits until the last of them has been taken.
        """
        with held_back():
            rows.finished = True
            yield from self._rows_of(run, shape, rows, failure)

    def _rows_of(
        self, run: StepRun, shape: Any, rows: _Rows, failure: Failure | None
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
                base,
                status=check.status,
                exact=check.exact,
                max_abs_err=check.max_abs_err,
                rel_rms_err=check.rel_rms_err,
                reason=check.reason,
                notes=check.notes,
            )
            if index == 0:
                row = self._with_times(run, shape, row, rows)
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
        return replace(
            row,
            status=failure.status,
            reason=failure.reason,
            call_us=None,
            device_us=None,
        )

    def _with_times(self, run: StepRun, shape: Any, row: Result, rows: _Rows) -> Result:
        times: dict[str, TimeStats | None] = {"call": None, "device": None}
        clocks: list[float] = []
        notes = list(row.notes)
        throttled: set[str] = set()
        for metric, blocks in rows.samples.items():
            values = [t for block in blocks for t in block.time_us]
            complete = rows.measured.get(metric)
            method = complete.method if complete else "incomplete"
            if not complete:
                notes.append(
                    f"{metric} time incomplete: {len(values)} reps, outputs not re-checked"
                )
            else:
                notes += complete.notes
            times[metric] = summarize(values, method)
            clocks += [block.sm_mhz for block in blocks if block.sm_mhz]
            throttled |= {reason for block in blocks for reason in block.throttle}
            self.samples.append(
                {
                    "step": row.step,
                    "shape": row.shape,
                    "metric": metric,
                    "method": method,
                    "blocks": [block.to_json() for block in blocks],
                }
            )
        if rows.floor_note:
            notes.append(rows.floor_note)
        if throttled:
            notes.append("clock slowed while timed: " + ", ".join(sorted(throttled)))
        row = replace(
            row,
            call_us=times["call"],
            device_us=times["device"],
            notes=tuple(notes),
            floor=rows.floor,
            sm_mhz=statistics.median(clocks) if clocks else None,
        )
        return self._against_floor(row, rows.work)

    def _against_floor(self, row: Result, work: Work | None) -> Result:
        """Add the speed of light; a time below the datasheet's floor fails the row."""
        if work is None or not work.bytes_total or self.environment is None or self._timing is None:
            return row
        ceilings = speed_of_light.datasheet(self.environment.device)
        if ceilings is None:
            return row
        floor = speed_of_light.speed_of_light(work, ceilings, self._timing.l2)
        row = replace(row, sol_us=floor.us)
        # Of fifteen calls in one event pair only the first is cold.
        warm = speed_of_light.speed_of_light(work, ceilings, "warm")
        call_floor = floor if self._timing.call == "single" else warm
        for name, stats, least in (
            ("device", row.device_us, floor),
            ("call", row.call_us, call_floor),
        ):
            if stats is not None and speed_of_light.below_floor(stats.median, least):
                return replace(
                    row,
                    status="wrong",
                    reason=f"{name} time {stats.median:.2f} µs is impossible: no right kernel "
                    f"takes less than {least.impossible_us:.2f} µs ({least.l2_mode} L2)",
                )
        return row


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
