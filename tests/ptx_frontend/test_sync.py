"""Barriers, clusters and what orders them, against models; the same without one is found."""

from __future__ import annotations

import numpy as np
import pytest

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

ARRIVE, ARRIVE_TWICE, DROP, AGAIN = range(4)
TEXT = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 8 .b64 bar;
.shared .align 16 .b32 word[64];

// One thread: after each operation, bit p of the result says whether phases of parity p are over.
.visible .entry phases(.param .u64 p_operations, .param .u64 p_out, .param .u32 p_n,
                       .param .u32 p_expected)
{
  .reg .b64 %in, %out; .reg .b32 %n, %b, %x, %y, %op, %expected; .reg .pred %p, %q;
  ld.param.u64 %in, [p_operations]; ld.param.u64 %out, [p_out];
  ld.param.u32 %n, [p_n]; ld.param.u32 %expected, [p_expected];
  mov.b32 %b, bar;
  mbarrier.init.shared::cta.b64 [%b], %expected;
NEXT:
  ld.global.b32 %op, [%in];
  setp.ne.u32 %p, %op, 0; @%p bra NOT_ONE;
  mbarrier.arrive.shared::cta.b64 _, [%b];
NOT_ONE:
  setp.ne.u32 %p, %op, 1; @%p bra NOT_TWO;
  mbarrier.arrive.release.cta.shared::cta.b64 _, [%b], 2;
NOT_TWO:
  setp.ne.u32 %p, %op, 2; @%p bra NO_DROP;
  mbarrier.arrive_drop.shared::cta.b64 _, [%b];
NO_DROP:
  setp.ne.u32 %p, %op, 3; @%p bra NOT_AGAIN;
  mbarrier.inval.shared::cta.b64 [%b];
  mbarrier.init.shared::cta.b64 [%b], %expected;
NOT_AGAIN:
  mbarrier.test_wait.parity.shared::cta.b64 %p, [%b], 0; selp.b32 %x, 1, 0, %p;
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %q, [%b], 1; selp.b32 %y, 2, 0, %q;
  or.b32 %x, %x, %y; st.global.b32 [%out], %x;
  add.s64 %in, %in, 4; add.s64 %out, %out, 4; sub.u32 %n, %n, 1;
  setp.ne.u32 %p, %n, 0; @%p bra NEXT;
  ret;
}

// Two CTAs exchange words, and then a sum of what they hold by remote arrivals on a barrier each.
.visible .entry exchange(.param .u64 p_out) .reqntid 64 .reqnctapercluster 2
{
  .reg .b64 %out, %o; .reg .b32 %t, %r, %peer, %a, %far, %x, %b, %other; .reg .pred %p, %q;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; mov.u32 %r, %cluster_ctarank;
  xor.b32 %peer, %r, 1; mov.b32 %a, word; mad.lo.u32 %a, %t, 4, %a; mov.b32 %b, bar;
  setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%b], 64;
  fence.mbarrier_init.release.cluster;
MADE:
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  mapa.shared::cluster.u32 %far, %a, %peer;
  mad.lo.u32 %x, %r, 1000, %t;
  st.shared::cluster.b32 [%far], %x;
  mapa.shared::cluster.u32 %other, %b, %peer;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%other];
WAIT:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%b], 0;
  @!%q bra WAIT;
  ld.shared.b32 %x, [%a];
  mov.u32 %r, %ctaid.x; mad.lo.u32 %t, %r, 64, %t; mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o;
  st.global.b32 [%out], %x;
  barrier.cluster.arrive.relaxed.aligned;
  barrier.cluster.wait.aligned;
  ret;
}

// Warp 0 hands words to warp 1 by a named barrier, on which only warp 1 waits.
.visible .entry handover(.param .u64 p_out) .reqntid 64
{
  .reg .b64 %out, %o; .reg .b32 %t, %l, %a, %x; .reg .pred %p;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; mov.u32 %l, %laneid;
  mov.b32 %a, word; mad.lo.u32 %a, %l, 4, %a;
  setp.ge.u32 %p, %t, 32; @%p bra TAKE;
  mul.lo.u32 %x, %l, 7; st.shared.b32 [%a], %x;
  bar.arrive 1, 64;
  nanosleep.u32 20;
  ret;
TAKE:
  bar.sync 1, 64;
  ld.shared.b32 %x, [%a]; mul.wide.u32 %o, %l, 4; add.s64 %out, %out, %o;
  st.global.b32 [%out], %x;
  ret;
}

