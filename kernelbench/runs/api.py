"""``kernelbench.run``: check steps for correctness, then time them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from kernelbench.base import schema
from kernelbench.base.errors import KernelbenchError, ended_early
from kernelbench.base.observer import Observer
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.machine.environment import read_environment
from kernelbench.problems.task_folder import TaskContext
from kernelbench.project.context import parse_results
from kernelbench.records import run_record, store
from kernelbench.records.metrics import TIMES, Metric
from kernelbench.records.run_record import CallForm, Environment, Protocol, Result, RunRecord
from kernelbench.runs.plan import plan, resolve_context
from kernelbench.runs.runner import Runner, StepRun, warnings_of
from kernelbench.runs.settings import (
    Measuring,
    MeasuringOptions,
    Names,
    call_text,
    names_of,
    one_of,
    require_results,
    step_names,
)
from kernelbench.runs.shape_rows import with_distance
from kernelbench.worker.jobs import Timing
from kernelbench.worker.launcher import Launcher


@dataclass(frozen=True)
class RunPlan:
    """What a run is about to do."""

    steps: tuple[StepRun, ...]
    settings: Measuring
    timing: Timing | None  #: None if nothing is timed.


def run(
    steps: Names,
    shapes: Names | None = None,
    *,
    executor: str = "auto",
    inputs: Names | None = None,
    call: CallForm = "single",
    metrics: Sequence[Metric] = TIMES,
    timed: bool = True,
    peers: bool = False,
    task: str | Path | None = None,
    emulation: Emulation = DEFAULT_EMULATION,
    save: bool = False,
    results: str | Path | None = None,
    command: str | None = None,
    observer: Observer | None = None,
    **measuring: Unpack[MeasuringOptions],
) -> RunRecord:
    """Check steps for correctness, then time them, in the project of the current folder.

    Whether a row is right is in its status: look at :attr:`RunRecord.failures`,
    and at :attr:`RunRecord.unjudged` for rows that say nothing of their step.

    Args:
        steps: A step's name, a range (``v01..v07``), a lineage's name, a step's folder or a Python
            file with ``custom_kernel(data)``; or several.
        shapes: By name or ad hoc (``m=40,76:n=512:k=768``); the problem's benchmark shapes if None.
        executor: What runs them; ``auto`` picks the best that this machine has.
        inputs: Input classes to check, the first being timed; all of them if None.
        call: Call time of single calls, or of 15 in one event pair.
        metrics: What to measure on a GPU; of a CPU there is only call time.
        timed: Whether to time what is right; only what stands for a device is timed.
        peers: Also run the lineage's peers.
        task: Folder of a GPU MODE task in place of the project's problems; its tests are then
            checked and its benchmarks timed if ``shapes`` is None.
        emulation: What is emulated, where the emulator runs a step.
        save: Whether to keep record and raw samples in ``results`` (the project's, if None).
        command: What the record says made it; the Python call if None.
        observer: Told what happens. How far a row is from the newest one in ``results`` is only in
            the record.
        measuring: The fields of :class:`~kernelbench.runs.settings.Measuring`: ``reps``, ``l2``,
            ``device``, ``seed``, ``timeout_s``, ``budget_s``.

    Raises:
        UsageError: For what does not exist or is out of range.
        EnvironmentProblem: For what this machine lacks, and if the record cannot be saved.
        Interrupted: After Ctrl-C. As of every error, ``partial`` is the record up to there, which
            is saved, too.
    """
    observer = observer or Observer()
    one_of("call", call, ("single", "competition"))
    steps, shapes = step_names(steps), names_of(shapes)
    context, settings = resolve_context(task, measuring)
    if isinstance(context, TaskContext) and not shapes:
        shapes = ("tests", "all")
    folder = parse_results(results, context.project)
    if save:
        require_results(folder, "choose another with --results, or give --no-save")
    plans = plan(
        context, steps, shapes, executor, names_of(inputs), settings.device,
        warn=observer.warning, emulation=emulation, peers=peers, skip_missing=executor == "auto",
    )  # fmt: skip
    timed = timed and any(step_plan.target.timed for step_plan in plans)
    timing = settings.timing(*sorted(metrics), call=call) if timed else None
    planned = RunPlan(tuple(plans), settings, timing)
    observer.planned(planned)
    measured = _measure(planned, observer)
    record = _record(command or call_text("run", *steps, *shapes), planned, measured)
    record = _noted(record, folder)
    for warning in (*warnings_of(record.environment), *measured.runner.internal_errors):
        observer.warning(str(warning))
    for found in measured.runner.reports:
        observer.reported(*found)
    if save:
        _save(folder, record, measured, observer)
    if measured.failure is not None:
        raise ended_early(measured.failure, record)
    return record


@dataclass
class _Measured:
    """What came of a plan."""

    runner: Runner
    rows: list[Result] = field(default_factory=list)
    failure: BaseException | None = None


def _measure(planned: RunPlan, observer: Observer) -> _Measured:
    """Run the steps one after another; raises only if there is no row to keep."""
    settings = planned.settings
    with shared_folder(planned.steps) as shared, Launcher() as launcher:
        runner = Runner(
            launcher, seed=settings.seed, timing=planned.timing,
            call_limit_s=settings.timeout_s, on_progress=observer.progress, references=shared,
        )  # fmt: skip
        measured = _Measured(runner)
        try:
            for step_plan in planned.steps:
                for row in runner.run(step_plan):
                    measured.rows.append(row)
                    observer.row(row)
        except (KernelbenchError, KeyboardInterrupt) as error:
            measured.failure = error
    if measured.failure is not None and not measured.rows:
        raise ended_early(measured.failure, None)
    return measured


def _record(command: str, planned: RunPlan, measured: _Measured) -> RunRecord:
    environment = measured.runner.environment
    if environment is None:
        # No worker was needed: every shape is beyond its step's limits.
        target = planned.steps[0].target
        environment = read_environment(target.device, target.gpu)
    return RunRecord(
        schema=run_record.RUN_SCHEMA,
        id=run_record.new_id(),
        created=run_record.now_iso(),
        command=command,
        device=environment.device,
        environment=environment,
        protocol=_protocol(planned, environment),
        results=tuple(measured.rows),
        complete=measured.failure is None,
        extra={
            "kinds": {step_plan.step.name: step_plan.step.kind for step_plan in planned.steps},
            **_emulated(planned.steps),
        },
    )


def _noted(record: RunRecord, folder: Path) -> RunRecord:
    """With a note on each device time that is far from the newest kept one."""
    if not any("device" in row.metrics for row in record.results):
        return record
    kept = store.newest_figures(folder)[0].get(record.device, ())
    return replace(record, results=with_distance(record.results, kept, record.protocol.l2))


def _protocol(planned: RunPlan, environment: Environment) -> Protocol:
    timing = planned.timing
    on_gpu = any(step_plan.target.gpu is not None for step_plan in planned.steps)
    cold = timing is not None and timing.l2 == "cold" and on_gpu
    return Protocol(
        seed=planned.settings.seed,
        reps=timing.reps if timing else 0,
        warmups=timing.warmups if timing else 0,
        l2="none" if timing is None or not on_gpu else timing.l2,
        call=timing.call if timing else "single",
        flush_bytes=2 * environment.l2_bytes if cold else 0,
        time_budget_s=None if on_gpu or timing is None else timing.budget_s,
    )


def _emulated(plans: Sequence[StepRun]) -> dict[str, Any]:
    """What was emulated, for the record."""
    for step_plan in plans:
        if step_plan.target.emulation is not None:
            return {"emulation": schema.encode(step_plan.target.emulation)}
    return {}


def _save(folder: Path, record: RunRecord, measured: _Measured, observer: Observer) -> None:
    try:
        path = store.save_run(folder, record, measured.runner.samples)
    except (KernelbenchError, KeyboardInterrupt) as error:
        raise ended_early(error, record) from error
    observer.saved(path)


@contextlib.contextmanager
def shared_folder(runs: Sequence[StepRun]) -> Iterator[str]:
    """A folder for what these runs can share; empty if that is nothing. It goes with the block."""
    sharing = [run for run in runs if run.target.gpu is None and not run.step.submission]
    if len(sharing) < 2:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="kernelbench-references-") as folder:
        yield folder
