"""Operators on mbarriers, the rings that they guard, and commits to them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpp_source import Call, Edit, Source, Span
from mutant import WRONG, Expectation, Site, drop, expect, operator
from objects import (
    ACCUMULATORS,
    BACK,
    BARRIERS,
    GUARDED,
    NO_TILE,
    STAGES,
    UNORDERED,
    barrier_in,
    constant,
)

# ---- mbarriers ---------------------------------------------------------------------------------


def drains(source: Source, position: int) -> bool:
    """Whether a place is in the loop that waits for every stage once more."""
    return any("kStages" in source[loop.condition] for loop in source.loops_around(position))


@operator("init-count-plus", "mbarrier_init expects one arrival more")
def init_count_plus(source: Source) -> Iterator[Site]:
    for call in source.calls("mbarrier_init"):
        bar = barrier_in(source, call.arguments[0])
        count = source[call.arguments[1]]
        yield Site(call.span.start, (Edit(call.arguments[1], f"{count} + 1"),), expect("hang", bar))


@operator("init-count-minus", "mbarrier_init expects one arrival fewer")
def init_count_minus(source: Source) -> Iterator[Site]:
    for call in source.calls("mbarrier_init"):
        bar = barrier_in(source, call.arguments[0])
        count = source[call.arguments[1]]
        # No barrier can be initialized with 0; a building block's count may be 1 or more.
        kinds = "barrier-state" if count == "1" else f"arrival-count phase {UNORDERED}"
        if count == "commits":
            kinds += " barrier-state"
        yield Site(
            call.span.start,
            (Edit(call.arguments[1], f"{count} - 1"),),
            expect(kinds, bar, () if count == "1" else GUARDED.get(bar, ())),
        )


@operator("inval-dropped", "a barrier is not invalidated before it is initialized again")
def inval_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("mbarrier_inval"):
        assert call.statement
        bar = barrier_in(source, call.arguments[0])
        yield Site(call.span.start, (drop(call.statement),), expect("barrier-state", bar))


@operator("fence-mbarrier-init-dropped", "fence.mbarrier_init is missing")
def fence_init_dropped(source: Source) -> Iterator[Site]:
    # What a copy completes on is first of all another proxy's.
    for call in source.calls("fence_mbarrier_init_release_cluster"):
        assert call.statement
        yield Site(
            call.span.start, (drop(call.statement),), expect("barrier-state proxy-fence", BARRIERS)
        )


WAIT = "mbarrier_wait_parity|cluster_wait_parity"


def _waits(source: Source) -> Iterator[Call]:
    """Calls that name a barrier: a building block's own parameter is named by its callers."""
    for call in source.calls(WAIT):
        if "&" in source[call.arguments[-2]]:
            yield call


_WORKERS = "load_warp mma_warp epilogue_warps"


def _wait_expectation(source: Source, call: Call, dropped: bool) -> Expectation:
    bar = barrier_in(source, call.arguments[-2])
    if drains(source, call.span.start):
        # Without it, the last commits arrive on barriers whose memory is given up.
        if dropped:
            return expect("exit barrier-state race", bar)
        # It waits for the phase that is still to come, or for none.
        return expect("hang phase exit", bar)
    if bar in BACK:
        if dropped:
            kinds = f"arrival-count transaction-count phase {UNORDERED}"
            return expect(kinds, GUARDED.get(bar, ()), BACK.get(bar, ()), bar)
        # A fresh barrier has completed the phase before its first, and no other.
        return expect(f"hang phase {UNORDERED}", bar, GUARDED.get(bar, ()))
    early = NO_TILE if bar == "tiles.full" else UNORDERED
    # Who is early hands back early, and passes, or is passed by, the other side.
    back = [other for other, forth in BACK.items() if forth == bar]
    if dropped:
        return expect(f"phase {early}", GUARDED.get(bar, ()), back, roles=_WORKERS)
    return expect(f"hang phase {early}", GUARDED.get(bar, ()), bar, back, roles=_WORKERS)


@operator("wait-parity-flipped", "a wait is for the other phase")
def wait_parity_flipped(source: Source) -> Iterator[Site]:
    for call in _waits(source):
        parity = call.arguments[-1]
        yield Site(
            call.span.start,
            (Edit(parity, f"({source[parity]}) ^ 1"),),
            _wait_expectation(source, call, dropped=False),
        )


@operator("wait-dropped", "a wait is missing")
def wait_dropped(source: Source) -> Iterator[Site]:
    for call in _waits(source):
        assert call.statement
        yield Site(
            call.span.start, (drop(call.statement),), _wait_expectation(source, call, dropped=True)
        )


EXPECT = "mbarrier_arrive_expect_tx"


@operator("expect-tx-dropped", "an arrival announces no bytes")
def expect_tx_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(EXPECT):
        *front, bar, _ = (source[argument] for argument in call.arguments)
        name = barrier_in(source, call.arguments[-2])
        text = f"ptx::mbarrier_arrive({', '.join([*front, bar])})"
        yield Site(
            call.span.start,
            (Edit(call.span, text),),
            expect(f"transaction-count {UNORDERED}", name, GUARDED.get(name, ())),
        )


