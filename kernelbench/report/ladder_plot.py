"""The ladder of a lineage: a row per step, a panel per source of times, over the speed of light.

What is drawn is decided by :func:`ladder`, without matplotlib; :func:`save_ladder` draws it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.lineages.tree import Measured, Node, Tree
from kernelbench.measure import speed_of_light
from kernelbench.project.context import Context
from kernelbench.project.model import METRIC_NAMES
from kernelbench.project.problem import Work
from kernelbench.project.problem_loading import load_problem
from kernelbench.report import drawing
from kernelbench.report.drawing import FILE_PALETTE, Marks, Palette, short_us

#: A time this many times the next one would press all others together: it stands at the edge.
_FAR = 10
_TITLE_CHARACTERS = 46
_PANEL_CHARACTERS = 46
_PANEL_INCHES, _TITLE_INCHES = 3.4, 2.7


@dataclass(frozen=True)
class LadderPoint:
    """One step's time in microseconds; ``low`` and ``high`` bound nine in ten repetitions."""

    step: str
    us: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class LadderSeries:
    """Times from one source on one device."""

    label: str
    device: str
    measured: bool  #: Whether they were measured here; else reported.
    points: tuple[LadderPoint, ...]
    #: Speed of light of the device's datasheet; None if its datasheet is not known.
    floor_us: float | None


@dataclass(frozen=True)
class Ladder:
    """What a plot shows."""

    title: str
    steps: tuple[str, ...]  #: Of the main line, in order. What stands beside it is no rung.
    edges: tuple[tuple[str, str], ...]  #: Parent and child.
    series: tuple[LadderSeries, ...]
    shape: str = ""
    titles: dict[str, str] = field(default_factory=dict)  #: What each step changes.


def ladder(context: Context, tree: Tree, shapes: Sequence[str] = ()) -> Ladder:
    """The ladder of one lineage on one shape.

    Args:
        shapes: The shape, if named; else the first shown one with measured times, else the first.

    Raises:
        UsageError: If several are named, or nothing is reported or measured for the shape.
    """
    if len(shapes) > 1:
        raise UsageError("--plot draws one shape", "give one --shape")
    timed = dict.fromkeys(measured.shape for node in tree.nodes for measured in node.measured)
    shown = tree.shapes or tuple(timed)
    shape_name = next((shape for shape in shown if shape in timed), next(iter(shown), None))
    problem = load_problem(context.lineages.lineage(tree.lineage))
    if shape_name is None or shape_name not in context.shapes.of(problem.name):
        raise UsageError(
            f"{tree.lineage}: no times to draw", "name a shape with --shape, or run some steps"
        )
    found = ladder_of_shape(context, tree, shape_name)
    if found is None:
        raise UsageError(f"{tree.lineage}: nothing is reported or measured for {shape_name}")
    return found


def ladder_of_shape(context: Context, tree: Tree, shape_name: str) -> Ladder | None:
    """The ladder of one lineage on a shape of its problem; None if no times of it are known."""
    problem = load_problem(context.lineages.lineage(tree.lineage))
    shape = context.shapes.of(problem.name)[shape_name]
    work = problem.work(shape)
    nodes = [node for node in tree.nodes if not node.experiment]
    series = (*_reported(nodes, shape_name, work), *_measured(nodes, shape_name))
    if not series:
        return None
    timed = {point.step for each in series for point in each.points}
    main = tuple(node.step for node in nodes if node.parent or node.step in timed)
    return Ladder(
        title=f"{tree.lineage}, shape {shape_name}: {shape.describe()}",
        steps=main,
        edges=tuple((n.parent, n.step) for n in tree.nodes if n.parent and n.step in main),
        series=series,
        shape=shape_name,
        titles={node.step: node.title for node in nodes if node.step in main},
    )


def _reported(nodes: Sequence[Node], shape: str, work: Work) -> Iterator[LadderSeries]:
    by_device: dict[tuple[str, str, str], list[LadderPoint]] = {}
    for node in nodes:
        reported = node.reported
        if reported and shape in reported.values:
            value = reported.values[shape]
            us = value if reported.unit == "us" else work.flops / value / 1e6
            label = METRIC_NAMES[reported.metric]
            if reported.unit != "us":
                label += f", from {reported.unit}"
            key = (reported.device, label, reported.source)
            by_device.setdefault(key, []).append(LadderPoint(node.step, us))
    for (device, label, source), points in by_device.items():
        by = f" by {source}" if source else ""
        text = f"reported on {device} ({label}){by}"
        sheet = speed_of_light.datasheet(device)
        floor = speed_of_light.speed_of_light(work, sheet, "cold").us if sheet else None
        yield LadderSeries(text, device, False, tuple(points), floor)


def _measured(nodes: Sequence[Node], shape: str) -> Iterator[LadderSeries]:
    by_kind: dict[tuple[str, str], list[tuple[str, Measured]]] = {}
    for node in nodes:
        for found in node.measured:
            if found.shape == shape and found.l2 == "cold":
                rows = by_kind.setdefault((found.device, found.metric), [])
                rows.append((node.step, found))
    for (device, metric), rows in by_kind.items():
        dates = sorted(found.created[:10] for _, found in rows)
        when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        floors = [found.sol_us for _, found in rows if found.sol_us is not None]
        yield LadderSeries(
            f"measured on {device}, gpu ({metric} time, cold L2, {when})",
            device,
            True,
            tuple(LadderPoint(s, f.time.median, f.time.p05, f.time.p95) for s, f in rows),
            median(floors) if floors else None,
        )