// Forty threads vote; each writes the count of multiples of three, whether all and whether any are
// below its word of the input.
.visible .entry votes(.param .u64 p_limits, .param .u64 p_out)
{
  .reg .b64 %in, %out, %o; .reg .b32 %t, %x, %n; .reg .pred %p, %all, %any, %third;
  ld.param.u64 %in, [p_limits]; ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x;
  mul.wide.u32 %o, %t, 4; add.s64 %in, %in, %o; add.s64 %out, %out, %o;
  rem.u32 %x, %t, 3; setp.eq.u32 %third, %x, 0; ld.global.b32 %x, [%in]; setp.lt.u32 %p, %t, %x;
  bar.red.popc.u32 %n, 0, %third;
  barrier.cta.red.aligned.and.pred %all, 0, %p;
  barrier.red.or.pred %any, 0, !%p;
  @%all add.u32 %n, %n, 100; @%any add.u32 %n, %n, 1000;
  st.global.b32 [%out], %n;
  ret;
}

// In clusters of 2 × 2 each CTA writes where it is into the shared memory of rank 0, through a
// generic address, and rank 0 copies it.
.visible .entry corners(.param .u64 p_out) .reqntid 1 .reqnctapercluster 2, 2
{
  .reg .b64 %out, %o, %g; .reg .b32 %x, %y, %r, %a; .reg .pred %p;
  ld.param.u64 %out, [p_out]; mov.u32 %r, %cluster_ctarank;
  barrier.cluster.arrive; barrier.cluster.wait;
  mov.b32 %a, word; cvt.u64.u32 %g, %a; cvta.shared.u64 %g, %g; mapa.u64 %g, %g, 0;
  mov.u32 %x, %cluster_ctaid.x; mov.u32 %y, %cluster_ctaid.y; mad.lo.u32 %x, %y, 10, %x;
  mov.u32 %y, %clusterid.x; mad.lo.u32 %x, %y, 100, %x;
  mov.u32 %y, %nclusterid.y; mad.lo.u32 %x, %y, 1000, %x;
  mul.wide.u32 %o, %r, 4; add.s64 %g, %g, %o; st.b32 [%g], %x;
  barrier.cluster.arrive; barrier.cluster.wait;
  setp.ne.u32 %p, %r, 0; @%p ret;
  mov.u32 %x, %clusterid.x; mul.wide.u32 %o, %x, 16; add.s64 %out, %out, %o;
  ld.shared.b32 %x, [%a]; st.global.b32 [%out], %x;
  ld.shared.b32 %x, [%a+4]; st.global.b32 [%out+4], %x;
  ld.shared.b32 %x, [%a+8]; st.global.b32 [%out+8], %x;
  ld.shared.b32 %x, [%a+12]; st.global.b32 [%out+12], %x;
  ret;
}

