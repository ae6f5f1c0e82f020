"""``kernelbench roofline``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kernelbench.base.errors import ExitCode
from kernelbench.cli.options import (
    json_option,
    require_results,
    require_writable,
    results_option,
    shape_option,
    write_json_output,
)

if TYPE_CHECKING:
    from kernelbench.base.console import Table
    from kernelbench.measure.speed_of_light import Ceilings
    from kernelbench.project.context import Context
    from kernelbench.project.registry import Lineage
    from kernelbench.report.roofline import LineageReport, ShapeReport

_BOUNDS = {"memory": "mem", "compute": "math"}


@click.command("roofline")
@shape_option
@click.option("--lineage", metavar="NAME", help="Only this lineage.")
@click.option("--problem", metavar="NAME", help="Only lineages of this problem.")
@click.option(
    "--device",
    metavar="NAME|N",
    help="A known device (b200, h200, h100-pcie, ...) or a CUDA ordinal; default: what is here.",
)
@click.option("--measure", is_flag=True, help="Measure this GPU's ceilings first, and keep them.")
@click.option(
    "--l2",
    type=click.Choice(["cold", "warm", "both"]),
    default="both",
    show_default=True,
    help="Whether operands start in DRAM or may be in the L2 cache.",
)
@results_option
@json_option
def command(
    shapes: tuple[str, ...],
    lineage: str | None,
    problem: str | None,
    device: str | None,
    measure: bool,
    l2: Literal["cold", "warm", "both"],
    results: str | None,
    json_path: str | None,
) -> int:
    """Speed of light per shape, and the fraction of it that each measured step reaches.

    Works for any known device, with or without a GPU here. A measured time that no right kernel
    could reach is a FAIL (exit code 3).

    \b
    Examples:
      kernelbench roofline
      kernelbench roofline --shape A --device h200 --l2 cold
      kernelbench roofline --measure
    """
    from kernelbench.project.context import Context, parse_results
    from kernelbench.project.registry import load_problem
    from kernelbench.report import roofline as roofline_report

    require_writable(json_path)
    context = Context.find()
    folder = parse_results(results, context.project)
    if measure:
        require_results(folder)
        device = _measure(device, folder)
    modes: tuple[Literal["cold", "warm"], ...] = ("cold", "warm") if l2 == "both" else (l2,)
    reports = []
    for chosen in _lineages(context, lineage, problem, shapes):
        solved = load_problem(chosen)
        steps = context.lineages.steps_of(chosen.name)
        where = roofline_report.choose_device(device, steps, folder)
        named = context.shapes_for(solved, shapes)
        reports.append(roofline_report.report_lineage(chosen, solved, named, where, modes, folder))
    report = roofline_report.RooflineReport(tuple(reports))
    if json_path is not None:
        write_json_output(json_path, report)
    if json_path != "-":
        for shown in reports:
            _render(shown)
    failed = any(time.below_floor for r in reports for s in r.shapes for time in s.steps)
    return int(ExitCode.INCORRECT if failed else ExitCode.PASS)


def _lineages(
    context: Context, lineage: str | None, problem: str | None, shapes: tuple[str, ...]
) -> list[Lineage]:
    """The lineages that the options leave; those of a named shape's problem, if none is named."""
    from kernelbench.base.errors import UnknownNameError
    from kernelbench.project.registry import load_problem

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
            chosen = [item for item in chosen if load_problem(item).name in owners]
    return chosen


def _measure(device: str | None, folder: Path) -> str:
    """Measure a GPU's ceilings in a worker and save them; returns its ordinal."""
    from kernelbench.base.console import err
    from kernelbench.base.errors import EnvironmentProblem, UsageError
    from kernelbench.machine import devices
    from kernelbench.measure import speed_of_light
    from kernelbench.worker.jobs import CeilingsJob
    from kernelbench.worker.launcher import Launcher
    from kernelbench.worker.messages import CeilingsMeasured

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
    err.print(f"measuring the ceilings of GPU {index}, {found[index].name}: some ten seconds")
    ceilings: Ceilings | None = None
    with Launcher() as launcher:
        for message in launcher.run(CeilingsJob(index)):
            if isinstance(message, CeilingsMeasured):
                ceilings = message.ceilings
        ending = launcher.ending
    if ceilings is None:
        reason = ending.reason if ending and ending.reason else "the worker gave no figures"
        raise EnvironmentProblem(f"the ceilings could not be measured: {reason}")
    err.print(f"kept in {speed_of_light.save_measured(ceilings, folder)}")
    return str(index)