@operator("arrive-dropped", "an arrival is missing, its bytes are announced")
def arrive_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(EXPECT):
        scope, bar, bytes_ = (source[argument] for argument in call.arguments[-3:])
        name = barrier_in(source, call.arguments[-2])
        text = f"ptx::mbarrier_expect_tx(ptx::sem_relaxed, {scope}, {bar}, {bytes_})"
        yield Site(call.span.start, (Edit(call.span, text),), expect("hang", name))


@operator("arrive-twice", "an arrival is made twice")
def arrive_twice(source: Source) -> Iterator[Site]:
    for call in source.calls(EXPECT):
        assert call.statement
        name = barrier_in(source, call.arguments[-2])
        again = Span(call.statement.end, call.statement.end)
        front = ", ".join(source[argument] for argument in call.arguments[:-1])
        yield Site(
            call.span.start,
            (Edit(again, f" ptx::mbarrier_arrive({front});"),),
            expect("arrival-count phase", name),
        )


def _bytes_site(source: Source, more: int, kinds: str) -> Iterator[Site]:
    for call in source.calls(EXPECT):
        name = barrier_in(source, call.arguments[-2])
        at = call.arguments[-1]
        text = f"{source[at]} {'+' if more > 0 else '-'} {abs(more)}"
        yield Site(call.span.start, (Edit(at, text),), expect(kinds, name))


@operator("expect-tx-plus", "16 bytes more are announced than come")
def expect_tx_plus(source: Source) -> Iterator[Site]:
    yield from _bytes_site(source, 16, "hang")


@operator("expect-tx-minus", "16 bytes fewer are announced than come")
def expect_tx_minus(source: Source) -> Iterator[Site]:
    # The count goes below zero, or is zero once before the last copy.
    yield from _bytes_site(source, -16, "transaction-count hang")


@operator("expect-tx-operand-forgotten", "the bytes of one operand are not announced")
def operand_forgotten(source: Source) -> Iterator[Site]:
    # What loads announce, in a building block or the kernel's own.
    announced = {"kBytes", *(source[call.arguments[-1]] for call in source.calls(EXPECT))}
    for match in source.find(r"\b(k\w+) =\s+(sizeof\([^;]*);"):
        if match[1] not in announced:
            continue
        terms = list(source.split(Span(match.start(2), match.end(2)), "+"))
        for term in terms:
            rest = " + ".join(source[each] for each in terms if each != term)
            yield Site(
                term.start,
                (Edit(Span(match.start(2), match.end(2)), rest),),
                expect("transaction-count hang", "full"),
                note=source[term],
            )


# ---- rings of stages, accumulators and slots ---------------------------------------------------

_DEPTHS = {"state": "kStages", "accum": "kAccumulators", "slot": "kTileSlots"}
# In the tile queue, whose position is `state`.
_SLOT_DEPTH = "kSlots"


# What a role meets that is at the wrong place of a ring.
_RINGS = {
    "state": (*STAGES, "full", "empty"),
    "accum": (ACCUMULATORS, "tmem_full", "tmem_empty"),
    "slot": (*GUARDED["tiles.full"], "tiles.full", "tiles.empty"),
}


def _swapped_expectation(source: Source, match: re.Match[str]) -> Expectation:
    where = source.function_at(match.start())
    before = source.code[: match.start()]
    member = re.search(r"\b(shared|queue)\.(\w+)$", before)
    assert member, source.line_text(match.start())
    name = member[2]
    loads = where == "load_warp"
    if drains(source, match.start()):
        return expect("hang phase", "empty")
    if member[1] == "queue":
        kinds = f"hang arrival-count phase {NO_TILE} {WRONG}"
        return expect(kinds, _RINGS["slot"], roles=_WORKERS)
    if name in ("tmem_full", "tmem_empty"):
        objects = ("tmem_full", "tmem_empty", ACCUMULATORS)
        return expect(f"hang arrival-count phase {UNORDERED}", objects)
    if name == "stages":
        return expect(f"{UNORDERED} {WRONG}", STAGES)
    if name == "full":
        # As the load's: bytes go where nobody waits. As the MMA's: it waits for the next stage.
        kinds = "transaction-count arrival-count" if loads else "phase"
        return expect(f"hang {kinds} {UNORDERED}", "full", STAGES)
    if loads:
        return expect(f"hang arrival-count phase {UNORDERED}", "empty", "full", STAGES)
    return expect(f"hang arrival-count phase {UNORDERED}", "empty", STAGES)


@operator("stage-swapped", "the next stage's barrier or buffer in place of the stage's")
def stage_swapped(source: Source) -> Iterator[Site]:
    for match in source.find(r"\[((state|accum)\.stage)\]"):
        queue = source.code[: match.start()].rpartition(" ")[2].rpartition("(")[2]
        depth = _SLOT_DEPTH if "queue." in queue else _DEPTHS[match[2]]
        edit = Edit(Span(match.start(1), match.end(1)), f"({match[1]} + 1) % {depth}")
        proof = "The ring has one place: the next is the same."
        alone = constant(source, depth) == 1
        expected = _swapped_expectation(source, match)
        yield Site(match.start(), (edit,), expected, proof if alone else "")


