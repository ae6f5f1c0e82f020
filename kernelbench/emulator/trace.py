"""What happened in a launch, event by event: for Perfetto, and as a debugger would say it.

The runtime's events (``trace.hpp``) have a time that is their number: an order, no duration.
:class:`Trace` gives them names; :func:`chrome_trace` is the Chrome trace-event format, which
Perfetto's UI and ``chrome://tracing`` open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernelbench.emulator.findings import Finding, resource_name
from kernelbench.emulator.identity import shown_code
from kernelbench.emulator.symbols import Place, Symbols

#: ``What`` in trace.cpp.
PRIMITIVE, WAIT, RESUMED, ISSUE, RUN, DONE, BARRIER, FINDING = range(8)
#: ``Wait::Kind`` in wait.hpp.
_WAITS = (
    "none", "mbarrier", "named-barrier", "warp", "cluster", "bulk-group", "tmem-alloc",
    "tmem-load", "global", "cp.async", "wgmma", "shared", "yield",
)  # fmt: skip
#: ``Pipe`` in knowledge.hpp; -1 is none.
_UNITS = {-1: "copies and arrivals", 0: "tensor pipe", 1: "TMEM loads"}
WARP = 32


class Event(NamedTuple):
    """One event; what ``a`` to ``c`` are depends on ``what``."""

    time: int
    what: int
    launch: int
    cluster: int
    rank: int
    thread: int
    place: int
    a: int
    b: int
    c: int

    @property
    def cta(self) -> tuple[int, int, int]:
        """Launch, cluster and rank."""
        return self.launch, self.cluster, self.rank

    @property
    def warp(self) -> tuple[int, int, int, int]:
        """The CTA and the warp in it."""
        return *self.cta, self.thread // WARP


@dataclass(frozen=True)
class Slice:
    """Something that a warp does, or waits for, from one event to another (not included)."""

    warp: tuple[int, int, int, int]
    begin: int
    end: int
    name: str
    where: str
    role: str
    waits: bool


class Trace:
    """Events with the names that the step's sources give them.

    Args:
        raw: What the runtime gives. findings: Those of its report, in time.

    Attributes:
        events: In order.
        dropped: How many there were before the first of them.
    """

    def __init__(
        self, raw: Mapping[str, Any], findings: Sequence[Finding], symbols: Symbols
    ) -> None:
        self.events = [Event(*each) for each in raw["events"]]
        self.dropped = int(raw["dropped"])
        self.findings = findings
        self._symbols = symbols
        self._raw_places = raw["places"]
        self._shared_type = str(raw["shared_type"])
        self._places: dict[int, Place | None] = {}
        self._names: dict[tuple[int, int], str] = {}

    @property
    def end(self) -> int:
        """The time after the last event."""
        return self.events[-1].time + 1 if self.events else 0

    def place(self, event: Event) -> Place | None:
        """Where it happened."""
        if event.place not in self._places:
            self._places[event.place] = self._symbols.place(self._raw_places[event.place])
        return self._places[event.place]

    def code(self, event: Event) -> str:
        """The line that it comes from."""
        place = self.place(event)
        return shown_code(place.code) if place else ""

    def object(self, event: Event, offset: int) -> str:
        """The field of ``SharedStorage`` at an offset."""
        key = (event.place, offset)
        if key not in self._names:
            pc = self._raw_places[event.place]
            name = self._symbols.shared_name(pc, self._shared_type, offset)
            self._names[key] = name or f"shared memory + {offset:#x}"
        return self._names[key]

    def waits_for(self, event: Event) -> str:
        """``full[2]`` (parity 1), ``named barrier 0``, …"""
        kind = _WAITS[event.a]
        if kind == "mbarrier":
            return f"{self.object(event, event.b)} (parity {event.c})"
        return f"named barrier {event.b}" if kind == "named-barrier" else resource_name(kind)

    def slices(self) -> Iterator[Slice]:
        """What each warp does: primitives that follow each other, and waits between them."""
        by_warp: dict[tuple[int, int, int, int], list[Event]] = {}
        for event in self.events:
            if event.thread >= 0 and event.what in (PRIMITIVE, WAIT, RESUMED):
                by_warp.setdefault(event.warp, []).append(event)
        for warp, events in by_warp.items():
            yield from self._slices_of(warp, events)

    def _slices_of(self, warp: tuple[int, int, int, int], events: list[Event]) -> Iterator[Slice]:
        waiting: dict[int, Event] = {}
        doing: Event | None = None
        free = events[0].time  # the end of the last slice
        for event in events:
            if event.what == PRIMITIVE and doing is not None and doing.place == event.place:
                free = event.time + 1
                continue
            if doing is not None:
                yield self._slice(warp, doing, free, waits=False)
                doing = None
            if waiting and event.time > free:
                last = next(reversed(waiting.values()))
                yield self._slice(warp, last, event.time, waits=True, begin=free)
            free = event.time + 1
            if event.what == PRIMITIVE:
                doing = event
            elif event.what == WAIT:
                waiting[event.thread] = event
            else:
                waiting.pop(event.thread, None)
        if doing is not None:
            yield self._slice(warp, doing, free, waits=False)
        if waiting and self.end > free:
            last = next(reversed(waiting.values()))
            yield self._slice(warp, last, self.end, waits=True, begin=free)

    def _slice(
        self,
        warp: tuple[int, int, int, int],
        event: Event,
        end: int,
        *,
        waits: bool,
        begin: int | None = None,
    ) -> Slice:
        place = self.place(event)
        name = f"waits for {self.waits_for(event)}" if waits else self.code(event) or "?"
        begin = event.time if begin is None else begin
        return Slice(warp, begin, end, name, str(place or ""), place.role if place else "", waits)


def chrome_trace(trace: Trace, title: str) -> dict[str, Any]:
    """The Chrome trace-event document: a process a CTA, a thread a warp, units as async tracks."""
    ctas = {
        cta: number
        for number, cta in enumerate(
            sorted({event.cta for event in trace.events if event.what != FINDING}), 1
        )
    }
    events = [*_tracks(trace, ctas), *_slices(trace, ctas), *_others(trace, ctas)]
    note = "time is the order of events, not a duration"
    return {
        "displayTimeUnit": "ms",
        "otherData": {"title": title, "note": note, "events dropped": trace.dropped},
        "traceEvents": events,
    }


_Json = dict[str, Any]
_Ctas = Mapping[tuple[int, int, int], int]


def _tracks(trace: Trace, ctas: _Ctas) -> Iterator[_Json]:
    for (launch, cluster, rank), pid in ctas.items():
        name = f"launch {launch}, cluster {cluster}, CTA {rank} of it"
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    roles: dict[tuple[int, int, int, int], dict[str, None]] = {}
    for each in trace.slices():
        roles.setdefault(each.warp, {}).update({each.role: None} if each.role else {})
    for warp, names in roles.items():
        text = ", ".join(name for name in names if name.endswith(("_warp", "_warps")))
        name = f"warp {warp[3]}" + (f" ({text})" if text else "")
        where = {"pid": ctas[warp[:3]], "tid": warp[3]}
        yield {"ph": "M", "name": "thread_name", **where, "args": {"name": name}}


def _slices(trace: Trace, ctas: _Ctas) -> Iterator[_Json]:
    for each in trace.slices():
        yield {
            "ph": "X", "name": each.name, "cat": "wait" if each.waits else "primitive",
            "ts": each.begin, "dur": each.end - each.begin, "pid": ctas[each.warp[:3]],
            "tid": each.warp[3], "args": {"where": each.where, "role": each.role},
        }  # fmt: skip


def _others(trace: Trace, ctas: _Ctas) -> Iterator[_Json]:
    issued: dict[int, Event] = {}
    for event in trace.events:
        if event.what == ISSUE:
            issued[event.a] = event
            yield _operation(trace, ctas, "b", event, event.time)
        elif event.what == DONE and event.a in issued:
            yield _operation(trace, ctas, "e", issued.pop(event.a), event.time)
        elif event.what == BARRIER:
            yield {
                "ph": "C", "name": trace.object(event, event.a), "ts": event.time,
                "pid": ctas[event.cta], "tid": 0,
                "args": {"phases completed": event.b, "arrivals pending": event.c},
            }  # fmt: skip
        elif event.what == FINDING and event.a < len(trace.findings):
            finding = trace.findings[event.a]
            yield {
                "ph": "i", "s": "g", "name": f"{finding.kind}: {finding.text}", "cat": "finding",
                "ts": event.time, "pid": ctas.get(event.cta, 0),
                "tid": max(event.thread, 0) // WARP,
                "args": {"identity": finding.identity, "where": finding.access.where},
            }  # fmt: skip
    for event in issued.values():  # never completed
        yield _operation(trace, ctas, "e", event, trace.end)


def _operation(trace: Trace, ctas: _Ctas, phase: str, event: Event, time: int) -> _Json:
    place = trace.place(event)
    unit = _UNITS.get(event.b, str(event.b))
    if event.b >= 0:
        unit = f"warp {event.thread // WARP}: {unit}"
    return {
        "ph": phase, "cat": "asynchronous", "id": event.a, "name": unit, "ts": time,
        "pid": ctas[event.cta], "tid": 0,
        "args": {"code": trace.code(event), "where": str(place or "")},
    }  # fmt: skip
