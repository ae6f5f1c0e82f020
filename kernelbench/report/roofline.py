"""What ``kernelbench roofline`` shows: floors per shape, and what saved runs reach of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernelbench.base.errors import EnvironmentProblem, UnknownNameError, UsageError
from kernelbench.base.observer import OnProgress
from kernelbench.executors.targets import device_timed
from kernelbench.machine import devices
from kernelbench.machine.arch import STEP_ARCHES
from kernelbench.measure import speed_of_light
from kernelbench.measure.speed_of_light import Ceilings, Floor
from kernelbench.project.context import Context, parse_results
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.registry import Lineage, Step
from kernelbench.records import store
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import L2Mode, RunRecord, device_slug
from kernelbench.runs.settings import require_results
from kernelbench.worker.jobs import CeilingsJob
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import CeilingsMeasured


@dataclass(frozen=True)
class Device:
    """The device that floors are computed for."""

    name: str
    datasheet: Ceilings | None
    measured: Ceilings | None
    assumed: str = ""  #: Why this device, if neither the user nor the machine named it; else empty.


@dataclass(frozen=True)
class SourcedFloor:
    """A floor and whose ceilings it comes from."""

    source: Literal["datasheet", "measured"]
    floor: Floor


@dataclass(frozen=True)
class StepTime:
    """The newest passing measurement of a step on a shape in one L2 mode."""

    step: str
    l2: L2Mode
    metric: Metric
    time_us: float  #: Median device time, or call time where there is no device time (``metric``).
    sol_us: float | None  #: Speed of light by the datasheet, for the inputs that were drawn.
    fraction: float | None  #: Speed of light over time, by the datasheet.
    #: By the measured ceilings. None where there are no such ceilings.
    fraction_measured: float | None
    below_floor: bool  #: Faster than possible: a failure.
    run: str
    created: str


@dataclass(frozen=True)
class ShapeReport:
    """One shape: its work, its floors, its measured steps."""

    problem: str
    shape: str
    dims: str
    flops: float
    bytes_read: float
    bytes_written: float
    intensity: float
    precision: str
    floors: tuple[SourcedFloor, ...]
    published_us: float | None
    steps: tuple[StepTime, ...]


@dataclass(frozen=True)
class LineageReport:
    """All chosen shapes of one lineage on one device."""

    lineage: str
    problem: str
    device: Device
    published_source: str
    published_device: str
    shapes: tuple[ShapeReport, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RooflineReport:
    """The JSON contract of ``kernelbench roofline --json``."""

    lineages: tuple[LineageReport, ...]
    schema: Literal["kernelbench.roofline/1"] = "kernelbench.roofline/1"

    @property
    def failures(self) -> tuple[StepTime, ...]:
        """Times that no right kernel could reach."""
        times = (t for lineage in self.lineages for shape in lineage.shapes for t in shape.steps)
        return tuple(time for time in times if time.below_floor)


def roofline(
    shapes: Sequence[str] = (),
    *,
    lineage: str | None = None,
    problem: str | None = None,
    device: str | None = None,
    measure: bool = False,
    modes: Sequence[L2Mode] = ("cold", "warm"),
    results: str | Path | None = None,
    on_progress: Callable[[str], None] = lambda _text: None,
) -> RooflineReport:
    """Floors per shape, and what saved runs reach of them, lineage by lineage.

    Args:
        shapes: By name or ad hoc; the problem's benchmark shapes for none.
        lineage, problem: Only this one; otherwise the chains that the shapes belong to.
        device: A known device's name or a CUDA ordinal; what is here, if None.
        measure: Measure this GPU's ceilings first, and keep them.
        modes: Whether operands start in DRAM, may be in the L2 cache, or both.
        results: Folder of the runs; the project's if None.

    Raises:
        UsageError: For what does not exist.
        EnvironmentProblem: If there is no such GPU or its ceilings cannot be measured.
    """
    context = Context.find()
    folder = parse_results(results, context.project)
    if measure:
        require_results(folder)
        device = measure_ceilings(device, folder, on_progress)
    reports = []
    for chosen in _chosen_lineages(context, lineage, problem, shapes):
        solved = load_problem(chosen)
        where = choose_device(device, context.lineages.steps_of(chosen.name), folder)
        named = context.shapes_for(solved, shapes)
        reports.append(report_lineage(chosen, solved, named, where, modes, folder))
    return RooflineReport(tuple(reports))


def _chosen_lineages(
    context: Context, lineage: str | None, problem: str | None, shapes: Sequence[str]
) -> list[Lineage]:
    """The lineages that the options leave; those of a named shape's problem, if none is named."""
    chosen = list(context.lineages.chains)
    if lineage is not None:
        chosen = [context.lineages.lineage(lineage)]
    if problem is not None:
        names = {item.name: load_problem(item).name for item in chosen}
        if problem not in names.values():
            raise UnknownNameError("problem", problem, dict.fromkeys(names.values()))
        chosen = [item for item in chosen if names[item.name] == problem]
    if lineage is None and problem is None:
        owners = {context.shapes.problem_of[s] for s in shapes if s in context.shapes}
        if owners:
            known = [item for item in context.lineages.all_lineages if not item.peers_of]
            chosen = [item for item in known if load_problem(item).name in owners]
    return chosen


