"""Operators on how roles hand things over: arrivals, accumulators, tiles found ahead, phases."""

from __future__ import annotations

from collections.abc import Iterator

from cpp_source import Call, Edit, Source, Span
from mutant import WRONG, Site, drop, expect, operator
from objects import (
    ACCUMULATORS,
    ANSWER,
    BARRIERS,
    GUARDED,
    MAPS,
    SCALES,
    SLOTS,
    TMEM,
    UNORDERED,
    barrier_in,
    constant,
)

# ---- arrivals without bytes --------------------------------------------------------------------

ARRIVE = "mbarrier_arrive"


def _arrivals(source: Source) -> Iterator[tuple[Call, Span, str]]:
    """Each arrival, its statement and its barrier."""
    for call in source.calls(ARRIVE):
        assert call.statement
        yield call, call.statement, barrier_in(source, call.arguments[-1])


#: The building block that hands accumulators back.
_RELEASE = "release_accumulators"


def _before_reads(source: Source, call: Call) -> int:
    """In front of the loop that reads the accumulators, in the function of a call."""
    inside = source.function_span(call.span.start)
    (loop, *_) = [each for each in source.loops if each.span.start > inside.start]
    return loop.span.start


@operator("handover-dropped", "an arrival without bytes is missing")
def handover_dropped(source: Source) -> Iterator[Site]:
    for call, statement, bar in _arrivals(source):
        yield Site(call.span.start, (drop(statement),), expect("hang", bar))


@operator("handover-twice", "an arrival without bytes is made twice")
def handover_twice(source: Source) -> Iterator[Site]:
    for call, statement, bar in _arrivals(source):
        edit = Edit(Span(statement.end, statement.end), " " + source[statement])
        # One more than a whole phase needs: the next is complete as well, and passes for the last.
        expected = expect(f"arrival-count phase hang {UNORDERED}", bar, GUARDED.get(bar, ()))
        yield Site(call.span.start, (edit,), expected)


@operator("handover-relaxed", "an arrival orders nothing before it")
def handover_relaxed(source: Source) -> Iterator[Site]:
    for call, _, bar in _arrivals(source):
        edit = Edit(call.arguments[0], "ptx::sem_relaxed")
        yield Site(call.span.start, (edit,), expect(UNORDERED, GUARDED.get(bar, ())))


@operator("handover-early", "an arrival comes before what it hands over is done")
def handover_early(source: Source) -> Iterator[Site]:
    for call, statement, bar in _arrivals(source):
        if bar == "tmem_empty" and source.function_at(call.span.start) != _RELEASE:
            at = _before_reads(source, call)
            text = f"if (ptx::elect_sync()) {source[statement]}\n  "
        elif bar in ("taken", "tiles.full"):
            at = source.statement_before(statement.start).start
            text = source[statement] + "\n  "
        else:
            continue
        edits = (Edit(Span(at, at), text), drop(statement))
        kinds = f"arrival-count phase transaction-count {UNORDERED}"
        yield Site(call.span.start, edits, expect(kinds, bar, GUARDED.get(bar, ())))
    for call in source.calls(_RELEASE):
        assert call.statement
        at = _before_reads(source, call)
        bar = source[call.arguments[0]]
        text = (
            "if (ptx::elect_sync()) "
            f"ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, {bar});\n  "
        )
        rest = "ptx::tcgen05_fence_before_thread_sync();\n  ptx::bar_warp_sync();"
        edits = (Edit(Span(at, at), text), Edit(call.statement, rest))
        kinds = f"arrival-count phase transaction-count {UNORDERED}"
        yield Site(call.span.start, edits, expect(kinds, "tmem_empty", GUARDED["tmem_empty"]))
    # A whole tile: its slot is handed back before the roles have worked on it.
    for call in source.calls("release_tile"):
        assert call.statement
        (take,) = source.calls("take_tile")
        at = source.code.index(";", take.span.end) + 1
        edits = (Edit(Span(at, at), " " + source[call.statement]), drop(call.statement))
        alone = "tile.maps" not in source.code
        proof = (
            "A warp works on its own copy of the tile: nothing in the slot is read after it was "
            "taken, and what the tile names never changes during the call."
            if alone
            else ""
        )
        kinds = f"tensor-map-proxy {UNORDERED}"
        yield Site(call.span.start, edits, expect(kinds, MAPS, SLOTS, roles=_SET_ROLES), proof)


# Where two uses of one set of maps meet.
_SET_ROLES = "scheduler_warp load_warp epilogue_warps"


@operator("init-dropped", "barriers are not initialized, or not invalidated")
def init_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(r"(?:init|invalidate)_\w+"):
        if call.statement:
            expected = expect("barrier-state", BARRIERS)
            yield Site(call.span.start, (drop(call.statement),), expected)