// What changes no value: registers that a warpgroup gives and takes, and an order of grids.
.visible .entry harmless(.param .u64 p_out) .reqntid 128
{
  .reg .b64 %out, %o; .reg .b32 %t;
  griddepcontrol.wait;
  setmaxnreg.dec.sync.aligned.u32 40;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x;
  griddepcontrol.launch_dependents;
  setmaxnreg.inc.sync.aligned.u32 48;
  mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o; st.global.b32 [%out], %t;
  ret;
}
"""


EXCHANGE = TEXT[TEXT.index(".visible .entry exchange") : TEXT.index("// Warp 0 hands")]
REMOTE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%other];"
#: The exchange without the order that the arrivals give, and without any.
MISTAKES = {
    "relaxed": EXCHANGE.replace(REMOTE, REMOTE.replace("release", "relaxed")),
    "silent": EXCHANGE.replace(REMOTE, ""),
}


@pytest.fixture(scope="module")
def module():
    mistakes = [text.replace("entry exchange", f"entry {name}") for name, text in MISTAKES.items()]
    return kernelbench.ptx.load("sync.ptx", text="\n".join([TEXT, *mistakes]))


def _modelled(rng: np.random.Generator, count: int, expected: int) -> tuple[list[int], list[int]]:
    """Random operations that never arrive too often, and what both tests say after each.

    PTX ISA 9.1, 9.7.13.15: a phase ends when no arrival is pending; the next one expects as many,
    less those that dropped out. A test for a parity holds if the phase of that parity, the current
    one or the one before it, is over.
    """
    operations, results = [], []
    phase, each_phase, pending = 0, expected, expected
    for _ in range(count):
        possible = [ARRIVE, AGAIN]
        possible += [ARRIVE_TWICE] * (pending >= 2) + [DROP] * (each_phase >= 2)
        operation = int(rng.choice(possible))
        if operation == AGAIN:
            phase, each_phase, pending = 0, expected, expected
        else:
            each_phase -= operation == DROP
            pending -= 2 if operation == ARRIVE_TWICE else 1
        if pending == 0:
            phase, pending = phase + 1, each_phase
        operations.append(operation)
        results.append(sum(1 << parity for parity in (0, 1) if phase % 2 != parity))
    return operations, results


@pytest.mark.parametrize("expected", [1, 2, 5])
def test_phases_of_a_barrier(module, expected):
    operations, results = _modelled(np.random.default_rng(expected), 400, expected)
    out = np.zeros(400, np.int32)
    given = np.array(operations, np.int32)
    module.launch("phases", 1, 1, [given, out, 400, expected], check=1).require_clean()
    assert out.tolist() == results


def test_ctas_of_a_cluster(module):
    out = np.zeros(256, np.int32)
    report = module.launch("exchange", 4, args=[out], check=4)
    assert report.clean, list(report.lines())
    assert out.tolist() == 2 * [1000 * (1 - r) + t for r in (0, 1) for t in range(64)]


def test_a_wait_at_the_scope_of_the_cta():
    """PTX orders nothing of another CTA by it; shared memory has no cache, so that it is formal."""
    text = EXCHANGE.replace("parity.acquire.cluster", "parity.acquire.cta")
    narrow = kernelbench.ptx.load("narrow.ptx", text=TEXT.replace(EXCHANGE, text))
    out = np.zeros(256, np.int32)
    report = narrow.launch("exchange", 4, args=[out], check=4)
    assert report.clean and report.findings, list(report.lines())
    assert all(each.finding.kind == "race" for each in report.findings)
    assert all("acquires at scope cta" in each.finding.text for each in report.findings)


def test_a_named_barrier(module):
    out = np.zeros(32, np.int32)
    report = module.launch("handover", 1, args=[out], check=4)
    assert report.clean, list(report.lines())
    assert out.tolist() == [7 * lane for lane in range(32)]


def test_a_barrier_that_votes(module):
    limits, out = np.full(40, 40, np.int32), np.zeros(40, np.int32)
    module.launch("votes", 1, 40, [limits, out], check=3).require_clean()
    assert out.tolist() == [14 + 100] * 40
    limits[7] = 7
    module.launch("votes", 1, 40, [limits, out], check=3).require_clean()
    assert out.tolist() == [14 + 1000] * 40


def test_a_cluster_of_two_dimensions(module):
    out = np.zeros(8, np.int32)
    module.launch("corners", (4, 2), 1, [out], check=5).require_clean()
    assert out.tolist() == [1000 + 100 * x + at for x in range(2) for at in (0, 1, 10, 11)]


def test_what_changes_no_value(module):
    out = np.zeros(128, np.int32)
    module.launch("harmless", 1, args=[out], check=2).require_clean()
    assert out.tolist() == list(range(128))


@pytest.mark.parametrize(("kernel", "found"), [("relaxed", "race"), ("silent", "hang")])
def test_mistakes_are_found(module, kernel, found):
    report = module.launch(kernel, 4, args=[np.zeros(256, np.int32)], check=4)
    assert found in {each.finding.kind for each in report.errors}, list(report.lines())


#: Every fifth thread has exited. The others vote and meet, at barriers and in their warps.
GONE = (
    TEXT[: TEXT.index("// One thread")]
    + """