def choose_device(option: str | None, steps: Iterable[Step], results: Path) -> Device:
    """The device that ``--device`` means: a name, a CUDA ordinal, or by default what is here.

    Without a GPU and an option it is assumed from the arch that the lineage is written for.

    Raises:
        EnvironmentProblem: If there is no GPU of that ordinal.
        UnknownNameError: If no device of that name is known.
        UsageError: If nothing tells which device is meant.
    """
    if option is not None and not option.isdecimal():
        return device_named(speed_of_light.known_device(option).device, results)
    found = devices.gpus()
    index = int(option) if option is not None else 0
    if index < len(found):
        return device_named(found[index].name, results)
    if option is not None:
        problem = devices.gpu_problem() or f"this process sees {len(found)}"
        raise EnvironmentProblem(f"no GPU {index}: {problem}", "name a device, e.g. --device h200")
    for step in steps:
        if arch := STEP_ARCHES.get(step.arch):
            name = speed_of_light.known_device(arch.chip.lower()).device
            why = f"assumed: no GPU here, and the lineage is written for {step.arch}"
            return device_named(name, results, why)
    raise UsageError("no GPU here to compute floors for", "name a device, e.g. --device h200")


def device_named(name: str, results: Path, assumed: str = "") -> Device:
    """A device with its ceilings: the datasheet's, and those that results have as measured."""
    measured = speed_of_light.load_measured(name, results)
    return Device(name, speed_of_light.datasheet(name), measured, assumed)


def report_lineage(
    lineage: Lineage,
    problem: Problem,
    shapes: Sequence[Any],
    device: Device,
    modes: Sequence[L2Mode],
    results: Path,
) -> LineageReport:
    """Floors and measured fractions of the given shapes.

    Raises:
        UsageError: If no ceilings of the device are known.
    """
    if device.datasheet is None and device.measured is None:
        raise UsageError(
            f"no ceilings of {device.name}: not among the known datasheets, and never measured",
            "measure them with `kernelbench roofline --measure`",
        )
    found, broken = store.load_runs(results, device_slug(device.name))
    runs = [run for run in found if run.device == device.name]
    published: speed_of_light.Published | None = getattr(problem, "published", None)
    us = published.us if published else {}
    rows = tuple(_shape(problem, shape, device, modes, runs, us) for shape in shapes)
    notes = [f"unreadable run left out: {line}" for line in broken]
    notes += _rate_notes(rows, device)
    return LineageReport(
        lineage=lineage.name,
        problem=problem.name,
        device=device,
        published_source=published.source if published else "",
        published_device=published.device if published else "",
        shapes=rows,
        notes=tuple(dict.fromkeys(notes)),
    )


