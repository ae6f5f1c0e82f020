"""A comparison as a picture: the change of time with its interval, a row per shape and metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.compare.comparison import Comparison
from kernelbench.report import drawing
from kernelbench.report.drawing import FILE_PALETTE, Palette


@dataclass(frozen=True)
class VerdictBar:
    """One row: a change of time as a fraction, its interval, and what is said of it."""

    label: str
    verdict: str
    change: float
    low: float
    high: float


def verdict_bars(comparison: Comparison) -> tuple[VerdictBar, ...]:
    """The rows of a comparison's picture, in its order."""
    return tuple(
        VerdictBar(
            f"{line.collected.shape.name}, {line.metric} time",
            str(line.verdict.label),
            line.verdict.estimate.change,
            *line.verdict.estimate.change_ci,
        )
        for line in comparison.lines
    )


def save_verdicts(comparison: Comparison, path: str) -> None:
    """Draw a comparison, else UsageError; other errors as of ``drawing.require_drawable``."""
    drawing.require_drawable(path)
    bars = verdict_bars(comparison)
    if not bars:
        raise UsageError("nothing was timed, so that there is nothing to draw")
    margin = comparison.lines[0].verdict.estimate.margin
    title = f"{comparison.base.name} → {comparison.cand.name} on {comparison.device}"
    drawing.draw_to(path, lambda: verdict_figure(bars, margin, FILE_PALETTE), title)


def verdict_figure(bars: Sequence[VerdictBar], margin: float, palette: Palette) -> Any:
    """The figure: a point with its interval per row, the margin as a band around no change."""
    figure = drawing.new_figure(7.2, 1.1 + 0.28 * len(bars))
    axes = figure.add_subplot()
    axes.axvspan(-100 * margin, 100 * margin, color=palette.rule, alpha=0.5, linewidth=0)
    axes.axvline(0, color=palette.muted, linewidth=0.8)
    for place, bar in enumerate(bars):
        axes.hlines(
            place, 100 * bar.low, 100 * bar.high, color=palette.series[0], linewidth=3, alpha=0.4
        )
        axes.plot(100 * bar.change, place, "o", color=palette.series[0], markersize=4.5)
    ends = [value for bar in bars for value in (bar.low, bar.high)] + [-margin, margin]
    room = 8 * (max(ends) - min(ends))
    axes.set_xlim(100 * min(ends) - room, 100 * max(ends) + room)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    words = axes.secondary_yaxis("right")
    words.set_yticks(range(len(bars)), [f"{100 * bar.change:+.2f}%  {bar.verdict}" for bar in bars])
    words.tick_params(length=0, labelsize=7, labelcolor=palette.ink)
    axes.tick_params(length=0, labelsize=7, labelcolor=palette.ink)
    axes.set_xlabel(
        f"change of time, % (less is faster); band: margin of ±{100 * margin:g}%", fontsize=7,
        color=palette.muted,
    )  # fmt: skip
    axes.grid(axis="x", color=palette.rule, linewidth=0.5)
    for side in (axes, words):
        for spine in side.spines.values():
            spine.set_color(palette.rule)
    return figure
