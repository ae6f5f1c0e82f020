"""Operators on clusters (ranks, multicasts, the cluster's barrier) and Cluster Launch Control."""

from __future__ import annotations

from collections.abc import Iterator

from cpp_source import Edit, Source, Span
from mutant import WRONG, Site, drop, expect, operator
from objects import ACCUMULATORS, ANSWER, BARRIERS, GLOBAL, MISPLACED, STAGES, TMEM, UNORDERED

_ANSWERED = "launch_control.answered"

# ---- the cluster's barrier ---------------------------------------------------------------------

# The first is behind the barriers' initialization, the last in front of the end.
_FIRST = (f"barrier-state {UNORDERED}", ("tmem", *BARRIERS))
_LAST = (f"exit barrier-state tmem-bounds tmem-allocation {UNORDERED}", (*BARRIERS, *TMEM, "c"))


def _cluster_syncs(source: Source) -> Iterator[tuple[Span, str, tuple[str, ...]]]:
    for call in source.calls("cluster_sync"):
        assert call.statement
        before = source.code[source.function_span(call.span.start).start : call.span.start]
        yield call.statement, *(_LAST if "compute_tile" in before else _FIRST)


@operator("cluster-sync-dropped", "a barrier of the cluster is missing")
def cluster_sync_dropped(source: Source) -> Iterator[Site]:
    for statement, kinds, objects in _cluster_syncs(source):
        yield Site(statement.start, (drop(statement),), expect(kinds, objects))


_DRAINED = (
    "Before it, each CTA has waited until its stages are empty: for a commit of either CTA to "
    "each, behind all copies to the stage in both. Nothing is on its way to a CTA that ends."
)


@operator("cluster-sync-local", "a barrier of the cluster is one of each CTA")
def cluster_sync_local(source: Source) -> Iterator[Site]:
    for statement, kinds, objects in _cluster_syncs(source):
        drained = "drain_stages" in source.text[: statement.start].rpartition("\n\n")[2]
        edit = Edit(statement, "ptx::bar_sync();")
        proof = _DRAINED if drained else ""
        yield Site(statement.start, (edit,), expect(kinds, objects), proof)


@operator("cluster-sync-missing-warp", "one warp does not take part in a barrier of the cluster")
def cluster_sync_missing_warp(source: Source) -> Iterator[Site]:
    for statement, kinds, objects in _cluster_syncs(source):
        edit = Edit(Span(statement.start, statement.start), "if (ptx::warp_index() != 1) ")
        expected = expect(f"hang {kinds}", "cluster barrier", objects)
        yield Site(statement.start, (edit,), expected)


@operator("cluster-arrive-dropped", "threads wait at the cluster's barrier without arriving")
def cluster_arrive_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("barrier_cluster_arrive"):
        assert call.statement
        yield Site(
            call.span.start, (drop(call.statement),), expect("hang order", "cluster barrier")
        )


@operator("cluster-arrive-relaxed", "an arrival at the cluster's barrier orders nothing before it")
def cluster_arrive_relaxed(source: Source) -> Iterator[Site]:
    for call in source.calls("barrier_cluster_arrive"):
        edit = Edit(call.arguments[0], "ptx::sem_relaxed")
        expected = expect(f"barrier-state {UNORDERED}", BARRIERS, "tmem", ACCUMULATORS)
        yield Site(call.span.start, (edit,), expected)


@operator("cluster-wait-dropped", "threads arrive at the cluster's barrier and go on")
def cluster_wait_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("barrier_cluster_wait"):
        assert call.statement
        expected = expect(f"barrier-state {UNORDERED}", BARRIERS, "tmem")
        yield Site(call.span.start, (drop(call.statement),), expected)


# ---- multicasts --------------------------------------------------------------------------------

_MASK = "cluster_mask"


def _masks(source: Source) -> Iterator[tuple[Span, str]]:
    """Each receivers' mask, and the barrier that gets too little if it is wrong."""
    for call in source.calls(_MASK):
        copies = "tcgen05_commit" not in source.line_text(call.span.start)
        yield call.span, "full" if copies else "empty"


@operator("multicast-to-itself", "a multicast reaches its own CTA only")
def multicast_to_itself(source: Source) -> Iterator[Site]:
    text = "ClusterMask{static_cast<uint16_t>(1u << ptx::cluster_ctarank())}"
    for mask, bar in _masks(source):
        yield Site(mask.start, (Edit(mask, text),), expect("hang", bar))


