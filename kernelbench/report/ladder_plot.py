"""The ladder of a lineage: time by step, reported beside measured, over the speed of light.

What is drawn is decided by :func:`ladder`, without matplotlib; :func:`save_ladder` draws it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.lineages.tree import Measured, Node, Tree
from kernelbench.measure import speed_of_light
from kernelbench.project.context import Context
from kernelbench.project.problem import Work
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.reported_figures import METRIC_NAMES

SUFFIXES = (".png", ".svg")


@dataclass(frozen=True)
class LadderPoint:
    """One step's time in microseconds; ``low`` and ``high`` bound nine in ten repetitions."""

    step: str
    us: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class LadderSeries:
    """Times from one source on one device.

    Attributes:
        measured: Whether they were measured here; else reported.
        floor_us: Speed of light of the device's datasheet; None if its datasheet is not known.
    """

    label: str
    device: str
    measured: bool
    points: tuple[LadderPoint, ...]
    floor_us: float | None


@dataclass(frozen=True)
class Ladder:
    """What a plot shows.

    Attributes:
        steps: Of the main line, in order. What stands beside it is no rung.
        edges: Parent and child.
    """

    title: str
    steps: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    series: tuple[LadderSeries, ...]


def ladder(context: Context, tree: Tree, shapes: Sequence[str] = ()) -> Ladder:
    """The ladder of one lineage on one shape.

    Args:
        shapes: The shape, if named; else the first shown one with measured times, else the first.

    Raises:
        UsageError: If several are named, or nothing is reported or measured for the shape.
    """
    if len(shapes) > 1:
        raise UsageError("--plot draws one shape", "give one --shape")
    shape_name = _shape(tree)
    problem = load_problem(context.lineages.lineage(tree.lineage))
    shapes_here = context.shapes.of(problem.name)
    if shape_name is None or shape_name not in shapes_here:
        raise UsageError(
            f"{tree.lineage}: no times to draw", "name a shape with --shape, or run some steps"
        )
    shape = shapes_here[shape_name]
    work = problem.work(shape)
    nodes = [node for node in tree.nodes if not node.experiment]
    series = (*_reported(nodes, shape_name, work), *_measured(nodes, shape_name))
    if not series:
        raise UsageError(f"{tree.lineage}: nothing is reported or measured for {shape_name}")
    timed = {point.step for each in series for point in each.points}
    main = tuple(node.step for node in nodes if node.parent or node.step in timed)
    return Ladder(
        title=f"{tree.lineage}, shape {shape_name}: {shape.describe()}",
        steps=main,
        edges=tuple((n.parent, n.step) for n in tree.nodes if n.parent and n.step in main),
        series=series,
    )


def _shape(tree: Tree) -> str | None:
    timed = {measured.shape for node in tree.nodes for measured in node.measured}
    return next((shape for shape in tree.shapes if shape in timed), next(iter(tree.shapes), None))


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
    by_kind: dict[tuple[str, str, str], list[tuple[str, Measured]]] = {}
    for node in nodes:
        for found in node.measured:
            if found.shape == shape and found.l2 == "cold":
                by_kind.setdefault((found.device, found.metric, found.l2), []).append(
                    (node.step, found)
                )
    for (device, metric, l2), rows in by_kind.items():
        dates = sorted({found.created[:10] for _, found in rows})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        floors = [found.sol_us for _, found in rows if found.sol_us is not None]
        yield LadderSeries(
            f"measured on {device}, gpu ({metric} time, {l2} L2, {when})",
            device,
            True,
            tuple(LadderPoint(s, f.time.median, f.time.p05, f.time.p95) for s, f in rows),
            median(floors) if floors else None,
        )


def save_ladder(drawn: Ladder, path: str) -> None:
    """Draw a ladder to a ``.png`` or ``.svg`` file.

    Raises:
        UsageError: For another kind of file.
        EnvironmentProblem: If matplotlib is missing, or the file cannot be written.
    """
    if Path(path).suffix not in SUFFIXES:
        raise UsageError(
            f"cannot draw to {path}", f"name a file that ends in {', '.join(SUFFIXES)}"
        )
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EnvironmentProblem(
            "--plot needs matplotlib", "`pip install matplotlib`, or the extra 'plot'"
        ) from error
    # Text stays text, and the same data gives the same file.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "kernelbench", "font.size": 9}
    with matplotlib.rc_context(settings):
        width = max(7.5, 1.5 + 0.42 * len(drawn.steps))
        figure = Figure(figsize=(width, 4.8), layout="constrained")
        _draw(figure, drawn)
        try:
            # The same figures give the same bytes: no date, no version of the library.
            unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(path, dpi=150, metadata=unsaid if path.endswith(".svg") else None)
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror or error}") from error


def _draw(figure: Any, drawn: Ladder) -> None:
    from matplotlib.ticker import LogLocator

    axes = figure.add_subplot()
    places = {step: i for i, step in enumerate(drawn.steps)}
    for index, series in enumerate(drawn.series):
        _draw_series(axes, series, drawn, places, f"C{index}")
    axes.set_yscale("log")
    axes.margins(y=0.1)
    axes.set_xlim(-0.5, len(drawn.steps) - 0.5)
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter("{x:,g}")
    axes.tick_params(axis="y", which="minor", labelsize=7)
    axes.set_xticks(range(len(drawn.steps)), drawn.steps, rotation=45 if len(places) > 12 else 0)
    axes.set_ylabel("time, µs (log scale)")
    axes.grid(axis="y", which="both", alpha=0.25)
    figure.suptitle(drawn.title, fontsize=10)
    figure.legend(loc="outside lower left", fontsize=8, frameon=False)


def _draw_series(
    axes: Any, series: LadderSeries, drawn: Ladder, places: dict[str, int], colour: str
) -> None:
    times = {point.step: point for point in series.points if point.step in places}
    marker = "o" if series.measured else "s"
    axes.plot([], [], color=colour, marker=marker, label=series.label)
    for parent, child in drawn.edges:
        if parent in times and child in times:
            ends = (places[parent], places[child]), (times[parent].us, times[child].us)
            axes.plot(*ends, color=colour, linewidth=1)
    for step, point in times.items():
        axes.plot(places[step], point.us, marker, color=colour, markersize=5)
        if point.low is not None:
            axes.vlines(places[step], point.low, point.high, color=colour, linewidth=3, alpha=0.3)
        if series.measured or step in (series.points[0].step, series.points[-1].step):
            axes.annotate(
                _figure(point.us), (places[step], point.us), (0, 6), textcoords="offset points",
                ha="center", fontsize=7, color=colour,
            )  # fmt: skip
    if series.floor_us is not None:
        label = f"speed of light, {series.device} datasheet: {_figure(series.floor_us)} µs"
        axes.axhline(series.floor_us, color=colour, linestyle="--", linewidth=1, label=label)


def _figure(us: float) -> str:
    return f"{us:,.0f}" if us >= 1000 else f"{us:.3g}"