.visible .entry gone(.param .u64 p_in, .param .u64 p_out) .reqntid 96
{
  .reg .b64 %in, %out, %o; .reg .b32 %t, %x, %y, %z; .reg .pred %p, %q, %all, %any, %uni, %same;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x;
  rem.u32 %x, %t, 5; setp.eq.u32 %p, %x, 0; @%p ret;
  mul.wide.u32 %o, %t, 4; add.s64 %in, %in, %o; mul.wide.u32 %o, %t, 32; add.s64 %out, %out, %o;
  ld.global.b32 %y, [%in]; setp.ne.u32 %q, %y, 0;
  bar.red.popc.u32 %x, 0, %q; st.global.b32 [%out], %x;
  bar.red.and.pred %all, 1, %q; bar.red.or.pred %any, 2, %q;
  selp.b32 %x, 1, 0, %all; selp.b32 %z, 2, 0, %any; or.b32 %x, %x, %z;
  bar.sync 3;
  st.global.b32 [%out+4], %x;
  vote.sync.all.pred %all, %q, -1; vote.sync.any.pred %any, %q, -1;
  vote.sync.uni.pred %uni, %q, -1;
  selp.b32 %x, 1, 0, %all; selp.b32 %z, 2, 0, %any; or.b32 %x, %x, %z;
  selp.b32 %z, 4, 0, %uni; or.b32 %x, %x, %z; st.global.b32 [%out+8], %x;
  vote.sync.ballot.b32 %x, %q, -1; st.global.b32 [%out+12], %x;
  match.all.sync.b32 %x|%same, %y, -1; st.global.b32 [%out+16], %x;
  selp.b32 %x, 1, 0, %same; st.global.b32 [%out+20], %x;
  match.any.sync.b32 %x, %y, -1; st.global.b32 [%out+24], %x;
  ret;
}
"""
)


def test_those_that_have_exited_do_not_vote():
    """9.7.13: non-exited threads alone take part; a barrier without a count is of those left."""
    module = kernelbench.ptx.load("gone.ptx", text=GONE)
    rng = np.random.default_rng(7)
    live = [t for t in range(96) if t % 5]
    for round_ in range(14):
        # All ones, all zeros, a warp of equal values among others, and random ones.
        given = rng.integers(0, 2, 96).astype(np.int32)
        given[: 32 * (round_ % 4)] = round_ % 2
        out = np.zeros((96, 8), np.uint32)
        module.launch("gone", 1, args=[given, out], check=2, seed=round_).require_clean()
        votes = [int(given[t]) for t in live]
        for t in live:
            warp = [each for each in live if each // 32 == t // 32]
            mine = [int(given[each]) for each in warp]
            every = sum(1 << each % 32 for each in warp)
            same = len(set(mine)) == 1
            assert out[t, :7].tolist() == [
                sum(votes), all(votes) | 2 * any(votes), all(mine) | 2 * any(mine) | 4 * same,
                sum(1 << each % 32 for each in warp if given[each]), every * same, int(same),
                sum(1 << each % 32 for each in warp if given[each] == given[t]),
            ]  # fmt: skip
        assert not out[::5].any()


#: Phases by their state tokens, bytes announced and completed by hand, a CTA's votes.
TOKENS = (
    TEXT[: TEXT.index("// One thread")]
    + """
.visible .entry tokens(.param .u64 p_out) .reqntid 64
{
  .reg .b64 %out, %o, %state; .reg .b32 %b, %t, %x, %y, %a; .reg .pred %p, %q, %r;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; mov.b32 %b, bar;
  mul.wide.u32 %o, %t, 16; add.s64 %out, %out, %o;
  setp.eq.u32 %p, %t, 0; @%p mbarrier.init.shared::cta.b64 [%b], 64; bar.sync 0;
  mov.b32 %x, 0;
ROUND:
  mov.b32 %a, word; mad.lo.u32 %a, %t, 4, %a; add.u32 %y, %t, %x; st.shared.b32 [%a], %y;
  @%p bra FIRST;
  mbarrier.arrive.release.cta.shared::cta.b64 %state, [%b]; bra WAIT;
FIRST:
  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%b], 32;
  mbarrier.complete_tx.shared::cluster.relaxed.cluster.b64 [%b], 32;
  mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %state, [%b], 1;
