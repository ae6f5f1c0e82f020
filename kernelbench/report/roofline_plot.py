"""The roofline of a lineage: what every measured step reaches, below what the device allows."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.project.context import Context
from kernelbench.report import drawing
from kernelbench.report.drawing import FILE_PALETTE, Marks, Palette
from kernelbench.report.roofline import LineageReport, ShapeReport, StepTime

_TERA = 1e12


def steps_only(report: LineageReport, steps: Collection[str]) -> LineageReport:
    """The report with the times of these steps: another lineage may have the same problem."""
    return replace(
        report,
        shapes=tuple(
            replace(shape, steps=tuple(time for time in shape.steps if time.step in steps))
            for shape in report.shapes
        ),
    )


def save_roofline(context: Context, report: LineageReport, path: str) -> None:
    """Draw what was measured of a lineage and its peers to a ``.png``, ``.svg`` or ``.pdf`` file.

    Raises:
        UsageError: If nothing was measured, or for another kind of file.
        EnvironmentProblem: If matplotlib is missing, or the file cannot be written.
    """
    drawing.require_drawable(path)
    lineages = context.lineages
    of = [each.name for each in lineages.all_lineages if each.peers_of == report.lineage]
    peers = {step.name for name in of for step in lineages.steps_of(name)}
    own = {step.name for step in lineages.steps_of(report.lineage)}
    shown = steps_only(report, own | peers)
    if not any(shape.steps for shape in shown.shapes):
        raise UsageError(
            f"{report.lineage}: nothing was measured on {report.device.name}",
            "name a device of the results with --device, or run some steps",
        )
    title = f"{report.lineage} on {report.device.name}"
    drawing.draw_to(path, lambda: roofline_figure(shown, peers, FILE_PALETTE, Marks()), title)


def roofline_figure(
    report: LineageReport, peers: Collection[str], palette: Palette, marks: Marks
) -> Any:
    """The figure of a roofline: rate over intensity, a column of points per shape.

    Args:
        peers: Names of the steps that are peers and not of the lineage.
    """
    figure = drawing.new_figure(7.2, 4.4)
    axes = figure.add_subplot()
    points = [
        (_intensity(report, shape, time), shape.flops / time.time_us / 1e6, shape, time)
        for shape in report.shapes
        for time in shape.steps
    ]
    axes.set_xlim(min(x for x, *_ in points) / 2.2, max(x for x, *_ in points) * 2.2)
    top = _draw_ceilings(axes, report, palette)
    for x, y, shape, time in points:
        _draw_step(axes, (x, y), shape, time, time.step in peers, palette, marks)
    columns = {shape.shape: x for x, _, shape, _ in points}
    rows = _name_shapes(axes, columns, palette)
    low = min(y for _, y, *_ in points) / 2
    top = max(top, *(y for _, y, *_ in points))
    # The names stand above everything that is drawn.
    axes.set_ylim(low, top * (top / low) ** (0.06 * (rows + 1)))
    drawing.axis_in_words(axes, palette, x=True)
    drawing.axis_in_words(axes, palette, x=False)
    axes.set_xlabel("FLOP per byte of DRAM traffic, log scale", fontsize=7, color=palette.muted)
    axes.set_ylabel("TFLOP/s, log scale", fontsize=7, color=palette.muted)
    for label, marker, colour in (
        ("measured step", "o", palette.series[0]), ("measured peer", "s", palette.series[1]),
    ):  # fmt: skip
        if label == "measured step" or peers:
            axes.plot([], [], marker, color=colour, markersize=4, label=label)
    figure.legend(
        loc="outside lower left", ncols=2, fontsize=7, frameon=False, labelcolor=palette.ink
    )
    return figure


def _intensity(report: LineageReport, shape: ShapeReport, time: StepTime) -> float:
    """Operations per byte of the inputs that were drawn, where memory bounds them.

    Which experts a token goes to, say, decides what must be read.
    """
    sheet = report.device.datasheet
    floor = next((f.floor for f in shape.floors if f.source == "datasheet"), None)
    if sheet is None or floor is None or floor.bound != "memory" or not time.sol_us:
        return shape.intensity
    return shape.flops / (time.sol_us * sheet.dram_bytes_per_s / 1e6)


def _draw_ceilings(axes: Any, report: LineageReport, palette: Palette) -> float:
    """The memory's slopes and the arithmetic's tops; the highest rate, 0 without ceilings."""
    top = 0.0
    low, high = axes.get_xlim()
    # Of the shapes' precision, or of the format whose rate bounds them.
    used = {f.source: f.floor.precision for shape in report.shapes for f in shape.floors}
    for ceilings, style in ((report.device.datasheet, "-"), (report.device.measured, "--")):
        if ceilings is None or used.get(ceilings.source) not in ceilings.flops:
            continue
        precision = used[ceilings.source]
        peak = ceilings.flops[precision] / _TERA
        slope = ceilings.dram_bytes_per_s / _TERA
        ridge = min(max(peak / slope, low), high)
        xs = [low, ridge, high]
        top = max(top, min(slope * high, peak))
        label = f"{ceilings.source}: {slope:.2f} TB/s, {peak:,.0f} TFLOP/s ({precision})"
        axes.plot(
            xs, [min(slope * x, peak) for x in xs], style, color=palette.muted, linewidth=1,
            label=label,
        )  # fmt: skip
    return top


def _draw_step(
    axes: Any, place: tuple[float, float], shape: ShapeReport, time: StepTime, peer: bool,
    palette: Palette, marks: Marks,
) -> None:  # fmt: skip
    (dot,) = axes.plot(
        *place, "s" if peer else "o", color=palette.series[1 if peer else 0], markersize=4,
        alpha=0.75,
    )  # fmt: skip
    share = (
        f", {100 * time.fraction:.1f}% of the datasheet's speed of light" if time.fraction else ""
    )
    told = f"{time.step}, shape {shape.shape}: {time.time_us:,.2f} µs {time.metric} time{share}"
    marks.add(dot, time.step, told, time.time_us, time.fraction or None)


def _name_shapes(axes: Any, columns: dict[str, float], palette: Palette) -> int:
    """Names along the upper edge, in as many rows as are returned: columns may be close."""
    low, high = axes.get_xlim()
    rows: list[float] = []
    for name, x in sorted(columns.items(), key=lambda column: column[1]):
        place = math.log(x / low) / math.log(high / low)
        half = 0.0065 * len(name) + 0.01
        row = next((i for i, end in enumerate(rows) if end < place - half), len(rows))
        rows[row:] = [place + half, *rows[row + 1 :]]
        axes.annotate(
            name, (x, 1), (0, -9 - 9 * row), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", fontsize=6.5, color=palette.muted,
        )  # fmt: skip
    return len(rows)
