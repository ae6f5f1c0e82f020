"""Operators on mbarriers, the pipeline's state, and barriers of the CTA and the warp."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpp_source import Call, Edit, Source, Span
from mutant import WRONG, Expectation, Site, drop, expect, operator
from objects import (
    ACCUMULATORS,
    BARRIERS,
    GUARDED,
    MAPS,
    STAGES,
    TMEM,
    UNORDERED,
    barrier_in,
    cta_barrier_in,
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
        # No barrier can be initialized with 0.
        kinds = "barrier-state" if count == "1" else f"arrival-count phase {UNORDERED}"
        yield Site(
            call.span.start,
            (Edit(call.arguments[1], f"{count} - 1"),),
            expect(kinds, bar, () if count == "1" else GUARDED[bar]),
        )


@operator("inval-dropped", "a barrier is not invalidated before it is initialized again")
def inval_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("mbarrier_inval"):
        assert call.statement
        bar = barrier_in(source, call.arguments[0])
        yield Site(call.span.start, (drop(call.statement),), expect("barrier-state", bar))


@operator("fence-mbarrier-init-dropped", "fence.mbarrier_init is missing")
def fence_init_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("fence_mbarrier_init_release_cluster"):
        assert call.statement
        yield Site(
            call.span.start,
            (drop(call.statement),),
            expect("barrier-state", BARRIERS),
            proof="The fence makes the initialization visible to other CTAs of the cluster (PTX "
            "ISA, membar/fence). The step launches no clusters: every user of the barriers is a "
            "thread of the CTA or acts for one, and bar.sync orders the initialization before it.",
        )


WAIT = "mbarrier_wait_parity"


def _wait_expectation(source: Source, call: Call, dropped: bool) -> Expectation:
    bar = barrier_in(source, call.arguments[-2])
    if drains(source, call.span.start):
        # Without it, the last commits arrive on barriers whose memory is given up.
        if dropped:
            return expect("exit barrier-state race", bar)
        return expect("hang phase", bar)
    if bar == "empty":
        if dropped:
            return expect(f"arrival-count transaction-count {UNORDERED}", STAGES, "full")
        # A fresh barrier has completed the phase before its first, and no other.
        return expect(f"hang phase {UNORDERED}", bar, STAGES)
    if dropped:
        return expect(UNORDERED, GUARDED[bar])
    return expect(f"phase {UNORDERED}", GUARDED[bar], bar)


@operator("wait-parity-flipped", "a wait is for the other phase")
def wait_parity_flipped(source: Source) -> Iterator[Site]:
    for call in source.calls(WAIT):
        parity = call.arguments[-1]
        yield Site(
            call.span.start,
            (Edit(parity, f"({source[parity]}) ^ 1"),),
            _wait_expectation(source, call, dropped=False),
        )


@operator("wait-dropped", "a wait is missing")
def wait_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(WAIT):
        assert call.statement
        yield Site(
            call.span.start,
            (drop(call.statement),),
            _wait_expectation(source, call, dropped=True),
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
            expect(f"transaction-count {UNORDERED}", name, GUARDED[name]),
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
    announced = {source[call.arguments[-1]] for call in source.calls(EXPECT)}
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


# ---- the ring of stages ------------------------------------------------------------------------


def _swapped_expectation(source: Source, match: re.Match[str]) -> Expectation:
    where = source.function_at(match.start())
    before = source.code[: match.start()]
    member = re.search(r"shared\.(\w+)$", before)
    assert member, source.line_text(match.start())
    name = member[1]
    loads = where == "load_warp"
    if drains(source, match.start()):
        return expect("hang phase", "empty")
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
    for match in source.find(r"\[(state\.stage)\]"):
        edit = Edit(Span(match.start(1), match.end(1)), "(state.stage + 1) % kStages")
        yield Site(match.start(), (edit,), _swapped_expectation(source, match))


def _advances(source: Source) -> Iterator[re.Match[str]]:
    return source.find(r"\bstate\.advance\(\);")


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
            expected = expect(kinds, STAGES, "full", "empty")
        yield Site(match.start(), (Edit(Span(*match.span()), ";"),), expected)


@operator("advance-twice", "the pipeline's state skips a stage")
def advance_twice(source: Source) -> Iterator[Site]:
    for match in _advances(source):
        if drains(source, match.start()):
            expected = expect("hang phase", "empty")
        else:
            expected = expect("hang", "full")
        edit = Edit(Span(match.end(), match.end()), " state.advance();")
        yield Site(match.start(), (edit,), expected)


@operator("ring-depth", "one role counts a stage fewer")
def ring_depth(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bPipelineState<(kStages)>"):
        edit = Edit(Span(match.start(1), match.end(1)), "kStages - 1")
        kinds = f"hang arrival-count phase {UNORDERED}"
        yield Site(match.start(), (edit,), expect(kinds, "full", "empty", STAGES))


# ---- commits -----------------------------------------------------------------------------------


@operator("commit-dropped", "a tcgen05.commit is missing")
def commit_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_commit"):
        assert call.statement
        bar = barrier_in(source, call.arguments[-1])
        yield Site(call.span.start, (drop(call.statement),), expect("hang", bar))


@operator("commit-other-barrier", "a tcgen05.commit arrives on the other barrier")
def commit_other(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_commit"):
        to_stage = barrier_in(source, call.arguments[-1]) == "empty"
        other = "&shared.tmem_full" if to_stage else "&shared.empty[state.stage]"
        if to_stage:
            expected = expect(
                f"hang arrival-count phase {UNORDERED}", "tmem_full", "empty", ACCUMULATORS
            )
        else:
            expected = expect("hang arrival-count phase", "tmem_full", "empty")
        yield Site(call.span.start, (Edit(call.arguments[-1], other),), expected)


@operator("commit-early", "a tcgen05.commit comes before the MMAs that it is to track")
def commit_early(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_commit"):
        assert call.statement
        (mma,) = source.calls(r"tcgen05_mma_\w+")
        around = source.loops_around(mma.span.start)
        to_stage = barrier_in(source, call.arguments[-1]) == "empty"
        # A stage's in front of its loop over instructions, the tile's in front of the one over K.
        start = around[-1 if to_stage else 0].span.start
        edits = (Edit(Span(start, start), source[call.statement] + "\n"), drop(call.statement))
        if to_stage:
            expected = expect(UNORDERED, STAGES)
        else:
            expected = expect(f"order {UNORDERED}", "tmem_full", ACCUMULATORS)
        yield Site(call.span.start, edits, expected)


# ---- barriers of the CTA and the warp ----------------------------------------------------------


def _crossed(source: Source, call: Call) -> tuple[str, tuple[str, ...]]:
    """What threads hand over at a CTA barrier: classes of a missing one, and objects."""
    if call.arguments:
        return UNORDERED, ("c",)
    code = source.code
    after = code[call.span.end : source.function_span(call.span.start).end]
    if re.match(r"[^}]*= shared\.tmem;", after):
        objects = ("tmem", *MAPS)
        if "init_barriers" not in after:
            return f"barrier-state {UNORDERED}", (*objects, *BARRIERS)
        return UNORDERED, objects
    if "compute_tile" in after:
        return f"barrier-state tensor-map-proxy {UNORDERED}", (*BARRIERS, *MAPS)
    # The tile's last: what it held may be given up.
    kinds = f"barrier-state tmem-bounds tensor-map-proxy {UNORDERED}"
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
        yield Site(
            call.span.start,
            (Edit(Span(call.span.start, call.span.start), "if (ptx::warp_index() != 1) "),),
            expect(f"hang named-barrier {kinds}", cta_barrier_in(source, call.arguments), objects),
        )


@operator("barrier-count", "a bar.sync expects a warp more or fewer")
def barrier_count(source: Source) -> Iterator[Site]:
    for call in source.calls("bar_sync"):
        if len(call.arguments) != 2:
            continue
        bar = cta_barrier_in(source, call.arguments)
        count = source[call.arguments[1]]
        for sign, kinds in (("+", "hang named-barrier"), ("-", f"named-barrier {UNORDERED}")):
            yield Site(
                call.span.start,
                (Edit(call.arguments[1], f"{count} {sign} 32"),),
                expect(kinds, bar, "c" if sign == "-" else ()),
                note=f"{sign} 32",
            )


@operator("barrier-number", "a bar.sync of some warps uses the barrier of all")
def barrier_number(source: Source) -> Iterator[Site]:
    for call in source.calls("bar_sync"):
        if len(call.arguments) == 2:
            edit = Edit(call.arguments[0], "0")
            yield Site(call.span.start, (edit,), expect("named-barrier", "barrier 0"))


@operator("warp-sync-dropped", "a bar.warp.sync is missing")
def warp_sync_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("bar_warp_sync"):
        assert call.statement
        proof = ""
        after = source.code[call.statement.end :].lstrip()
        if after.startswith("}"):
            proof = (
                "It ends the role: no lane reads or writes what another lane of the warp has "
                "touched between it and the CTA barrier that every lane comes to next, which "
                "orders memory among all threads."
            )
        yield Site(call.span.start, (drop(call.statement),), expect(UNORDERED, MAPS), proof)


_ELECTED = {
    "load_warp": expect(f"arrival-count divergence {UNORDERED}", "full", STAGES),
    "mma_warp": expect("divergence arrival-count", "empty", "tmem_full"),
    "patch_maps": expect(UNORDERED, MAPS),
    "group_gemm": expect(UNORDERED, MAPS),
    "epilogue_warps": expect("divergence", "c"),
}


@operator("elect-removed", "all lanes do what one lane has to")
def elect_removed(source: Source) -> Iterator[Site]:
    for call in source.calls("elect_sync"):
        where = source.function_at(call.span.start)
        yield Site(call.span.start, (Edit(call.span, "true"),), _ELECTED[where])


@operator("thread-widened", "a warp does what one thread has to")
def thread_widened(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bptx::(thread_index)\(\) == 0"):
        edit = Edit(Span(match.start(1), match.end(1)), "warp_index")
        yield Site(match.start(), (edit,), expect(f"barrier-state {UNORDERED}", BARRIERS))