def save_ladder(drawn: Ladder, path: str) -> None:
    """Draw a ladder to a file; errors as of ``drawing.require_drawable`` and ``save_figure``."""
    drawing.draw_to(path, lambda: ladder_figure(drawn, FILE_PALETTE, Marks()), drawn.title)


def ladder_figure(drawn: Ladder, palette: Palette, marks: Marks) -> Any:
    """The figure of a ladder: names of steps, a panel per series, then what each step changes."""
    rows, panels = len(drawn.steps), len(drawn.series)
    widths = [0.15 + 0.09 * max(map(len, drawn.steps)), *[_PANEL_INCHES] * panels, _TITLE_INCHES]
    figure = drawing.new_figure(sum(widths) + 0.2, 1.5 + 0.2 * rows)
    grid = figure.add_gridspec(1, 2 + panels, width_ratios=widths, wspace=0.02)
    names = figure.add_subplot(grid[0])
    for index, series in enumerate(drawn.series):
        axes = figure.add_subplot(grid[1 + index])
        _draw_series(axes, series, drawn, palette, palette.series[index % 7], marks)
        axes.set_ylim(rows - 0.4, -0.6)
        axes.set_yticks(range(rows), [])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", color=palette.rule, linewidth=0.3)
        axes.set_xlabel("µs, log scale", fontsize=7, color=palette.muted)
    _draw_words(names, figure.add_subplot(grid[1 + panels]), drawn, palette, marks)
    return figure


def _draw_words(names: Any, titles: Any, drawn: Ladder, palette: Palette, marks: Marks) -> None:
    for place, step in enumerate(drawn.steps):
        name = names.text(
            0, place, step, ha="left", va="center", fontsize=8, weight="bold", color=palette.ink
        )
        marks.add(name, step, "")
        short = textwrap.shorten(drawn.titles.get(step, ""), _TITLE_CHARACTERS, placeholder="…")
        titles.text(0.03, place, short, ha="left", va="center", fontsize=7, color=palette.muted)
    for axes in (names, titles):
        axes.set_xlim(0, 1)
        axes.set_ylim(len(drawn.steps) - 0.4, -0.6)
        axes.set_axis_off()


def _draw_series(
    axes: Any, series: LadderSeries, drawn: Ladder, palette: Palette, colour: str, marks: Marks
) -> None:
    places = {step: i for i, step in enumerate(drawn.steps)}
    times = {point.step: point for point in series.points if point.step in places}
    low, high = _limits(series, [*times.values()])
    axes.set_xlim(low, high)
    drawing.axis_in_words(axes, palette, x=True)
    for parent, child in drawn.edges:
        if parent in times and child in times:
            ends = (min(times[parent].us, high), min(times[child].us, high))
            axes.plot(ends, (places[parent], places[child]), color=colour, linewidth=0.8, alpha=0.5)
    for step, point in times.items():
        _draw_point(axes, series, point, places[step], palette, colour, marks, high)
    lines = textwrap.wrap(series.label, _PANEL_CHARACTERS)
    if series.floor_us is not None:
        axes.axvline(series.floor_us, color=colour, linestyle="--", linewidth=1)
        text = f"- - speed of light, {series.device} datasheet: {short_us(series.floor_us)} µs"
        lines += textwrap.wrap(text, _PANEL_CHARACTERS)
    axes.set_title("\n".join(lines), fontsize=7, color=palette.ink, loc="left")


def _limits(series: LadderSeries, points: Sequence[LadderPoint]) -> tuple[float, float]:
    """From below the floor to beyond the slowest time that does not stand alone."""
    times = sorted(point.high or point.us for point in points)
    while len(times) > 2 and times[-1] > _FAR * times[-2]:
        times.pop()
    low = min([point.low or point.us for point in points] + [series.floor_us or times[-1]])
    # Room for the figure beside the last point.
    return low / 1.15, times[-1] * (times[-1] / low) ** 0.22 * 1.2


def _draw_point(
    axes: Any, series: LadderSeries, point: LadderPoint, place: int, palette: Palette, colour: str,
    marks: Marks, high: float,
) -> None:  # fmt: skip
    figure = short_us(point.us)
    beyond = point.us > high
    if point.low is not None and not beyond:
        axes.hlines(place, point.low, point.high, color=colour, linewidth=3.5, alpha=0.35)
    (dot,) = axes.plot(
        min(point.us, high), place, ">" if beyond else "o" if series.measured else "s",
        color=colour, markersize=4.5, clip_on=False,
    )  # fmt: skip
    kind = "measured" if series.measured else "reported"
    interval = drawing.interval_text(point.low, point.high)
    told = f"{point.step}: {point.us:,.2f} µs{interval}, {kind} on {series.device}"
    marks.add(dot, point.step, told, point.us, point.low, point.high)
    axes.annotate(
        figure, (min(point.high or point.us, high), place), (-6 if beyond else 5, 0),
        textcoords="offset points", ha="right" if beyond else "left", va="center", fontsize=7,
        color=palette.ink,
    )  # fmt: skip