@operator("multicast-to-other", "a multicast does not reach its own CTA")
def multicast_to_other(source: Source) -> Iterator[Site]:
    text = "ClusterMask{static_cast<uint16_t>(1u << (ptx::cluster_ctarank() ^ 1))}"
    for mask, bar in _masks(source):
        yield Site(mask.start, (Edit(mask, text),), expect("hang", bar))


@operator("multicast-removed", "a copy or commit stays in its CTA")
def multicast_removed(source: Source) -> Iterator[Site]:
    for mask, bar in _masks(source):
        start = source.code.rindex(",", 0, mask.start)
        yield Site(mask.start, (Edit(Span(start, mask.end), ""),), expect("hang", bar))


@operator("share-place", "both CTAs' shares of an operand go to one place, or come from one")
def share_place(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bstage\.a( \+ row \* e2m1_bytes\(kTileK\))"):
        edit = Edit(Span(match.start(1), match.end(1)), "")
        yield Site(match.start(1), (edit,), expect(UNORDERED, STAGES))
    for match in source.find(r"\btile\.m_offset( \+ row),"):
        edit = Edit(Span(match.start(1), match.end(1)), "")
        yield Site(match.start(1), (edit,), expect(WRONG))


@operator("rank-ignored", "a CTA takes itself for the first of its cluster")
def rank_ignored(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bptx::cluster_ctarank\(\)"):
        loads = source.function_at(match.start()) == "load_warp"
        # Both load the same share, or compute the same tile.
        expected = expect(f"{UNORDERED} {WRONG}", STAGES) if loads else expect(MISPLACED, GLOBAL)
        yield Site(match.start(), (Edit(Span(*match.span()), "0"),), expected)


@operator("cluster-index", "tiles are counted by CTAs instead of clusters")
def cluster_index(source: Source) -> Iterator[Site]:
    expected = expect(f"hang {UNORDERED} {WRONG}", "full", "empty", STAGES)
    for match in source.find(r"\bptx::clusterid_x\(\)"):
        yield Site(match.start(), (Edit(Span(*match.span()), "ptx::cta_index().x"),), expected)
    for match in source.find(r"\bclusters = ptx::cta_count\(\)\.x( / kClusterSize)"):
        yield Site(match.start(1), (Edit(Span(*match.span(1)), ""),), expect(WRONG))


# ---- Cluster Launch Control --------------------------------------------------------------------


@operator("request-dropped", "nobody asks for a tile")
def request_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("request_cta|clusterlaunchcontrol_try_cancel"):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect("hang", _ANSWERED))


@operator("request-twice", "a tile is asked for twice")
def request_twice(source: Source) -> Iterator[Site]:
    for call in source.calls("request_cta|clusterlaunchcontrol_try_cancel"):
        assert call.statement
        again = Span(call.statement.end, call.statement.end)
        kinds = f"arrival-count transaction-count {UNORDERED}"
        yield Site(
            call.span.start,
            (Edit(again, " " + source[call.statement]),),
            expect(kinds, _ANSWERED, ANSWER),
        )


@operator("refusal-ignored", "an answer that grants nothing is taken for one that does")
def refusal_ignored(source: Source) -> Iterator[Site]:
    # It asks for the index that it was not given.
    for match in source.find(r"(?<=if \()next\.granted(?=\))"):
        yield Site(match.start(), (Edit(Span(*match.span()), "true"),), expect("order", ANSWER))
    for call in source.calls("clusterlaunchcontrol_query_cancel_is_canceled"):
        yield Site(call.span.start, (Edit(call.span, "true"),), expect("order", ANSWER))


@operator("answer-ignored", "the answer is not what is worked on next")
def answer_ignored(source: Source) -> Iterator[Site]:
    lost = expect(MISPLACED, GLOBAL, roles="epilogue_warps")
    for match in source.find(r"\bnext\.index = [^;]*;"):
        yield Site(match.start(), (Edit(Span(*match.span()), ";"),), lost)
    for match in source.find(r"\bnext\{true, (ptx::cta_index\(\)\.x)\}"):
        yield Site(match.start(), (Edit(Span(*match.span(1)), "0"),), lost)