def _advances(source: Source) -> Iterator[re.Match[str]]:
    return source.find(r"\b(state|accum|slot)\.advance\(\);")


@operator("advance-dropped", "the pipeline's state stays where it is")
def advance_dropped(source: Source) -> Iterator[Site]:
    for match in _advances(source):
        if drains(source, match.start()):
            expected = expect("exit barrier-state race", "empty")
        elif source.function_at(match.start()) == "load_warp":
            kinds = f"hang arrival-count transaction-count phase {UNORDERED}"
            expected = expect(kinds, STAGES, "full", "empty")
        else:
            kinds = f"hang arrival-count phase {UNORDERED} {WRONG}"
            expected = expect(kinds, _RINGS[match[1]])
        yield Site(match.start(), (Edit(Span(*match.span()), ";"),), expected)


@operator("advance-twice", "the pipeline's state skips a stage")
def advance_twice(source: Source) -> Iterator[Site]:
    for match in _advances(source):
        proof = ""
        if drains(source, match.start()):
            expected = expect("hang phase", "empty")
        elif match[1] == "state":
            # The stage behind the next may be filled already.
            expected = expect(f"hang phase {UNORDERED}", "full", STAGES)
        else:
            # All warps skip alike, and come to a barrier one phase too early.
            kinds = f"hang phase {NO_TILE if match[1] == 'slot' else UNORDERED}"
            expected = expect(kinds, _RINGS[match[1]], roles=_WORKERS)
            if constant(source, _DEPTHS[match[1]]) == 2:
                proof = (
                    "All warps keep the position alike: with two places, they use the first for "
                    "every tile, and its parity changes with every tile, as in a ring of one."
                )
        edit = Edit(Span(match.end(), match.end()), f" {match[0]}")
        yield Site(match.start(), (edit,), expected, proof)


@operator("ring-depth", "one role counts a stage fewer")
def ring_depth(source: Source) -> Iterator[Site]:
    expected = expect(f"hang arrival-count phase {UNORDERED}", "full", "empty", STAGES)
    for match in source.find(r"\bPipelineState<(kStages)> state;"):
        if source.function_at(match.start()) in ("load_warp", "mma_warp"):
            edit = Edit(Span(match.start(1), match.end(1)), "kStages - 1")
            yield Site(match.start(), (edit,), expected)
    # A position that runs on from tile to tile is its role's by reference.
    for match in source.find(r"\bPipelineState<kStages>& state\)"):
        where = source.function_span(match.start())
        for advance in _advances(source):
            if where.start < advance.start() < where.end and not drains(source, advance.start()):
                at = Span(advance.end(), advance.end())
                text = " if (state.stage == kStages - 1) state.advance();"
                yield Site(advance.start(), (Edit(at, text),), expected)


# ---- commits -----------------------------------------------------------------------------------


@operator("commit-dropped", "a tcgen05.commit is missing")
def commit_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_commit"):
        assert call.statement
        bar = barrier_in(source, call.arguments[1])
        yield Site(call.span.start, (drop(call.statement),), expect("hang", bar))


@operator("commit-other-barrier", "a tcgen05.commit arrives on the other barrier")
def commit_other(source: Source) -> Iterator[Site]:
    several = "tmem_full[" in source.code
    for call in source.calls("tcgen05_commit"):
        to_stage = barrier_in(source, call.arguments[1]) == "empty"
        tile = "&shared.tmem_full" + ("[accum.stage]" if several else "")
        other = tile if to_stage else "&shared.empty[state.stage]"
        if to_stage:
            expected = expect(
                f"hang arrival-count phase {UNORDERED}", "tmem_full", "empty", ACCUMULATORS
            )
        else:
            kinds = f"hang arrival-count barrier-state phase {UNORDERED}"
            expected = expect(kinds, "tmem_full", "empty", STAGES)
        yield Site(call.span.start, (Edit(call.arguments[1], other),), expected)


@operator("commit-early", "a tcgen05.commit comes before the MMAs that it is to track")
def commit_early(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_commit"):
        assert call.statement
        (multiply,) = source.calls("multiply_stage")
        to_stage = barrier_in(source, call.arguments[1]) == "empty"
        # A stage's in front of its products, the tile's in front of the loop over K.
        (loop,) = source.loops_around(multiply.span.start)
        start = (multiply if to_stage else loop).span.start
        edits = (Edit(Span(start, start), source[call.statement] + "\n"), drop(call.statement))
        if to_stage:
            expected = expect(UNORDERED, STAGES)
        else:
            expected = expect(f"order {UNORDERED}", "tmem_full", ACCUMULATORS)
        yield Site(call.span.start, edits, expected)
