"""``kernelbench bringup``, without its rendering: the first contact with a GPU, stage by stage.

What has been found is written after every stage, and when a stage fails or is interrupted; a stage
that fails does not keep the next ones from running.

Each step runs in workers of the runner, which bounds every phase of them. What is timed should
have the GPU to itself: processes that are not ours are waited for, and marked where they stay.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem, KernelbenchError
from kernelbench.base.observer import OnProgress
from kernelbench.base.version import __version__
from kernelbench.bringup import native_stages
from kernelbench.bringup.bringup_record import (
    BRINGUP_SCHEMA,
    SHARED,
    BringupLine,
    BringupRecord,
    Stage,
    StageOutcome,
    figure,
    save_bringup,
)
from kernelbench.executors.gpu import GPU
from kernelbench.inspection import doctor
from kernelbench.machine import clocks, devices
from kernelbench.machine.arch import STEP_ARCHES
from kernelbench.machine.devices import GpuInfo
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.registry import Step
from kernelbench.records import run_record
from kernelbench.records.run_record import FAILED, Environment, Result
from kernelbench.runs import plan
from kernelbench.runs.runner import Runner, StepRun
from kernelbench.worker.jobs import Timing
from kernelbench.worker.launcher import Launcher

OnStage = Callable[[Stage], None]

TITLES = {
    "environment": "The machine",
    "functions": "Functions of the ptx layer, native against emulated",
    "points": "Open points",
    "small": "Steps on small shapes",
    "timed": "Steps on benchmark shapes, timed",
}
#: CUDA ordinal of the GPU: the one that the parity cases use, too.
DEVICE = 0
_REPS, _QUICK_REPS, _WARMUPS = 500, 100, 50
#: Seconds from one look at who uses the GPU to the next.
_POLL_S = 1.0
#: How the complaint of ``measure/gpu_call_time.py`` begins that work escapes the events. It is
#: drawn from host time beyond the events, which is long, too, where the GPU gives another process
#: its turn between.
_ESCAPED = "device work goes on after the step's end event"
_NOT_JUDGED = "not judged: "
_OUTCOMES: dict[str, StageOutcome] = {"hang": "TIMED OUT", "wrong": "DIFFERS", "fault": "FAILED"}


@dataclass(frozen=True)
class BringupOptions:
    """What the command line chooses."""

    seed: int
    quick: bool
    limit_s: float  #: Longest that one process of parity cases, or one phase of a step, may take.
    wait_s: float  #: Longest wait, before anything is timed, for other processes to leave the GPU.
    report: Path  #: The JSON file; the Markdown goes beside it.
    command: str
    planted: bool = False  #: Whether probes run with faults planted, too.


def native_gpu() -> tuple[GpuInfo, str]:
    """The GPU and the backend that is native on it; EnvironmentProblem if there is none."""
    found = devices.gpus()
    if not found:
        raise EnvironmentProblem(
            f"bringup needs a GPU: {devices.gpu_problem()}", "`kernelbench doctor` shows more"
        )
    gpu = found[DEVICE]
    for name, arch in STEP_ARCHES.items():
        if gpu.capability == arch.capability:
            return gpu, name.replace("_", "")
    known = ", ".join(STEP_ARCHES)
    raise EnvironmentProblem(
        f"bringup needs a GPU of {known}; this is {gpu.name} ({gpu.arch})",
        "choose another with CUDA_VISIBLE_DEVICES",
    )


@dataclass(frozen=True)
class StepRows:
    """A step, its rows of one stage, and the line that sums them up."""

    step: Step
    rows: tuple[Result, ...]
    line: BringupLine


def native_steps(context: Context, quick: bool) -> list[Step]:
    """Compiled steps that are meant to be right and that this GPU runs natively.

    The main line first; with ``quick`` nothing but it.
    """
    found = [
        step
        for step in context.lineages.all_steps
        if step.compiled
        and step.status in ("works", "fixed")
        and not (quick and step.experiment)
        and GPU.availability(step, DEVICE)[0]
    ]
    return sorted(found, key=lambda step: step.experiment)


@dataclass
class StepStage:
    """Runs steps one after another."""

    context: Context
    seed: int
    limit_s: float
    progress: OnProgress
    #: The machine as the first worker found it; None before.
    environment: Environment | None = None
    #: Every row so far, those of a step that was interrupted included.
    results: list[Result] = field(default_factory=list)
    _others: int | None = None

    def small(self, steps: Sequence[Step], quick: bool) -> Iterator[StepRows]:
        """Each step on its problem's small shapes and, unless ``quick``, all input classes."""
        with Launcher() as launcher:
            for step in steps:
                problem = load_problem(self.context.lineage_for(step))
                shapes = self.context.check_shapes(problem)
                plan = self._plan(step, shapes, problem.input_classes[:1] if quick else ())
                yield self._run(launcher, plan, None)

    def wait_for_others(self, wait_s: float) -> BringupLine:
        """Wait until no process but ours uses the GPU, at most ``wait_s`` seconds; what came of it.

        Between steps no worker runs: whoever uses the GPU is not ours.
        """
        end = time.monotonic() + wait_s
        while others := clocks.other_processes(DEVICE):
            left = end - time.monotonic()
            if left <= 0:
                break
            self.progress(f"{others} other process(es) use the GPU: up to {left:.0f} s of waiting")
            time.sleep(min(left, _POLL_S))
        self._others = others
        if others is None:
            return BringupLine("GPU", "warn", "NVML does not tell which processes use it")
        if others == 0:
            return BringupLine("GPU", "ok", "no other process used it when timing began")
        text = f"{others} other process(es) used it when timing began"
        return BringupLine("GPU", "warn", f"{text}, after {wait_s:g} s of waiting")

    def timed(self, steps: Sequence[Step], quick: bool) -> Iterator[StepRows]:
        """Each step on the benchmark shapes: checked on all input classes, then timed.

        With ``quick`` on the first shape that it takes, and on the class that is timed. A row of a
        time when other processes used the GPU says so in its notes.
        """
        timing = Timing(
            _QUICK_REPS if quick else _REPS, _WARMUPS, "cold", "single", ("call", "device"), 10.0
        )
        with Launcher() as launcher:
            for step in steps:
                run = self._plan(step, (), ())
                if quick:
                    shapes = [shape for shape in run.shapes if shape.name not in run.skip][:1]
                    run = replace(run, shapes=tuple(shapes), classes=run.classes[:1])
                yield self._run(launcher, run, timing)

    def _plan(self, step: Step, shapes: Sequence[str], classes: Sequence[str]) -> StepRun:
        (run,) = plan.plan(
            self.context, [step.name], shapes, GPU.name, classes, DEVICE, warn=self.progress
        )
        return run

    def _run(self, launcher: Launcher, run: StepRun, timing: Timing | None) -> StepRows:
        runner = Runner(
            launcher, seed=self.seed, timing=timing, call_limit_s=self.limit_s,
            on_progress=self.progress,
        )  # fmt: skip
        before = len(self.results)
        shared = False
        try:
            for row in runner.run(run):
                self.results.append(row)
        finally:
            if timing is not None and self._saw_others(runner.environment):
                shared = True
                self.results[before:] = [_beside_others(row) for row in self.results[before:]]
        rows = tuple(self.results[before:])
        self.environment = self.environment or runner.environment
        line = _line(run.step, rows, timed=timing is not None)
        return StepRows(run.step, rows, replace(line, shared=shared))

    def _saw_others(self, environment: Environment | None) -> bool:
        """Whether others used the GPU before a step that ended now, as it began, or after it."""
        found = [self._others, environment.gpu_processes if environment else 0]
        self._others = clocks.other_processes(DEVICE)
        return any([*found, self._others])


