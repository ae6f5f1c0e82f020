"""Predicted schedules as a Gantt chart: a step above its parent, on one scale of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernelbench.predict.timeline import KINDS, Span, Timeline, TimelineRow
from kernelbench.report import drawing
from kernelbench.report.drawing import Palette

#: Narrower than this part of the whole, neighbours of one kind are drawn as one.
_LEAST = 1 / 2000


def save_timelines(found: Sequence[Timeline], path: str) -> None:
    """Draw timelines below one another.

    Raises:
        UsageError: For a file that cannot be drawn to.
        EnvironmentProblem: If matplotlib is missing, or the file cannot be written.
    """
    drawing.draw_to(path, lambda: timeline_figure(found, drawing.FILE_PALETTE))


def timeline_figure(found: Sequence[Timeline], palette: Palette) -> Any:
    """The figure: rows are warps and units of the first CTA's SM, colours what they wait for."""
    from matplotlib.patches import Patch

    heights = [len(each.rows) for each in found]
    figure = drawing.new_figure(9.0, 0.7 + 0.19 * sum(heights) + 0.6 * len(found))
    panels = figure.subplots(len(found), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    last = max(each.us for each in found)
    colours = dict(zip(KINDS, palette.series, strict=False)) | {"busy": palette.muted}
    for axes, each in zip(panels, found, strict=True):
        for place, row in enumerate(each.rows):
            _draw(axes, place, row, last, colours)
        several = len({row.launch for row in each.rows}) > 1
        names = (f"launch {row.launch}, {row.name}" if several else row.name for row in each.rows)
        axes.set_yticks(range(len(each.rows)), [*names])
        axes.set_ylim(len(each.rows) - 0.4, -0.6)
        axes.set_xlim(0, last)
        axes.axvline(each.us, color=palette.ink, linewidth=0.8)
        title = f"{each.step} on {each.shape}: {each.us:.1f} µs, predicted for {each.device}"
        axes.set_title(title, fontsize=8, loc="left", color=palette.ink)
        drawing.quiet_lines(axes, palette, "x")
    panels[-1].set_xlabel(
        "µs, predicted; the first CTA of each launch", fontsize=7, color=palette.muted
    )
    figure.legend(
        handles=[Patch(color=colours[kind], label=kind) for kind in KINDS], fontsize=7, ncols=5,
        loc="outside lower center", frameon=False, labelcolor=palette.ink,
    )  # fmt: skip
    return figure


def _draw(axes: Any, place: int, row: TimelineRow, last: float, colours: dict[str, str]) -> None:
    """A row: what is drawn over a warp's life are its stretches, the rest are instructions."""
    begin, end = row.life
    kinds: dict[str, list[tuple[float, float]]] = {}
    for span in _merged(row.spans, last * _LEAST):
        kinds.setdefault(span.kind, []).append((span.begin, span.end - span.begin))
    if "busy" not in kinds:
        kinds = {"instructions": [(begin, end - begin)]} | {
            kind: bars for kind, bars in kinds.items() if kind != "instructions"
        }
    for kind, bars in kinds.items():
        axes.broken_barh(bars, (place - 0.4, 0.8), color=colours[kind], linewidth=0)


def _merged(spans: Sequence[Span], least: float) -> Iterator[Span]:
    """Neighbours of one kind that lie closer than can be seen, as one."""
    open_: Span | None = None
    for span in spans:
        if open_ and span.kind == open_.kind and span.begin - open_.end < least:
            end = max(open_.end, span.end)
            open_ = Span(open_.kind, open_.cause, open_.where, open_.begin, end)
        else:
            if open_:
                yield open_
            open_ = span
    if open_:
        yield open_