WAIT:
  mbarrier.try_wait.acquire.cta.shared::cta.b64 %q, [%b], %state; @!%q bra WAIT;
  mbarrier.test_wait.shared::cta.b64 %q, [%b], %state; selp.b32 %y, 1, 0, %q;
  st.global.b32 [%out], %y;
  xor.b32 %y, %t, 63; mov.b32 %a, word; mad.lo.u32 %a, %y, 4, %a; ld.shared.b32 %y, [%a];
  st.global.b32 [%out+4], %y;
  setp.lt.u32 %r, %t, 40; bar.red.popc.u32 %y, 0, %r; st.global.b32 [%out+8], %y;
  barrier.cta.red.aligned.and.pred %q, 1, 64, %r; selp.b32 %y, 1, 0, %q;
  bar.red.or.pred %q, 1, 64, !%r; selp.b32 %a, 2, 0, %q; or.b32 %y, %y, %a;
  st.global.b32 [%out+12], %y;
  add.u32 %x, %x, 100; setp.lt.u32 %q, %x, 300; @%q bra ROUND;
  ret;
}
"""
)


def test_state_tokens_bytes_by_hand_and_votes_of_a_cta():
    module = kernelbench.ptx.load("tokens.ptx", text=TOKENS)
    out = np.zeros((64, 4), np.int32)
    report = module.launch("tokens", 1, args=[out], check=4)
    assert report.clean, list(report.lines())
    assert out.tolist() == [[1, 263 - t, 40, 2] for t in range(64)]


def test_without_the_token_the_words_race():
    text = TOKENS.replace("@!%q bra WAIT;", "")
    module = kernelbench.ptx.load("tokens.ptx", text=text)
    report = module.launch("tokens", 1, args=[np.zeros((64, 4), np.int32)], check=4)
    assert "race" in {each.finding.kind for each in report.errors}, list(report.lines())


#: One lane gives its warp's registers back, as the others have left.
ALONE = """
.visible .entry alone(.param .u64 p_out) .reqntid 32
{
  .reg .b64 %out; .reg .b32 %t; .reg .pred %p;
  mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 3; @%p ret;
  setmaxnreg.dec.sync.aligned.u32 40;
  ld.param.u64 %out, [p_out]; st.global.b32 [%out], %t;
  ret;
}"""


def test_registers_given_back_by_one_lane():
    """PTX ISA 9.1, 9.7.19: undefined where not all threads get there; the launch goes on."""
    out = np.zeros(1, np.int32)
    module = kernelbench.ptx.load("alone.ptx", text=TEXT[: TEXT.index(".shared")] + ALONE)
    (found,) = module.launch("alone", 1, args=[out], check=1).errors
    assert found.finding.kind == "divergence"
    assert found.finding.text.startswith("setmaxnreg.sync.aligned by 1 of 32 lanes")
    assert out.tolist() == [3]


WAITS = "mbarrier.try_wait.parity.shared::cta.b64 %q, [%a], 0; @!%q bra WAIT;"
HANDED_ON = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 8 .b64 first;
.shared .align 8 .b64 second;
.visible .entry k(.param .u64 p) .reqntid 1 .reqnctapercluster 2
{
  .reg .b32 %r, %peer, %a, %b, %c; .reg .pred %p, %q;
  mov.u32 %r, %cluster_ctarank; xor.b32 %peer, %r, 1; mov.b32 %a, first; mov.b32 %b, second;
  mbarrier.init.shared::cta.b64 [%a], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.init.shared::cta.b64 [%b], 1;
  barrier.cluster.arrive.relaxed.aligned;
  barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %c, %a, %peer; mapa.shared::cluster.u32 %b, %b, %peer;
  setp.eq.u32 %p, %r, 0; @%p bra WAIT;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%c]; bra DONE;
WAIT:
  WAITS
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%b];
DONE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ret;
}"""


@pytest.mark.parametrize(("waits", "severity"), [(WAITS, "formal"), ("", "error")])
def test_an_initialization_behind_another_barrier(waits, severity):
    """A wait without a scope hands the other CTA's initialization on, formally; none does not."""
    text = HANDED_ON.replace("WAITS", waits)
    report = kernelbench.ptx.load("handed.ptx", text=text).launch("k", 2, args=[0], check=1)
    found = [each.severity for each in report.findings if each.finding.kind == "barrier-state"]
    assert found == [severity], list(report.lines())
