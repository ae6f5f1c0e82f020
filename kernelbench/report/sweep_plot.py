"""Times over one dimension of a problem: shapes that differ in nothing else, as M of a MoE layer.

:func:`sweeps` finds them in saved runs, without matplotlib; :func:`sweep_figure` draws one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernelbench.base.errors import UsageError
from kernelbench.lineages.tree import Measured, Tree
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.records.run_record import RunRecord
from kernelbench.report import drawing
from kernelbench.report.drawing import FILE_PALETTE, Marks, Palette

_DIMENSION = re.compile(r"(?<!\S)(\w+)=(\d+)(?!\S)")
#: Fewer shapes are no sweep.
_FEWEST = 3
#: Newest steps of the main line that are drawn; tables have all.
_DRAWN_STEPS = 3

LineKind = Literal["step", "peer", "read floor", "speed of light"]


@dataclass(frozen=True)
class SweepPoint:
    """A time in microseconds at one size; ``low`` and ``high`` bound nine in ten repetitions."""

    size: int
    shape: str
    us: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class SweepLine:
    """One step over the sizes, or a floor."""

    name: str
    #: ``read floor``: the time to read once what must be read, measured in the same runs; ``speed
    #: of light``: by the device's datasheet.
    kind: LineKind
    points: tuple[SweepPoint, ...]
    drawn: bool  #: Whether the drawing has it; tables have all.


@dataclass(frozen=True)
class Sweep:
    """Times of one lineage and its peers over one dimension, on one device with a cold L2."""

    lineage: str
    dimension: str
    rest: str  #: The dimensions that stay.
    device: str
    metric: str  #: Of which time, ``device`` or ``call``.
    sizes: tuple[int, ...]
    lines: tuple[SweepLine, ...]

    @property
    def title(self) -> str:
        """``moe over m, NVIDIA H200, cold L2, device time: n=512 k=2048 …``"""
        return (
            f"{self.lineage} over {self.dimension}, {self.device}, cold L2, {self.metric} time: "
            f"{self.rest}"
        )


@dataclass(frozen=True)
class _Timed:
    step: str
    peer: bool
    size: int
    found: Measured


def sweeps(
    tree: Tree, peers: Sequence[Tree], dims: Mapping[str, str], runs: Iterable[RunRecord]
) -> tuple[Sweep, ...]:
    """The sweeps in what was measured of a lineage.

    Args:
        peers: Trees of the lineages that are its peers.
        dims: Of the problem's shapes, as :func:`dims_of` gives them.
        runs: Saved runs, oldest first, for their read floors.
    """
    floors = _read_floors(runs)
    axes: dict[tuple[str, str], dict[str, int]] = {}
    for shape, text in dims.items():
        for match in _DIMENSION.finditer(text):
            rest = (text[: match.start()] + text[match.end() :]).strip()
            axes.setdefault((match[1], rest), {})[shape] = int(match[2])
    found = []
    for (dimension, rest), shapes in axes.items():
        if len(set(shapes.values())) < _FEWEST:
            continue
        for (device, metric), timed in _timed(tree, peers, shapes).items():
            sizes = sorted({each.size for each in timed if not each.peer})
            if len(sizes) >= _FEWEST:
                lines = _lines(tree, timed, sizes, shapes, floors.get(device, {}))
                found.append(
                    Sweep(tree.lineage, dimension, rest, device, metric, tuple(sizes), lines)
                )
    return tuple(found)


def dims_of(context: Context, lineage: str) -> dict[str, str]:
    """The shapes of a lineage's problem, as each describes itself."""
    problem = load_problem(context.lineages.lineage(lineage))
    return {name: each.describe() for name, each in context.shapes.of(problem.name).items()}


