"""``kernelbench calibrate`` without its rendering: collect, judge, keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from kernelbench.base.errors import EnvironmentProblem, KernelbenchError, UsageError, ended_early
from kernelbench.base.observer import Observer, OnProgress
from kernelbench.compare.calibration_samples import Collector
from kernelbench.project.context import Context, parse_results
from kernelbench.records import run_record
from kernelbench.records.calibration_record import CalibrationRecord, save_calibration
from kernelbench.records.metrics import TIMES, Metric
from kernelbench.records.run_record import Environment
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import StepRun, warnings_of
from kernelbench.runs.settings import (
    Measuring,
    MeasuringOptions,
    Names,
    at_least,
    call_text,
    names_of,
    one_of,
    require_results,
)
from kernelbench.stats import calibration
from kernelbench.stats.defaults import ALPHA, MARGIN
from kernelbench.stats.estimate import estimate_change
from kernelbench.worker.launcher import Launcher


@dataclass(frozen=True)
class CalibrationSize:
    """How much is measured: less than by default is partial evidence, too little a UsageError."""

    aa: int = 200  #: A/A comparisons, spread over ``sessions`` fresh processes.
    sessions: int = 40
    planted: int = 40  #: Trials of each planted slowdown.
    sequential: int = 200  #: Pairs measured A…A B…B, the negative control.

    def __post_init__(self) -> None:
        at_least("aa", self.aa, 20)
        at_least("sessions", self.sessions, 2)
        at_least("planted", self.planted, 0)
        at_least("sequential", self.sequential, 0)


#: The default.
SIZE = CalibrationSize()


def calibrate(
    step: str | Path,
    shapes: Names | None = None,
    *,
    metric: Metric = "device",
    size: CalibrationSize = SIZE,
    margin: float = MARGIN,
    results: str | Path | None = None,
    command: str | None = None,
    observer: Observer | None = None,
    **measuring: Unpack[MeasuringOptions],
) -> CalibrationRecord:
    """Measure how far verdicts on this device can be trusted; what was measured is always kept.

    Args:
        step: The test object.
        shapes: One shape; there is no default.
        metric: Which time.
        size: How much is measured.
        margin: Change below which nobody cares, as a fraction.
        results: Folder to keep record and raw samples in; the project's if None.
        command: What the record says made it; the Python call if None.
        observer: Told what happens.
        measuring: The fields of :class:`~kernelbench.runs.settings.Measuring`.

    Raises:
        UsageError: For what does not exist or is out of range, and for several steps or shapes.
        EnvironmentProblem: For what this machine lacks, or if nothing was measured.
        Interrupted: After Ctrl-C. As of every error, ``partial`` is the record up to there.
    """
    observer = observer or Observer()
    settings = Measuring.of(measuring)
    one_of("metric", metric, TIMES)
    context = Context.find()
    plans = plan(
        context, [str(step)], names_of(shapes), "auto", [], settings.device, warn=observer.warning
    )
    if len(plans) != 1:
        raise UsageError(f"{str(step)!r} is {len(plans)} steps", "calibrate takes one")
    if len(plans[0].shapes) != 1:
        names = ", ".join(shape.name for shape in plans[0].shapes)
        raise UsageError("calibrate takes one shape", f"give --shape once: {names}")
    chosen = plans[0]
    if chosen.target.gpu is None and (metric != "call" or size.planted):
        raise EnvironmentProblem(
            "device times and planted slowdowns need a GPU", "on a CPU: --metric call --planted 0"
        )
    folder = parse_results(results, context.project)
    require_results(folder)
    collector = _collect(chosen, metric, size, margin, settings, observer.progress)
    environment = collector.environment
    if environment is None or not collector.a_a:
        nothing = EnvironmentProblem("nothing was measured")
        raise ended_early(collector.failure or nothing, None)
    for warning in warnings_of(environment):
        observer.warning(warning)
    text = command or call_text("calibrate", str(step))
    record, path = _keep(folder, collector, environment, margin, text)
    observer.saved(path)
    if collector.failure is not None:
        raise ended_early(collector.failure, record)
    return record


def _collect(
    chosen: StepRun,
    metric: Metric,
    size: CalibrationSize,
    margin: float,
    settings: Measuring,
    on_progress: OnProgress | None,
) -> Collector:
    with Launcher() as launcher:
        collector = Collector(
            launcher, chosen.step, chosen.lineage, chosen.shapes[0], chosen.classes[0],
            chosen.target, settings.timing(metric), settings.seed, settings.timeout_s,
            on_progress or (lambda _text: None),
        )  # fmt: skip
        try:
            collector.measure_a_a(size.sessions, -(-size.aa // size.sessions))
            if size.planted:
                trials = [trial.samples for trial in collector.a_a]
                estimates = [estimate_change([samples], margin=margin) for samples in trials]
                target_level = calibration.target_slowdown(estimates)
                base_us = sorted(e.base_us for e in estimates)[len(estimates) // 2]
                levels = dict.fromkeys((*calibration.LEVELS, target_level), size.planted)
                collector.measure_planted(levels, base_us, target_level)
            if size.sequential:
                processes = max(1, min(size.sessions, size.sequential) // 4)
                per_session = max(1, size.sequential // processes)
                runs = -(-size.sequential // per_session)
                collector.measure_sequential(runs, per_session)
        except (KernelbenchError, KeyboardInterrupt) as error:
            collector.failure = error
    return collector


def _keep(
    folder: Path, collector: Collector, environment: Environment, margin: float, command: str
) -> tuple[CalibrationRecord, Path]:
    """Judge and save what was measured."""
    timing, failure = collector.timing, collector.failure
    record = calibration.analyze(
        collector.a_a,
        collector.planted,
        collector.sequential,
        device=environment.device,
        step=collector.step.name,
        shape=collector.shape.name,
        metric=timing.metrics[0],
        margin=margin,
        alpha=ALPHA,
        complete=failure is None,
        protocol={
            "seed": collector.seed,
            "reps": timing.reps,
            "warmups": timing.warmups,
            "l2": timing.l2,
            "command": command,
            "driver": environment.driver,
            "cuda": environment.cuda,
            "torch": environment.torch,
            "attempts": collector.attempts,
            "failure": "" if failure is None else str(failure) or type(failure).__name__,
        },
    )
    samples = f"{record.id}.samples.json.gz"
    device_folder = folder / run_record.device_slug(environment.device) / "calibration"
    run_record.write_samples(device_folder / samples, collector.raw)
    record = replace(record, samples_file=samples)
    return record, save_calibration(record, folder)