def _beside_others(row: Result) -> Result:
    """A row of the timed stage, with what other work on the GPU makes of it."""
    if row.status == "wrong" and row.reason.startswith(_ESCAPED):
        row = replace(row, status="skipped", reason=_NOT_JUDGED + row.reason)
    elif not row.metrics:
        return row
    return replace(row, notes=(*row.notes, SHARED))


def _line(step: Step, rows: Sequence[Result], *, timed: bool) -> BringupLine:
    bad = [row for row in rows if row.status in FAILED]
    unjudged = [row for row in rows if row.reason.startswith(_NOT_JUDGED)]
    ran = [row for row in rows if row.status == "pass"]
    where = f"{len(ran)} of {len(rows)} rows right"
    if odd := bad or unjudged:
        first = odd[0]
        why = f"{first.status}: {first.reason}" if bad else first.reason
        text = f"{where}; {first.shape} {first.inputs}: {why}"
        return BringupLine(step.name, _OUTCOMES[first.status] if bad else "NOT JUDGED", text)
    if not ran:
        why = rows[0].reason if rows else "no shape that it takes"
        return BringupLine(step.name, "NOT RUN", why)
    limits = {row.reason for row in rows if row.status == "skipped"}
    skipped = f"; not run: {', '.join(sorted(limits))}" if limits else ""
    untimed = timed and not any(row.metrics for row in ran)
    return BringupLine(step.name, "PASS", where + skipped + ("; not timed" if untimed else ""))


