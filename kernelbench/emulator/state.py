"""What a debugger would say at a finding: barriers, and the last operations of who is involved."""

from __future__ import annotations

from collections.abc import Iterator

from kernelbench.emulator.findings import Finding
from kernelbench.emulator.trace import (
    BARRIER,
    DONE,
    FINDING,
    ISSUE,
    PRIMITIVE,
    RESUMED,
    WAIT,
    WARP,
    Event,
    Trace,
)

_LAST_OPERATIONS = 6
_SHOWN_WARPS = 6
_Warp = tuple[int, int, int, int]


def state_at(trace: Trace, identity: str) -> list[str]:
    """The state when a finding was made first; empty if the trace does not have it.

    Args:
        identity: The finding's.
    """
    for index, event in enumerate(trace.events):
        if event.what != FINDING or event.a >= len(trace.findings):
            continue
        finding = trace.findings[event.a]
        if finding.identity == identity:
            before = trace.events[:index]
            warps = _involved(finding, event, before)
            return [*_lines(trace, event, before, warps)]
    return []


def _involved(finding: Finding, event: Event, before: list[Event]) -> list[_Warp]:
    """The warps of both sides; of a hang, those that wait."""
    if event.thread >= 0:
        warps = [event.warp]
        if finding.other_thread >= 0:
            warps.append((*event.cta, finding.other_thread // WARP))
        return [*dict.fromkeys(warps)]
    waiting: dict[tuple[_Warp, int], None] = {}
    for each in before:
        if each.what == WAIT:
            waiting[each.warp, each.thread] = None
        elif each.what == RESUMED:
            waiting.pop((each.warp, each.thread), None)
    return [*dict.fromkeys(warp for warp, _ in waiting)]


def _lines(trace: Trace, event: Event, before: list[Event], warps: list[_Warp]) -> Iterator[str]:
    cta = event.cta if event.thread >= 0 or not warps else warps[0][:3]
    place = f"launch {cta[0]}, cluster {cta[1]}, CTA {cta[2]} of it"
    yield f"event {event.time:,} of {trace.end:,}: {place}"
    barriers = {each.a: each for each in before if each.what == BARRIER and each.cta == cta}
    if barriers:
        yield "barriers"
        names = {offset: trace.object(each, offset) for offset, each in barriers.items()}
        width = max(map(len, names.values()))
        for offset, each in sorted(barriers.items()):
            yield (
                f"  {names[offset]:{width}}  {each.b} completed, phase parity {each.b % 2}, "
                f"{each.c} pending"
            )
    issued = {each.a: each for each in before if each.what == ISSUE}
    for each in before:
        if each.what == DONE:
            issued.pop(each.a, None)
    pending = [each for each in issued.values() if each.cta == cta]
    if pending:
        yield "issued and not completed"
        yield from (f"  {line}" for line in _grouped(trace, pending))
    for warp in warps[:_SHOWN_WARPS]:
        yield from _warp_lines(trace, before, warp)
    if len(warps) > _SHOWN_WARPS:
        yield f"… and {len(warps) - _SHOWN_WARPS} more warps"


def _warp_lines(trace: Trace, before: list[Event], warp: _Warp) -> Iterator[str]:
    # Lanes and the parts of one line follow each other: each line once.
    last: dict[str, None] = {}
    for each in reversed(before):
        if each.thread >= 0 and each.warp == warp and each.what in (PRIMITIVE, WAIT):
            place = trace.place(each)
            what = f"waits for {trace.waits_for(each)}" if each.what == WAIT else ""
            code = what or trace.code(each)
            role = f"{place.role} at {place}" if place and place.role else str(place or "?")
            last[f"{role}: {code}"] = None
        if len(last) == _LAST_OPERATIONS:
            break
    yield f"last of warp {warp[3]} (cluster {warp[1]}, CTA {warp[2]} of it), newest first"
    yield from (f"  {line}" for line in last)


def _grouped(trace: Trace, events: list[Event]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for each in events:
        place = trace.place(each)
        text = f"{place}: {trace.code(each)}" if place else "arrivals of what has completed"
        counts[text] = counts.get(text, 0) + 1
    for text, count in counts.items():
        yield text + (f" ×{count}" if count > 1 else "")
