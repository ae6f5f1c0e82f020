"""The wait-for graph of a hang as SVG: who waits for what, and who would have to end that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from kernelbench.emulator.diagnostics import cta_in_words, waiter_in_words
from kernelbench.emulator.findings import Waiting, first_cause, resource_name

#: Waiters that one picture has room for.
_SHOWN = 14
_ROW, _BOX = 52, 40
_WAITER, _OBJECT = (8, 270), (432, 320)  # left edge and width of the boxes
_SAID, _MORE = 46, 60  # letters of a box's first and second line that fit

#: In a page the colours are the theme's, in a file of its own those behind the comma.
_STYLE = """
svg.waits { width: 100%; max-width: 760px; font: 12px system-ui, "DejaVu Sans", sans-serif; }
.waits rect { fill: none; stroke: var(--muted, #5b626c); rx: 6px; }
.waits text { fill: var(--ink, #1c1f23); stroke: none; }
.waits .more { fill: var(--muted, #5b626c); font-size: 10.5px; }
.waits path { fill: none; stroke: var(--muted, #5b626c); stroke-width: 1.4; }
.waits .ends { stroke: var(--c0, #0b6fb3); stroke-dasharray: 5 3; }
.waits .root rect { stroke: var(--bad, #b3261e); stroke-width: 2.5; }
.waits .root .said { fill: var(--bad, #b3261e); font-weight: 600; }
"""


@dataclass(frozen=True)
class WaitGraph:
    """Nodes and edges."""

    waiters: tuple[Waiting, ...]  #: Warps, by their place in the picture.
    #: What they wait for: a CTA, a rank and a name; of lanes of a warp, that warp, too.
    objects: tuple[Waiting, ...]
    #: For each waiter the place of its object; the first one is what nothing ends.
    waits: tuple[int, ...]
    #: From an object to the waiters that would have to end its wait.
    ends: tuple[tuple[int, int], ...]
    left_out: int  #: Waiters that are not shown.


def wait_graph(waits: Sequence[Waiting]) -> WaitGraph:
    """The graph of a hang's waits, which are not empty: the root first, then its CTA."""
    cause = first_cause(waits)

    def distance(wait: Waiting) -> tuple[bool, bool, bool]:
        return wait is not cause, wait.cta != cause.cta, wait.rank != cause.rank

    shown = sorted(waits, key=distance)[:_SHOWN]
    keys = [_object(wait) for wait in shown]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    found = tuple(places[key] for key in keys)
    objects = tuple(shown[found.index(place)] for place in places.values())
    ends = tuple(
        (place, at)
        for place, wait in enumerate(objects)
        for at, other in enumerate(shown)
        if found[at] != place and _would_end(wait, other)
    )
    return WaitGraph(tuple(shown), objects, found, ends, len(waits) - len(shown))


def _object(wait: Waiting) -> tuple[object, ...]:
    own = (wait.warps, wait.lanes) if wait.what == resource_name("warp") else ()
    return wait.cta, wait.rank, wait.what, own


def _would_end(wait: Waiting, other: Waiting) -> bool:
    """Whether who waits elsewhere is one that this wait is for."""
    if wait.what == resource_name("cluster"):
        return wait.rank != other.rank
    if (wait.cta, wait.rank) != (other.cta, other.rank):
        return False
    if wait.what == resource_name("warp"):
        return bool({*wait.warps} & {*other.warps}) and not wait.lanes & other.lanes
    if wait.what.startswith("named barrier "):
        return True
    return bool(wait.arrived.role) and wait.arrived.role == other.access.role


def wait_graph_svg(waits: Sequence[Waiting]) -> str:
    """The SVG element of a hang's wait-for graph; empty without waits."""
    if not waits:
        return ""
    graph = wait_graph(waits)
    rows = [graph.waits.index(place) for place in range(len(graph.objects))]
    height = _ROW * len(graph.waiters) + 24
    several = len({(wait.cta, wait.rank) for wait in graph.waiters}) > 1
    head = f'<svg class="waits" viewBox="0 0 760 {height}" '
    parts = [f'{head}role="img" aria-label="Wait-for graph"><style>{_STYLE}</style>']
    left, right = sum(_WAITER), _OBJECT[0]
    for at, place in enumerate(graph.waits):
        parts.append(_edge("for", (left, _middle(at) - 6), (right, _middle(rows[place]) - 6)))
    for place, at in graph.ends:
        parts.append(_edge("ends", (right, _middle(rows[place]) + 8), (left, _middle(at) + 8)))
    for at, wait in enumerate(graph.waiters):
        where = f"CTA {cta_in_words(wait.cta)}, rank {wait.rank}, " if several else ""
        who = waiter_in_words(wait)
        parts += _box("waiter", _WAITER, at, who, where + wait.access.where)
    for place, wait in enumerate(graph.objects):
        said = f"{wait.what} lacks {wait.needs.replace(' more', '')}" if wait.needs else wait.what
        kind = "object" if place else "object root"
        parts += _box(kind, _OBJECT, rows[place], said, wait.state)
    more = f"; {graph.left_out} more wait" if graph.left_out else ""
    parts.append(
        f'<text class="more" x="8" y="{height - 6}">solid: waits for; dashed: would have to end '
        f"it, or arrived there last; red: the cause{more}</text></svg>"
    )
    return "".join(parts)


def _middle(row: int) -> int:
    return _ROW * row + _BOX // 2 + 4


def _box(kind: str, where: tuple[int, int], row: int, said: str, more: str) -> Iterator[str]:
    x, width = where
    y = _ROW * row + 4
    yield f'<g class="{kind}"><title>{escape(f"{said}: {more}" if more else said)}</title>'
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{_BOX}"/>'
    yield f'<text class="said" x="{x + 8}" y="{y + 17}">{_short(said, _SAID)}</text>'
    yield f'<text class="more" x="{x + 8}" y="{y + 32}">{_short(more, _MORE)}</text></g>'


def _short(text: str, most: int) -> str:
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")


def _edge(kind: str, begin: tuple[int, int], end: tuple[int, int]) -> str:
    (x, y), (to, down) = begin, end
    bend, head = (60, -7) if to > x else (-60, 7)
    curve = f"M{x} {y}C{x + bend} {y} {to - bend} {down} {to} {down}"
    return f'<path class="{kind}" d="{curve}m{head} -4l{-head} 4l{head} 4"/>'
