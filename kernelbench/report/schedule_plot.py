"""Predicted schedules as SVG: a step below its parent, on one axis of time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from html import escape

from kernelbench.predict.schedule import Drawn, Lane, Schedule
from kernelbench.predict.timeline import KINDS
from kernelbench.report.drawing import short_us

_NAMES, _WIDTH, _ROW, _HEAD = 176, 784, 16, 26
#: In a page the colours are the theme's, in a file of its own those behind the comma.
_STYLE = """
svg.schedule { width: 100%; min-width: 720px; font: 11px system-ui, "DejaVu Sans", sans-serif; }
.schedule text { fill: var(--ink, #1c1f23); }
.schedule .title { font-weight: 600; font-size: 12px; }
.schedule .axis { stroke: var(--rule, #d5d9df); }
.schedule .axis text { fill: var(--muted, #5b626c); stroke: none; text-anchor: middle; }
.schedule .end { stroke: var(--ink, #1c1f23); stroke-width: 1.5; }
.schedule .bar { stroke-width: 11; }
.schedule .k0 { stroke: var(--c0, #0b6fb3); } .schedule .k1 { stroke: var(--c1, #c44d00); }
.schedule .k2 { stroke: var(--c2, #00805c); } .schedule .k3 { stroke: var(--c3, #a8467f); }
.schedule .k4 { stroke: var(--c4, #7a5b00); } .schedule .busy { stroke: var(--c6, #4a4f57); }
.schedule .gone { stroke: var(--bad, #b3261e); stroke-width: 16; }
"""


def schedules_svg(
    found: Sequence[Schedule], gone: Collection[tuple[str, str]] = (), page: bool = False
) -> str:
    """The SVG of schedules below one another; alone in a file unless it is for a page.

    Args:
        gone: Causes and lines that stand out on the first one's critical path.
    """
    height = sum(_HEAD + _ROW * len(each.lanes) for each in found) + 62
    last = max(each.prediction.device_us for each in found)
    names = " and ".join(f"{each.prediction.step}" for each in found)
    head = f'<svg class="schedule" viewBox="0 0 {_NAMES + _WIDTH + 8} {height}" role="img" '
    if not page:
        head += 'xmlns="http://www.w3.org/2000/svg" '
    parts = [f'{head}aria-label="Predicted schedules of {escape(names)}"><style>{_STYLE}</style>']
    parts += _axis(last, height - 44)
    y = 0
    for place, each in enumerate(found):
        parts += _chart(each, y, last, () if place else gone)
        y += _HEAD + _ROW * len(each.lanes)
    parts += _legend(height - 8, found, bool(gone))
    return "".join([*parts, "</svg>\n"])


def _axis(last: float, bottom: int) -> Iterator[str]:
    step = 10 ** math.floor(math.log10(last))
    step = next(each for each in (step / 5, step / 2, step) if last / each <= 10)
    yield f'<g class="axis"><text x="{_NAMES - 60}" y="{bottom + 14}">µs, predicted</text>'
    for number in range(int(last / step) + 1):
        x = _NAMES + _WIDTH * number * step / last
        yield f'<path d="M{x:.1f} {_HEAD - 4}V{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 14}">{number * step:g}</text>'
    yield "</g>"


def _chart(
    found: Schedule, top: int, last: float, gone: Collection[tuple[str, str]]
) -> Iterator[str]:
    made = found.prediction
    what = f"{made.step} on {made.shape}: {short_us(made.device_us)} µs, predicted for"
    yield f'<text class="title" x="0" y="{top + 16}">{escape(what)} {escape(found.device)}</text>'
    column = _WIDTH * made.device_us / last / found.columns
    for place, lane in enumerate(found.lanes):
        y = top + _HEAD + _ROW * place
        busy = "" if lane.busy is None else f", {100 * lane.busy:.0f} %"
        yield f'<text x="0" y="{y + 10}">{escape(lane.name + busy)}</text>'
        yield f'<g class="bar" transform="translate({_NAMES} {y + 6})scale({column:.5g} 1)">'
        yield from _bars(found.drawn, lane, () if place else gone)
        yield "</g>"
    x, bottom = _NAMES + _WIDTH * made.device_us / last, top + _HEAD + _ROW * len(found.lanes)
    yield f'<path class="end" d="M{x:.1f} {top + _HEAD - 4}V{bottom}"/>'


def _bars(drawn: Sequence[Drawn], lane: Lane, gone: Collection[tuple[str, str]]) -> Iterator[str]:
    """A path for each thing that a lane does or waits for; what is gone lies over the others."""
    by_place: dict[int, list[str]] = {}
    for first, count, place in zip(*(iter(lane.runs),) * 3, strict=True):
        by_place.setdefault(place, []).append(f"M{first} 0h{count}")
    for place in sorted(by_place, key=lambda at: (drawn[at].cause, drawn[at].where) in gone):
        each = drawn[place]
        kind = "busy" if each.kind == "busy" else f"k{[*KINDS].index(each.kind)}"
        if (each.cause, each.where) in gone:
            kind = "gone"
        told = escape(", ".join(filter(None, (each.cause or each.kind, each.where))))
        runs = "".join(by_place[place])
        yield f'<path class="{kind}" d="{runs}"><title>{told}</title></path>'


def _legend(y: int, found: Sequence[Schedule], gone: bool) -> Iterator[str]:
    shown = [(f"k{place}", kind) for place, kind in enumerate(KINDS)]
    if gone:
        shown.append(("gone", f"{found[-1].prediction.step} removes it"))
    x = 0
    for kind, text in shown:
        yield f'<g class="bar"><path class="{kind}" d="M{x + 1} {y - 4}h11"/></g>'
        yield f'<text x="{x + 17}" y="{y}">{escape(text)}</text>'
        x += 36 + 6 * len(text)
