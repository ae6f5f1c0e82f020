"""A trace of ``kernelbench check --trace`` as an SVG: a row for each warp, unit and barrier."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

_WIDTH, _LEFT, _ROW, _TOP = 1000, 190, 24, 44
_FONT = 'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12"'
_WAIT, _WORK, _UNIT, _FINDING = "#8a5a2b", "#4c9f70", "#5b8dd9", "#ff5f56"
_ODD, _EVEN = "#b294bb", "#3f3f46"


def trace_svg(document: dict[str, Any], title: str, barriers: str) -> str:
    """The picture.

    Args:
        document: Chrome trace events. barriers: A pattern for the names of those to show.
    """
    events = document["traceEvents"]
    end = max(each["ts"] + each.get("dur", 0) for each in events if "ts" in each)
    rows = [*_warps(events), *_units(events), *_barriers(events, re.compile(barriers), end)]
    height = _TOP + _ROW * len(rows) + 40

    def x(time: int) -> str:
        return f"{_LEFT + (_WIDTH - _LEFT - 12) * time / end:.1f}"

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" xmlns="http://www.w3.org/2000/svg" {_FONT}>',
        '<rect width="100%" height="100%" rx="8" fill="#292929"/>',
        f'<text x="12" y="24" fill="#e0e0e0">{escape(title)}</text>',
    ]
    for number, (name, spans) in enumerate(rows):
        y = _TOP + _ROW * number
        parts.append(f'<text x="12" y="{y + 15}" fill="#c5c8c6">{escape(name)}</text>')
        for left, right, colour in _runs(spans, end):
            parts.append(
                f'<rect x="{_LEFT + left}" y="{y + 3}" width="{right - left}" '
                f'height="{_ROW - 8}" fill="{colour}"/>'
            )
    for each in events:
        if each["ph"] == "i":
            at, bottom = x(each["ts"]), height - 34
            parts.append(
                f'<path d="M{at} {_TOP - 6}V{bottom}" stroke="{_FINDING}" stroke-width="2"/>'
                f'<text x="{float(at) - 4:.1f}" y="{_TOP - 8}" text-anchor="end" fill="{_FINDING}">'
                f"{escape(each['name'].split(':')[0])}</text>"
            )
    legend = ((_WORK, "works"), (_WAIT, "waits"), (_UNIT, "issued, not completed"))
    for place, (colour, text) in enumerate((*legend, (_ODD, "an odd phase of a barrier"))):
        left = _LEFT + 200 * place
        parts.append(
            f'<rect x="{left}" y="{height - 22}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{left + 16}" y="{height - 12}" fill="#c5c8c6">{text}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


_Spans = list[tuple[int, int, str]]


def _runs(spans: _Spans, end: int) -> Iterator[tuple[int, int, str]]:
    """Columns of the picture, each in the colour of what has most of it, as runs."""
    columns = _WIDTH - _LEFT - 12
    most: list[tuple[float, str]] = [(0, "")] * columns
    for begin, until, colour in spans:
        first, last = columns * begin / end, columns * until / end
        for column in range(int(first), min(int(last) + 1, columns)):
            share = min(last, column + 1) - max(first, column)
            most[column] = max(most[column], (share, colour))
    begin = 0
    for column in range(1, columns + 1):
        if column == columns or most[column][1] != most[begin][1]:
            if most[begin][1]:
                yield begin, column, most[begin][1]
            begin = column


def _warps(events: list[Any]) -> Iterator[tuple[str, _Spans]]:
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for warp, name in sorted(names.items()):
        yield (
            name,
            [
                (e["ts"], e["ts"] + e["dur"], _WAIT if e["cat"] == "wait" else _WORK)
                for e in events
                if e["ph"] == "X" and e["tid"] == warp
            ],
        )


def _units(events: list[Any]) -> Iterator[tuple[str, _Spans]]:
    begun: dict[int, Any] = {}
    units: dict[str, _Spans] = {}
    for each in events:
        if each["ph"] == "b":
            begun[each["id"]] = each
        elif each["ph"] == "e":
            first = begun[each["id"]]
            spans = units.setdefault(each["name"], [])
            spans.append((first["ts"], each["ts"], _UNIT))
    yield from sorted(units.items())


def _barriers(events: list[Any], wanted: re.Pattern[str], end: int) -> Iterator[tuple[str, _Spans]]:
    phases: dict[str, list[tuple[int, int]]] = {}
    for each in events:
        if each["ph"] == "C" and wanted.fullmatch(each["name"]):
            phases.setdefault(each["name"], []).append(
                (each["ts"], each["args"]["phases completed"])
            )
    for name, changes in phases.items():
        ends = [*(time for time, _ in changes[1:]), end]
        yield (
            name,
            [
                (begin, until, _ODD if phase % 2 else _EVEN)
                for (begin, phase), until in zip(changes, ends, strict=True)
            ],
        )