def _render(report: LineageReport) -> None:
    from kernelbench.base.console import Text, out

    device = report.device
    where = f"  on {device.name}" + (f" ({device.assumed})" if device.assumed else "")
    out.print(Text.assemble((report.lineage, "bold"), where), soft_wrap=True)
    for ceilings in (device.datasheet, device.measured):
        if ceilings is not None:
            out.print(_ceilings_line(ceilings), soft_wrap=True)
    out.print(_floor_table(report))
    if any(shape.steps for shape in report.shapes):
        out.print(_step_table(report.shapes))
    else:
        out.print(f"no measured steps on {device.name}: `kernelbench run STEP` on one saves them")
    if any(shape.published_us is not None for shape in report.shapes):
        out.print(f"reported: {report.published_source}; not measured here", soft_wrap=True)
    for note in report.notes:
        out.print(f"note: {note}", soft_wrap=True)
    out.print()


def _ceilings_line(ceilings: Ceilings) -> str:
    rates = ", ".join(f"{name} {rate / 1e12:.0f}" for name, rate in ceilings.flops.items())
    parts = [
        f"{ceilings.dram_bytes_per_s / 1e12:.2f} TB/s",
        f"L2 {ceilings.l2_bytes / (1 << 20):.0f} MiB"
        + (
            f" at {ceilings.l2_bytes_per_s / 1e12:.1f} TB/s"
            if ceilings.l2_bytes_per_s is not None
            else ""
        ),
        f"dense TFLOP/s: {rates}",
    ]
    if ceilings.empty_graph_us is not None:
        parts.append(f"empty graph {ceilings.empty_graph_us:.1f} µs")
    when = f" {ceilings.measured}" if ceilings.measured else ""
    notes = f" [{'; '.join(ceilings.notes)}]" if ceilings.notes else ""
    return f"{ceilings.source}{when}: {' · '.join(parts)}{notes}"


def _floor_table(report: LineageReport) -> Table:
    from kernelbench.base.console import make_table

    kinds = [(f.source, f.floor.l2_mode) for f in report.shapes[0].floors] if report.shapes else []
    columns = [("shape", "left"), ("dims", "left")]
    columns += [("GFLOP", "right"), ("MB", "right"), ("FLOP/B", "right")]
    columns += [(f"{source}\n{mode} µs", "right") for source, mode in kinds]
    published = any(shape.published_us is not None for shape in report.shapes)
    if published:
        columns.append((f"reported\n{report.published_device} µs", "right"))
    table = make_table(columns)
    for shape in report.shapes:
        total = shape.bytes_read + shape.bytes_written
        cells = [shape.shape, shape.dims, f"{shape.flops / 1e9:.4g}", f"{total / 1e6:.4g}"]
        cells.append(f"{shape.intensity:.0f}")
        cells += [f"{f.floor.us:.2f} {_BOUNDS[f.floor.bound]}" for f in shape.floors]
        if published:
            cells.append("" if shape.published_us is None else f"{shape.published_us:g}")
        table.add_row(*cells)
    return table


def _step_table(shapes: tuple[ShapeReport, ...]) -> Table:
    from kernelbench.base.console import make_table, styled

    columns = [("step", "left"), ("shape", "left"), ("L2", "left"), ("metric", "left")]
    columns += [("µs", "right"), ("of datasheet", "right"), ("of measured", "right"), ("", "left")]
    table = make_table(columns)
    for shape in shapes:
        for time in shape.steps:
            verdict = "FAIL faster than possible" if time.below_floor else ""
            table.add_row(
                time.step,
                shape.shape,
                time.l2,
                time.metric,
                f"{time.time_us:.2f}",
                _percent(time.fraction),
                _percent(time.fraction_measured),
                styled(verdict),
            )
    return table


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f}%"