@operator("drain-dropped", "nobody waits for the last commits")
def drain_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("drain_stages|drain_cluster_stages"):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect("exit race", "empty"))


@operator("phase-kept", "the parity of a barrier's phase does not change")
def phase_kept(source: Source) -> Iterator[Site]:
    objects = ("tmem_full", "tmem_empty", "taken", "launch_control.answered", ACCUMULATORS, ANSWER)
    for match in source.find(r"\bphase \^= (1)(?=[;)])"):
        edit = Edit(Span(match.start(1), match.end(1)), "0")
        expected = expect(f"hang phase arrival-count {UNORDERED} {WRONG}", objects)
        yield Site(match.start(), (edit,), expected)


# ---- accumulators ------------------------------------------------------------------------------


@operator("accumulator-shared", "every tile uses the first accumulator")
def accumulator_shared(source: Source) -> Iterator[Site]:
    for match in source.find(r"\btmem( \+ accum\.stage \* kTileColumns)"):
        edit = Edit(Span(match.start(1), match.end(1)), "")
        proof = "There is one accumulator: its number is always 0."
        alone = constant(source, "kAccumulators") == 1
        expected = expect(f"{WRONG} {UNORDERED}", TMEM)
        yield Site(match.start(), (edit,), expected, proof if alone else "")


@operator("accumulator-stride", "an accumulator starts inside the one before")
def accumulator_stride(source: Source) -> Iterator[Site]:
    for match in source.find(r"\btmem \+ accum\.stage \* (kTileColumns)"):
        edit = Edit(Span(match.start(1), match.end(1)), "(kTileColumns / 2)")
        proof = "There is one accumulator: it starts where the allocation does."
        alone = constant(source, "kAccumulators") == 1
        expected = expect(f"{WRONG} tmem-bounds {UNORDERED}", ACCUMULATORS, SCALES)
        yield Site(match.start(), (edit,), expected, proof if alone else "")


@operator("single-wave-inverted", "accumulators are handed back in the other kernel")
def single_wave_inverted(source: Source) -> Iterator[Site]:
    for match in source.find(r"\((!)kSingleWave\)"):
        waits = source.function_at(match.start()) == "mma_warp"
        expected = expect(UNORDERED, ACCUMULATORS) if waits else expect("hang exit", "tmem_empty")
        yield Site(match.start(), (Edit(Span(match.start(1), match.end(1)), ""),), expected)


# ---- sets of maps ------------------------------------------------------------------------------

_REUSED = f"tensor-map-proxy out-of-bounds {UNORDERED} {WRONG}"


@operator("map-set-reused", "a group's maps overwrite those of the group before")
def map_set_reused(source: Source) -> Iterator[Site]:
    for match in source.find(r"\(ring\.slot( \+ 1)\) % kMapSets"):
        edit = Edit(Span(match.start(1), match.end(1)), "")
        yield Site(match.start(), (edit,), expect(_REUSED, MAPS, roles=_SET_ROLES))


@operator("map-sets-fewer", "a group's maps overwrite those of the last tile handed back")
def map_sets_fewer(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bkMapSets = kTileSlots( \+ 1);"):
        edit = Edit(Span(match.start(1), match.end(1)), "")
        # Its stores have been started; they may still read the map.
        yield Site(match.start(), (edit,), expect(_REUSED, MAPS, roles=_SET_ROLES))


_ALONE = "the emulator runs clusters one after another, except in a cooperative launch"


@operator("map-sets-shared", "all CTAs change the first one's maps")
def map_sets_shared(source: Source) -> Iterator[Site]:
    expected = expect(f"{_REUSED} descriptor", MAPS, "tables", roles=f"{_SET_ROLES} patch_maps")
    # Where the same place is named once, for what writes and what reads, and CTAs run one by one.
    once = "WorkTile find_work" in source.code and "cluster_sync" not in source.code
    for match in source.find(r"\bgroups\.maps\[(ptx::cta_index\(\)\.x)\b"):
        edit = Edit(Span(match.start(1), match.end(1)), "0")
        alone = once and source.function_at(match.start()) == "find_work"
        yield Site(match.start(), (edit,), expected, gap=_ALONE if alone else "")


@operator("group-changes-forgotten", "the scheduler takes every tile for a new group's")
def group_changes_forgotten(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bring = \{(tile\.group),"):
        edit = Edit(Span(match.start(1), match.end(1)), "~0u")
        yield Site(
            match.start(),
            (edit,),
            expect(_REUSED, MAPS, roles=_SET_ROLES),
            proof="Every tile gets a set of its own, though the group's maps are the same: it is "
            "published and acquired like a new group's, and there are more sets than slots.",
        )
