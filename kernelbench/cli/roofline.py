"""``kernelbench roofline``."""

from __future__ import annotations

from typing import Any, Literal

import click

from kernelbench.base.console import Text, err, out, show, styled
from kernelbench.base.errors import ExitCode, UsageError
from kernelbench.base.table import Row
from kernelbench.cli import options
from kernelbench.measure.speed_of_light import Ceilings
from kernelbench.records.run_record import L2Mode
from kernelbench.report.roofline import LineageReport, RooflineReport, ShapeReport, roofline

_BOUNDS = {"memory": "mem", "compute": "math"}


@click.command("roofline")
@options.shape_option()
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
    help="Whether operands start in DRAM or may be in the L2 cache.",
)
@click.option(
    "--predict",
    "predicted",
    metavar="STEP",
    multiple=True,
    help="What this step would reach of a cold call's floor, by its predicted time.",
)
@options.plot_option("one lineage")
@options.results_option
@options.json_option
def command(
    shapes: tuple[str, ...],
    l2: Literal["cold", "warm", "both"],
    plot_path: str | None,
    predicted: tuple[str, ...],
    json: options.RecordOutput,
    **asked: Any,
) -> int:
    """Speed of light per shape, and the fraction of it that each measured step reaches.

    Works for any known device, with or without a GPU here. A measured time that no right kernel
    could reach is a FAIL (exit code 3).

    \b
    Examples:
      kernelbench roofline
      kernelbench roofline --shape A --device h200 --l2 cold
      kernelbench roofline --measure
      kernelbench roofline --predict v22 --shape A
      kernelbench roofline --lineage moe --shape every --device h200 --plot roofline.pdf
    """
    if predicted:
        from kernelbench.cli import predict_view

        predict_view.refuse_others("predicted", "shapes", "device", "json")
        return predict_view.show_fractions(predicted, shapes, asked["device"], json)
    modes: tuple[L2Mode, ...] = ("cold", "warm") if l2 == "both" else (l2,)
    report = roofline(shapes, modes=modes, on_progress=err.print, **asked)
    if plot_path is not None:
        _plot(report, plot_path)
    json.write(report)
    if not json.alone:
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
    out.print(Text.assemble((report.lineage, "bold"), where))
    for ceilings in (device.datasheet, device.measured):
        if ceilings is not None:
            out.print(_ceilings_line(ceilings))
    _show_floors(report)
    if any(shape.steps for shape in report.shapes):
        _show_steps(report.shapes)
    else:
        out.print(f"no measured steps on {device.name}: `kernelbench run STEP` on one saves them")
    if any(shape.published_us is not None for shape in report.shapes):
        out.print(f"reported: {report.published_source}; not measured here")
    for note in report.notes:
        out.print(f"note: {note}")
    out.print()


def _ceilings_line(ceilings: Ceilings) -> str:
    rates = ", ".join(f"{name} {rate / 1e12:.0f}" for name, rate in ceilings.flops.items())
    l2 = f"L2 {ceilings.l2_bytes / (1 << 20):.0f} MiB"
    if ceilings.l2_bytes_per_s is not None:
        l2 += f" at {ceilings.l2_bytes_per_s / 1e12:.1f} TB/s"
    dram = f"{ceilings.dram_bytes_per_s / 1e12:.2f} TB/s"
    parts = [dram, l2, f"dense TFLOP/s: {rates}"]
    if ceilings.empty_graph_us is not None:
        parts.append(f"empty graph {ceilings.empty_graph_us:.1f} µs")
    when = f" {ceilings.measured}" if ceilings.measured else ""
    notes = f" [{'; '.join(ceilings.notes)}]" if ceilings.notes else ""
    return f"{ceilings.source}{when}: {' · '.join(parts)}{notes}"


def _show_floors(report: LineageReport) -> None:
    published = any(shape.published_us is not None for shape in report.shapes)
    rows: list[Row] = []
    for shape in report.shapes:
        total = shape.bytes_read + shape.bytes_written
        row = {"shape": shape.shape, "dims": shape.dims, "GFLOP": f"{shape.flops / 1e9:.4g}"}
        row |= {"MB": f"{total / 1e6:.4g}", "FLOP/B": f"{shape.intensity:.0f}"}
        for each in shape.floors:
            heading = f"{each.source}\n{each.floor.l2_mode} µs"
            row[heading] = f"{each.floor.us:.2f} {_BOUNDS[each.floor.bound]}"
        if published:
            reported = "" if shape.published_us is None else f"{shape.published_us:g}"
            row[f"reported\n{report.published_device} µs"] = reported
        rows.append(row)
    show(rows, right={*(rows[0] if rows else ())} - {"shape", "dims"})


def _show_steps(shapes: tuple[ShapeReport, ...]) -> None:
    rows = [
        {
            "step": time.step,
            "shape": shape.shape,
            "L2": time.l2,
            "metric": time.metric,
            "µs": f"{time.time_us:.2f}",
            "of datasheet": _percent(time.fraction),
            "of measured": _percent(time.fraction_measured),
            "": styled("FAIL faster than possible" if time.below_floor else ""),
        }
        for shape in shapes
        for time in shape.steps
    ]
    show(rows, right=("µs", "of datasheet", "of measured"))


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f}%"