class Bringup:
    """Runs the stages."""

    def __init__(
        self, context: Context, options: BringupOptions, on_progress: OnProgress, on_stage: OnStage
    ) -> None:
        self._options = options
        self._context = context
        self._progress = on_progress
        self._on_stage = on_stage
        self._gpu, self._backend = native_gpu()
        self._steps = StepStage(context, options.seed, options.limit_s, on_progress)
        self._right: set[str] = set()
        stages = tuple(
            Stage(name, title, "not run", "not reached") for name, title in TITLES.items()
        )
        #: All that was found so far; on disk after every stage.
        self.record = BringupRecord(
            schema=BRINGUP_SCHEMA, created=run_record.now_iso(), command=options.command,
            version=__version__, device=self._gpu.name, arch=self._gpu.arch, seed=options.seed,
            quick=options.quick, complete=False, stages=stages,
        )  # fmt: skip

    def run(self) -> None:
        """Run every stage; the report is written whatever happens, Ctrl-C included."""
        save_bringup(self._options.report, self.record)
        bodies = (self._environment, self._functions, self._points, self._small, self._timed)
        for index, (name, body) in enumerate(zip(TITLES, bodies, strict=True)):
            self._stage(index, name, body)
        self.record = replace(self.record, complete=True)
        save_bringup(self._options.report, self.record)

    def _stage(self, index: int, name: str, body: Callable[[], Iterator[BringupLine]]) -> None:
        self._progress(TITLES[name])
        began = time.monotonic()
        lines: list[BringupLine] = []
        stage = Stage(name, TITLES[name], "stopped")
        try:
            for line in body():
                lines.append(line)
            stage = replace(stage, state="done")
        except KernelbenchError as error:
            stage = replace(stage, state="failed", reason=str(error))
        except Exception as error:
            # A defect here; the stages behind it are worth more than its traceback.
            at = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"defect at {Path(at.filename).name}:{at.lineno}: {error!r}"
            stage = replace(stage, state="failed", reason=reason)
        finally:
            seconds = round(time.monotonic() - began, 1)
            stage = replace(stage, seconds=seconds, lines=tuple(lines))
            before, after = self.record.stages[:index], self.record.stages[index + 1 :]
            self.record = replace(
                self.record, stages=(*before, stage, *after), results=tuple(self._steps.results),
                environment=self._steps.environment,
            )  # fmt: skip
            save_bringup(self._options.report, self.record)
            self._on_stage(stage)

    def _environment(self) -> Iterator[BringupLine]:
        for row in doctor.examine().rows:
            detail = f"{row.detail}; {row.action}" if row.action else row.detail
            yield BringupLine(row.name, row.state, detail)

    def _functions(self) -> Iterator[BringupLine]:
        options = self._options
        native_stages.build_all(self._backend, self._progress)
        seeds = [options.seed + i for i in range(1 if options.quick else 2)]
        yield from native_stages.functions(self._backend, seeds, options.limit_s, self._progress)

    def _points(self) -> Iterator[BringupLine]:
        options = self._options
        return native_stages.points(
            *(self._backend, options.seed, options.limit_s, self._progress), planted=options.planted
        )

    def _small(self) -> Iterator[BringupLine]:
        steps = native_steps(self._context, self._options.quick)
        for found in self._steps.small(steps, self._options.quick):
            if found.line.outcome == "PASS":
                self._right.add(found.step.name)
            yield found.line

    def _timed(self) -> Iterator[BringupLine]:
        steps = native_steps(self._context, self._options.quick)
        for step in steps:
            if step.name not in self._right:
                yield BringupLine(step.name, "NOT RUN", "not right on small shapes")
        right = [step for step in steps if step.name in self._right]
        if right:
            yield self._steps.wait_for_others(self._options.wait_s)
        for found in self._steps.timed(right, self._options.quick):
            figures = tuple(
                figure(found.step, row, shared=found.line.shared)
                for row in found.rows
                if row.metrics and row.status == "pass"
            )
            self.record = replace(self.record, figures=self.record.figures + figures)
            yield found.line