def _shape(
    problem: Problem,
    shape: Any,
    device: Device,
    modes: Sequence[L2Mode],
    runs: Sequence[RunRecord],
    published_us: Mapping[str, float],
) -> ShapeReport:
    work = problem.work(shape)
    floors = tuple(
        SourcedFloor(ceilings.source, speed_of_light.speed_of_light(work, ceilings, mode))
        for ceilings in (device.datasheet, device.measured)
        if ceilings is not None
        for mode in modes
    )
    return ShapeReport(
        problem=problem.name,
        shape=shape.name,
        dims=shape.describe(),
        flops=work.flops,
        bytes_read=work.bytes_read,
        bytes_written=work.bytes_written,
        intensity=work.flops / work.bytes_total if work.bytes_total else 0.0,
        precision=work.precision,
        floors=floors,
        published_us=published_us.get(shape.name),
        steps=_steps(problem.name, shape.name, floors, runs),
    )


def _steps(
    problem: str, shape: str, floors: Sequence[SourcedFloor], runs: Sequence[RunRecord]
) -> tuple[StepTime, ...]:
    by_source = {(f.source, f.floor.l2_mode): f.floor for f in floors}
    newest: dict[tuple[str, str], StepTime] = {}
    for run in runs:
        mode = run.protocol.l2
        if mode == "none":
            continue
        sheet, measured = (by_source.get((of, mode)) for of in ("datasheet", "measured"))
        for result in run.results:
            here = (result.problem, result.shape) == (problem, shape)
            if not (here and device_timed(result.executor) and (sheet or measured)):
                continue
            if result.status != "pass" or result.timed is None:
                continue
            metric, stats = result.timed
            # A record's own figure counts the bytes of the inputs that were drawn.
            sol_us = result.sol_us or (sheet.us if sheet else None)
            newest[(result.step, mode)] = StepTime(
                step=result.step,
                l2=mode,
                metric=metric,
                time_us=stats.median,
                sol_us=sol_us,
                fraction=sol_us / stats.median if sol_us else None,
                fraction_measured=measured.us / stats.median if measured else None,
                below_floor=sheet is not None and speed_of_light.below_floor(stats.median, sheet),
                run=run.id,
                created=run.created,
            )
    return tuple(newest.values())


def _rate_notes(rows: Sequence[ShapeReport], device: Device) -> list[str]:
    return [
        f"{device.name} has no {row.precision} rate: {row.problem} is bounded by its "
        f"{floor.precision} rate, the fastest of the wider formats ({source})"
        for row in rows
        for source, floor in ((each.source, each.floor) for each in row.floors)
        if floor.precision != row.precision
    ]


def measure_ceilings(device: str | None, folder: Path, on_progress: OnProgress) -> str:
    """Measure the ceilings of a GPU of this machine and keep them in a results folder.

    Args:
        device: Its CUDA ordinal; None for the first.
        on_progress: Told what is measured, and where it is kept.

    Returns:
        The ordinal.

    Raises:
        UsageError: If ``device`` is no ordinal.
        EnvironmentProblem: If there is no such GPU, or the worker fails.
    """
    if device is not None and not device.isdecimal():
        raise UsageError(
            f"--measure measures a GPU of this machine, not {device!r}", "give its CUDA ordinal"
        )
    index = int(device or 0)
    found = devices.gpus()
    if index >= len(found):
        problem = devices.gpu_problem() or f"this process sees {len(found)}"
        raise EnvironmentProblem(
            f"nothing to measure: no GPU {index}: {problem}",
            "without --measure the datasheet's ceilings are shown",
        )
    on_progress(f"measuring the ceilings of GPU {index}, {found[index].name}: some ten seconds")
    ceilings: Ceilings | None = None
    with Launcher() as launcher:
        for message in launcher.run(CeilingsJob(index)):
            if isinstance(message, CeilingsMeasured):
                ceilings = message.ceilings
        ending = launcher.ending
    if ceilings is None:
        reason = ending.reason if ending and ending.reason else "the worker gave no figures"
        raise EnvironmentProblem(f"the ceilings could not be measured: {reason}")
    on_progress(f"kept in {speed_of_light.save_measured(ceilings, folder)}")
    return str(index)