def _read_floors(runs: Iterable[RunRecord]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        for row in run.results:
            if row.floor is not None and run.protocol.l2 == "cold":
                found.setdefault(run.device, {})[row.shape] = row.floor.us
    return found


def _timed(
    tree: Tree, peers: Sequence[Tree], shapes: Mapping[str, int]
) -> dict[tuple[str, str], list[_Timed]]:
    found: dict[tuple[str, str], list[_Timed]] = {}
    for each, peer in ((tree, False), *((other, True) for other in peers)):
        for node in each.nodes:
            for time in node.measured:
                if time.l2 == "cold" and time.shape in shapes and not node.experiment:
                    row = _Timed(node.step, peer, shapes[time.shape], time)
                    found.setdefault((time.device, time.metric), []).append(row)
    return found


def _lines(
    tree: Tree, timed: Sequence[_Timed], sizes: Sequence[int], shapes: Mapping[str, int],
    floors: Mapping[str, float],
) -> tuple[SweepLine, ...]:  # fmt: skip
    by_step: dict[tuple[str, bool], list[SweepPoint]] = {}
    light: dict[int, SweepPoint] = {}
    for each in timed:
        time = each.found
        if each.size not in sizes:
            continue
        point = SweepPoint(each.size, time.shape, time.time.median, time.time.p05, time.time.p95)
        by_step.setdefault((each.step, each.peer), []).append(point)
        if time.sol_us is not None:
            light[each.size] = SweepPoint(each.size, time.shape, time.sol_us)
    order = [node.step for node in tree.nodes]
    whole = [name for name in order if len(by_step.get((name, False), ())) >= _FEWEST]
    shown = {*whole[-_DRAWN_STEPS:]}
    lines = [
        SweepLine(name, "peer" if peer else "step", _ordered(points), peer or name in shown)
        for (name, peer), points in by_step.items()
    ]
    least = [SweepPoint(shapes[s], s, us) for s, us in floors.items() if shapes.get(s) in sizes]
    if least:
        lines.append(SweepLine("read floor", "read floor", _ordered(least), True))
    if light:
        lines.append(
            SweepLine("speed of light", "speed of light", _ordered([*light.values()]), True)
        )
    return tuple(lines)


def _ordered(points: Iterable[SweepPoint]) -> tuple[SweepPoint, ...]:
    return tuple(sorted(points, key=lambda point: point.size))


_STYLES: dict[LineKind, tuple[str, str]] = {
    "step": ("-", "o"), "peer": ("--", "s"), "read floor": (":", ""), "speed of light": ("-.", ""),
}  # fmt: skip


def sweep_figure(drawn: Sweep, palette: Palette, marks: Marks) -> Any:
    """The figure of a sweep: logarithmic axes, intervals as bars, a line per step.

    Below it each line's times over those of the newest step: under 1 it is ahead of that step.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    figure = drawing.new_figure(7.2, 5.0)
    axes, ratios = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    newest = [line for line in drawn.lines if line.drawn and line.kind == "step"][-1]
    base = {point.size: point.us for point in newest.points}
    colour = iter(palette.series * 9)
    for line in (line for line in drawn.lines if line.drawn):
        style, marker = _STYLES[line.kind]
        floor = not marker
        shade = palette.muted if floor else next(colour)
        xs, ys = [p.size for p in line.points], [p.us for p in line.points]
        label = line.name + (" (peer)" if line.kind == "peer" else "")
        axes.plot(xs, ys, style, color=shade, linewidth=1.1, label=label, zorder=1)
        both = [size for size in xs if size in base]
        times = dict(zip(xs, ys, strict=True))
        over = [times[size] / base[size] for size in both]
        ratios.plot(both, over, style, color=shade, linewidth=1.1, marker=marker, markersize=2.5)
        for point in () if floor else line.points:
            _draw_timed(axes, drawn, line, point, shade, marker, marks)
    axes.set_xscale("log", base=2)
    drawing.axis_in_words(axes, palette, x=False)
    axes.xaxis.set_major_locator(FixedLocator(drawn.sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("µs, log scale", fontsize=7, color=palette.muted)
    ratios.set_ylim(0.5, min(ratios.get_ylim()[1], 2.5))
    drawing.quiet_lines(ratios, palette, "y")
    ratios.set_xlabel(f"{drawn.dimension}, log scale", fontsize=7, color=palette.muted)
    ratios.set_ylabel(f"÷ {newest.name}", fontsize=7, color=palette.muted)
    figure.legend(
        loc="outside right upper", fontsize=7, frameon=False, labelcolor=palette.ink,
        handlelength=3,
    )  # fmt: skip
    return figure


def _draw_timed(
    axes: Any, drawn: Sweep, line: SweepLine, point: SweepPoint, colour: str, marker: str,
    marks: Marks,
) -> None:  # fmt: skip
    interval = drawing.interval_text(point.low, point.high)
    if interval:
        axes.vlines(point.size, point.low, point.high, color=colour, linewidth=3, alpha=0.35)
    (dot,) = axes.plot(point.size, point.us, marker, color=colour, markersize=3.5)
    told = f"{line.name}, {drawn.dimension} = {point.size}: {point.us:,.2f} µs{interval}, measured"
    marks.add(dot, line.name, told, point.us, point.low, point.high)


def save_sweep(found: Sequence[Sweep], dimension: str, path: str) -> None:
    """Draw the sweep over a dimension to a file; of several the one with the most sizes.

    Raises:
        UsageError: If nothing was measured over that dimension, or for another kind of file.
        EnvironmentProblem: If matplotlib is missing, or the file cannot be written.
    """
    fitting = [sweep for sweep in found if sweep.dimension == dimension]
    if not fitting:
        known = ", ".join(sorted({sweep.dimension for sweep in found}))
        hint = f"there are sweeps over {known}" if known else "run shapes that differ in it"
        raise UsageError(f"nothing was measured over {dimension!r}", hint)
    drawn = max(fitting, key=lambda sweep: len(sweep.sizes))
    drawing.draw_to(path, lambda: sweep_figure(drawn, FILE_PALETTE, Marks()), drawn.title, 8)
