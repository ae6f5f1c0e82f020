"""Operators on barriers of the CTA, the warp and the cluster, and on who does a warp's work."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpp_source import Call, Edit, Source, Span
from mutant import Site, drop, expect, operator
from objects import (
    ACCUMULATORS,
    ANSWER,
    BARRIERS,
    MAPS,
    SLOTS,
    STAGES,
    TMEM,
    UNORDERED,
    cta_barrier_in,
)

# ---- barriers of the CTA -----------------------------------------------------------------------

_RING = ("full", "empty", *STAGES)


def _crossed(source: Source, call: Call) -> tuple[str, tuple[str, ...]]:
    """What threads hand over at a barrier: classes of a missing one, and objects."""
    if call.arguments:
        if source[call.arguments[0]] == "kRingBarrier":
            return f"barrier-state {UNORDERED}", _RING
        return UNORDERED, ("c",)
    code = source.code
    inside = source.function_span(call.span.start)
    before, after = code[inside.start : call.span.start], code[call.span.end : inside.end]
    if re.match(r"[^}]*= shared\.tmem;", after):
        objects = ("tmem", *MAPS)
        if re.search(r"\binit_\w+\(shared", before):
            return f"barrier-state {UNORDERED}", (*objects, *BARRIERS)
        return UNORDERED, objects
    if "compute_tile" in after:
        return f"barrier-state tensor-map-proxy {UNORDERED}", (*BARRIERS, *MAPS)
    # The last of the tile or the kernel: what it held may be given up.
    kinds = f"barrier-state tmem-bounds tmem-allocation tensor-map-proxy exit {UNORDERED}"
    return kinds, (*BARRIERS, *TMEM, *MAPS, "c")


@operator("barrier-dropped", "a bar.sync is missing")
def barrier_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("bar_sync"):
        assert call.statement
        kinds, objects = _crossed(source, call)
        yield Site(call.span.start, (drop(call.statement),), expect(kinds, objects))


@operator("barrier-missing-warp", "one warp does not take part in a bar.sync")
def barrier_missing_warp(source: Source) -> Iterator[Site]:
    for call in source.calls("bar_sync"):
        kinds, objects = _crossed(source, call)
        ring = call.arguments and source[call.arguments[0]] == "kRingBarrier"
        text = f"if (ptx::warp_index() != {'kMmaWarp' if ring else '1'}) "
        yield Site(
            call.span.start,
            (Edit(Span(call.span.start, call.span.start), text),),
            expect(f"hang named-barrier {kinds}", cta_barrier_in(source, call.arguments), objects),
        )


@operator("barrier-count", "a bar.sync expects a warp more or fewer")
def barrier_count(source: Source) -> Iterator[Site]:
    for call in source.calls("bar_sync"):
        if len(call.arguments) != 2:
            continue
        bar = cta_barrier_in(source, call.arguments)
        count = source[call.arguments[1]]
        crossed, objects = _crossed(source, call)
        for sign, kinds in (("+", "hang named-barrier"), ("-", f"hang named-barrier {crossed}")):
            yield Site(
                call.span.start,
                (Edit(call.arguments[1], f"{count} {sign} 32"),),
                expect(kinds, bar, objects if sign == "-" else ()),
                note=f"{sign} 32",
            )


@operator("barrier-number", "a bar.sync of some warps uses the barrier of all")
def barrier_number(source: Source) -> Iterator[Site]:
    for call in source.calls("bar_sync"):
        if len(call.arguments) == 2:
            edit = Edit(call.arguments[0], "0")
            expected = expect("named-barrier", "barrier 0")
            yield Site(call.span.start, (edit,), expected, _unmet(source, call))


def _unmet(source: Source, call: Call) -> str:
    """Why the threads of a barrier meet no others at barrier 0; empty if they may."""
    if all(each.arguments for each in source.calls("bar_sync")):
        return "All threads meet at the cluster's barrier: nobody else uses barrier 0."
    after = source.code[call.span.end : source.function_span(call.span.start).end]
    if source[call.arguments[0]] == "kRingBarrier" and "compute_tile" in after:
        return (
            "The two warps meet before they have worked on a tile, and the epilogue cannot come to "
            "barrier 0 before it has had that tile."
        )
    return ""


# ---- barriers of the warp ----------------------------------------------------------------------

_ENDS_ROLE = (
    "It ends the role: until the next barrier that all lanes of the warp come to, no lane reads or "
    "writes what another has touched."
)
_ENDS_CHUNK = (
    "It ends a chunk: what the lanes share next is the accumulators, in a tcgen05.ld that waits "
    "for all of them (.sync), and the staging buffer, behind the next bar.sync."
)
_COLLECTIVE_LOADS = (
    "The lane that arrives hands back the accumulators: their loads are the warp's as a whole, and "
    "it has waited for them and fenced them itself. Staging was ordered by the chunk's bar.sync."
)
_ASKS = (
    "Only one lane asks, and every lane waits for the answer at its barrier; until then, no lane "
    "touches what that one has touched, and instructions of the whole warp wait for it (.sync)."
)
_OWN_WAIT = (
    "It only brings the lanes together: the elected one has waited for the slot itself, and what "
    "it hands over beside the slot was published by the warp as a whole."
)
_SLOT_READ = (
    "Every role that takes a tile has a bar.warp.sync of its own behind its reads of the slot."
)


def _patches_maps_next(source: Source) -> bool:
    """Whether what the warp does next is to change the maps that all its lanes have published."""
    for call in source.calls("patch_maps|patch_maps_after_loads"):
        for loop in source.loops_around(call.span.start):
            return not re.search(r"\bbar_(warp_)?sync\(", source[loop.body])
    return False


def _needless(source: Source, call: Call) -> str:
    """Why nobody misses this barrier; empty if somebody does."""
    assert call.statement
    where = source.function_at(call.span.start)
    after = source.code[call.statement.end :].lstrip()
    if where == "publish_tile" and not after.startswith("}"):
        return _OWN_WAIT
    if where == "release_tile" and not after.startswith("}"):
        return _SLOT_READ
    if after.startswith("}"):
        chunk = where == "epilogue_warps" and source.loops_around(call.span.start)
        if where == "load_warp" and _patches_maps_next(source):
            return ""
        return _ENDS_CHUNK if chunk else _ENDS_ROLE
    if re.match(r"if \(ptx::elect_sync\(\)\) [^;]*\btmem_empty\b", after):
        return _COLLECTIVE_LOADS
    before = source[source.statement_before(call.statement.start - 1)]
    if before.startswith("request_cta") or source.code[: call.span.start].rstrip().endswith(
        "request_cta(shared.launch_control);\n    }"
    ):
        return _ASKS
    return ""


@operator("warp-sync-dropped", "a bar.warp.sync is missing")
def warp_sync_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("bar_warp_sync"):
        assert call.statement
        proof = _needless(source, call)
        yield Site(call.span.start, (drop(call.statement),), expect(UNORDERED, MAPS), proof)


# ---- one thread for all ------------------------------------------------------------------------

# What an elected thread does, outside the roles that load and multiply.
_ELECTED_FOR = {
    "init_ring": expect(f"barrier-state {UNORDERED}", "full", "empty"),
    "invalidate_ring": expect("barrier-state", "full", "empty"),
    "tmem_empty": expect(f"hang arrival-count phase {UNORDERED}", "tmem_empty", ACCUMULATORS),
    "queue.full": expect(f"hang arrival-count phase {UNORDERED}", "tiles.full", SLOTS),
    "queue.empty": expect(f"hang arrival-count phase {UNORDERED}", "tiles.empty", SLOTS),
    "request_cta": expect(
        f"arrival-count transaction-count {UNORDERED}", "launch_control.answered", ANSWER
    ),
}
_ELECTED = {
    "load_warp": expect(f"arrival-count divergence {UNORDERED}", "full", STAGES),
    # Every lane counts for itself where it is in the ring.
    "drain_stages": expect("hang phase", "empty"),
    "drain_cluster_stages": expect("hang phase", "empty"),
    "mma_warp": expect("divergence arrival-count", "empty", "tmem_full"),
    "patch_maps": expect(UNORDERED, MAPS),
    "patch_maps_after_loads": expect(UNORDERED, MAPS),
    "patch_map_c": expect(UNORDERED, MAPS),
    "scheduler_warp": expect(UNORDERED, MAPS),
    "group_gemm": expect(UNORDERED, MAPS),
    "epilogue_warps": expect("divergence", "c"),
}


@operator("elect-removed", "all lanes do what one lane has to")
def elect_removed(source: Source) -> Iterator[Site]:
    for call in source.calls("elect_sync"):
        where = source.function_at(call.span.start)
        head = source.code.rindex("if (", 0, call.span.start) + len("if ")
        done = source[source.body(source.closing(head))]
        named = [expected for word, expected in _ELECTED_FOR.items() if word in done]
        ring = where in ("load_warp", "mma_warp")
        waits = re.match(r"ptx::cp_async_bulk_wait_group\w*<0>\(\);", done)
        yield Site(
            call.span.start,
            (Edit(call.span, "true"),),
            named[0] if named and not ring else _ELECTED.get(where, expect(UNORDERED)),
            proof="The wait is for the groups of the thread that waits: lanes that have committed "
            "none go on at once."
            if waits
            else "",
        )


@operator("thread-widened", "a warp does what one thread has to")
def thread_widened(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bptx::(thread_index)\(\) == 0"):
        edit = Edit(Span(match.start(1), match.end(1)), "warp_index")
        yield Site(match.start(), (edit,), expect(f"barrier-state {UNORDERED}", BARRIERS))
