"""``kernelbench roofline``."""

from __future__ import annotations

from typing import Literal

import click

from kernelbench.base.console import Table, Text, err, make_table, out, styled
from kernelbench.base.errors import ExitCode, UsageError
from kernelbench.cli import options
from kernelbench.measure.speed_of_light import Ceilings
from kernelbench.report.roofline import LineageReport, RooflineReport, ShapeReport, roofline

_BOUNDS = {"memory": "mem", "compute": "math"}


@click.command("roofline")
@options.shape_option
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
@click.option(
    "--plot",
    "plot_path",
    metavar="FILE",
    help="Also draw one lineage as a .svg, .pdf or .png file (needs matplotlib).",
)
@options.results_option
@options.json_option
def command(
    shapes: tuple[str, ...],
    lineage: str | None,
    problem: str | None,
    device: str | None,
    measure: bool,
    l2: Literal["cold", "warm", "both"],
    plot_path: str | None,
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
      kernelbench roofline --lineage moe --shape every --device h200 --plot roofline.pdf
    """
    options.require_writable(json_path)
    options.require_writable(plot_path)
    report = roofline(
        shapes,
        lineage=lineage,
        problem=problem,
        device=device,
        measure=measure,
        modes=("cold", "warm") if l2 == "both" else (l2,),
        results=results,
        on_progress=err.print,
    )
    if plot_path is not None:
        _plot(report, plot_path)
    if json_path is not None:
        options.write_json_output(json_path, report)
    if json_path != "-":
        for shown in report.lineages:
            _render(shown)
    return int(ExitCode.INCORRECT if report.failures else ExitCode.PASS)


def _plot(report: RooflineReport, path: str) -> None:
    from kernelbench.project.context import Context
    from kernelbench.report.roofline_plot import save_roofline

    if len(report.lineages) != 1:
        raise UsageError("--plot draws one lineage", "name it: --lineage moe")
    save_roofline(Context.find(), report.lineages[0], path)
    err.print(f"wrote {path}")


def _render(report: LineageReport) -> None:
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
