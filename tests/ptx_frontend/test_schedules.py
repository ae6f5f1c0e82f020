"""CTAs in any order, threads that go round for ever, launches that find what others have left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kernelbench.ptx
from kernelbench.emulator.findings import WHICH_STAYS
from kernelbench.emulator.settings import Emulation
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.hosts import checked_launches
from kernelbench.ptx.hosts.checked_launches import CheckedLaunches
from kernelbench.ptx.report import each_once

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = ".version 8.8\n.target sm_90\n.address_size 64\n"


def _scan(name: str, rank: str) -> str:
    """CTA by CTA, each adds to what the one of the rank before it has published."""
    return f"""
.visible .entry {name}(.param .u64 p_flags, .param .u64 p_ticket) .reqntid 32
{{
  .reg .b64 %flags, %ticket, %at; .reg .b32 %t, %rank, %count, %sum; .reg .pred %p;
  ld.param.u64 %flags, [p_flags]; ld.param.u64 %ticket, [p_ticket]; mov.u32 %t, %tid.x;
  setp.ne.u32 %p, %t, 0; @%p ret;
  {rank}
  mul.wide.u32 %at, %rank, 4; add.s64 %at, %flags, %at; mov.u32 %sum, 0;
  setp.eq.u32 %p, %rank, 0; @%p bra PUBLISH;
WAIT: ld.acquire.gpu.global.u32 %sum, [%at+-4]; setp.eq.u32 %p, %sum, 0; @%p bra WAIT;
PUBLISH: add.u32 %sum, %sum, 1; st.release.gpu.global.u32 [%at], %sum;
  ret;
}}"""


#: Each CTA has a word, and waits until the other's is 2: by turns it sets its own to 0 and 1.
LIVELOCK = """
.visible .entry go_round(.param .u64 p_words, .param .u32 p_tries) .reqntid 1
{
  .reg .b64 %words, %mine, %other; .reg .b32 %c, %turn, %v, %k, %n; .reg .pred %p;
  ld.param.u64 %words, [p_words]; ld.param.u32 %n, [p_tries];
  mov.u32 %c, %ctaid.x; mov.u32 %turn, 0; mov.u32 %k, 0;
  mul.wide.u32 %mine, %c, 4; add.s64 %mine, %words, %mine; xor.b32 %c, %c, 1;
  mul.wide.u32 %other, %c, 4; add.s64 %other, %words, %other;
AGAIN: setp.eq.u32 %p, %k, %n; @%p bra END; @%p bra END; add.u32 %k, %k, 1;
  atom.relaxed.gpu.global.exch.b32 %v, [%mine], %turn; xor.b32 %turn, %turn, 1;
  ld.relaxed.gpu.global.u32 %v, [%other]; setp.ne.u32 %p, %v, 2; @%p bra AGAIN;
END: mov.u32 %turn, 2; atom.relaxed.gpu.global.exch.b32 %v, [%mine], %turn;
  ret;
}"""

#: CTAs take two locks, each CTA in its own order; who does not get the second gives the first back.
LOCKS = """
.visible .entry backs_off(.param .u64 p_words) .reqntid 1
{
  .reg .b64 %words, %a, %b; .reg .b32 %c, %v, %k; .reg .pred %p;
  ld.param.u64 %words, [p_words]; mov.u32 %c, %ctaid.x; and.b32 %c, %c, 1; mov.u32 %k, 0;
  mul.wide.u32 %a, %c, 4; add.s64 %a, %words, %a; xor.b32 %c, %c, 1;
  mul.wide.u32 %b, %c, 4; add.s64 %b, %words, %b;
AGAIN: atom.acquire.gpu.global.cas.b32 %v, [%a], 0, 1; setp.ne.u32 %p, %v, 0; @%p bra AGAIN;
  atom.acquire.gpu.global.cas.b32 %v, [%b], 0, 1; setp.eq.u32 %p, %v, 0; @%p bra HAVE;
  st.release.gpu.global.u32 [%a], 0; bra AGAIN;
HAVE: ld.global.u32 %v, [%words+8]; add.u32 %v, %v, 1; st.global.u32 [%words+8], %v;
  st.release.gpu.global.u32 [%b], 0; st.release.gpu.global.u32 [%a], 0;
  add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 200; @%p bra AGAIN;
  ret;
}"""

#: Each thread looks for a free word of a table that has none.
FULL = """
.visible .entry full(.param .u64 p_words) .reqntid 64
{
  .reg .b64 %words, %at; .reg .b32 %i, %v; .reg .pred %p;
  ld.param.u64 %words, [p_words]; mov.u32 %i, %tid.x;
NEXT: and.b32 %i, %i, 511; mul.wide.u32 %at, %i, 4; add.s64 %at, %at, %words;
  atom.relaxed.gpu.global.cas.b32 %v, [%at], 0, 1; add.u32 %i, %i, 1;
  setp.ne.u32 %p, %v, 0; @%p bra NEXT;
  ret;
}"""

#: A CTA publishes a word. The next one takes it if its flag says that it is there.
NEIGHBOUR = """
.visible .entry neighbour(.param .u64 p_flags, .param .u64 p_data, .param .u64 p_out) .reqntid 1
{
  .reg .b64 %flags, %data, %out, %at; .reg .b32 %c, %v; .reg .pred %p;
  ld.param.u64 %flags, [p_flags]; ld.param.u64 %data, [p_data]; ld.param.u64 %out, [p_out];
  mov.u32 %c, %ctaid.x; mul.wide.u32 %at, %c, 4; add.s64 %flags, %flags, %at;
  add.s64 %data, %data, %at; add.s64 %out, %out, %at;
  st.global.u32 [%data], %c; st.release.gpu.global.u32 [%flags], 1;
  setp.eq.u32 %p, %c, 0; @%p ret;
  ld.acquire.gpu.global.u32 %v, [%flags+-4]; setp.eq.u32 %p, %v, 0; @%p ret;
  ld.global.u32 %v, [%data+-4]; st.global.u32 [%out], %v;
  ret;
}"""

TEXT = "\n".join([
    HEAD, _scan("by_index", "mov.u32 %rank, %ctaid.x;"),
    _scan("ahead", "mov.u32 %rank, %ctaid.x; mov.u32 %count, %nctaid.x; "
          "sub.u32 %rank, %count, %rank; sub.u32 %rank, %rank, 1;"),
    _scan("by_ticket", "atom.relaxed.gpu.global.add.u32 %rank, [%ticket], 1;"),
    LIVELOCK, LOCKS, FULL, NEIGHBOUR,
])  # fmt: skip
#: More than one SM holds, 32 of them.
CTAS = 36
SEED = 3


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("schedules.ptx", text=TEXT)


def _report_of(module, kernel: str, grid: int = CTAS):
    flags, ticket = np.zeros(grid, np.uint32), np.zeros(1, np.uint32)
    args, four = [flags, ticket], Emulation(sms=4)
    return module.launch(kernel, grid, args=args, check=4, seed=1, gpu_sms=1, emulation=four)


@pytest.mark.parametrize("kernel", ["by_index", "ahead"])
def test_no_order_of_ctas_is_promised(module, kernel: str) -> None:
    """PTX ISA 9.1, 2.2: CTAs of a grid start in any order, and not all of them at once."""
    report = _report_of(module, kernel)
    assert [each.finding.kind for each in report.errors] == ["hang"]
    assert "32 can reside on 1 SMs" in report.errors[0].finding.text


def test_a_ticket_is_an_order(module) -> None:
    assert _report_of(module, "by_ticket").clean
    assert _report_of(module, "by_index", 8).clean  # all of them reside


def test_a_livelock_is_no_hang(module) -> None:
    report = module.launch("go_round", 2, args=[np.zeros(2, np.uint32), 0xFFFFFFFF], check=2)
    (found,) = report.errors
    assert found.finding.kind == "hang" and found.finding.text.startswith("livelock: ")
    assert all(each.access.where for each in report.waits)


def test_a_table_without_room_is_one(module) -> None:
    report = module.launch("full", 1, args=[np.ones(512, np.uint32)], check=4, limit_s=60)
    (found,) = report.errors
    assert "64 threads go round, and no word changes" in found.finding.text, found.finding.text
    assert report.never_ends
    shown = [line for line in report.lines() if "waits for a value in global memory" in line]
    assert any("more wait likewise" in line for line in report.lines()) and len(shown) < 5


def test_what_ends_at_last_is_none(module) -> None:
    words = np.zeros(3, np.uint32)
    assert module.launch("go_round", 2, args=[words, 3000], check=2).clean
    words = np.zeros(3, np.uint32)
    report = module.launch("backs_off", 4, args=[words], check=2)
    assert report.clean and words[2] == 800


@pytest.mark.parametrize("reset", [True, False])
def test_a_third_launch_finds_the_flags_of_the_first(module, reset: bool) -> None:
    """Two sets of flags by turns: the first two launches find nothing in them, the third does."""
    launches = CheckedLaunches(check=16, seed=SEED, sms=4, limit_s=0.0)
    flags = np.zeros((2, 2), np.uint32)
    data, out = (np.zeros(2, np.uint32) for _ in range(2))
    reports = []
    for number in range(4):
        if reset:
            flags[number % 2] = 0
        args, form = [flags[number % 2], data, out], ("neighbour",)
        reports.append(launches.make(module, "neighbour", (2,), None, args, form=form, words=""))
    assert [each.schedules for each in reports] == ([16, 4, 1, 1] if reset else [16, 4, 16, 1])
    assert [each.clean for each in reports[:2]] == [True, True]
    if reset:
        assert all(each.clean for each in reports)
        return
    (race,) = reports[2].errors
    assert race.finding.kind == "race"
    assert race.seed > SEED + 16 + 4  # one schedule would not have shown it


def test_much_work_runs_in_fewer(module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_launches, "_SWITCHES", 0)
    launches = CheckedLaunches(check=16, seed=SEED, sms=4, limit_s=0.0)
    data, out = (np.zeros(2, np.uint32) for _ in range(2))
    made = [
        launches.make(
            module, "neighbour", (2,), None, [np.zeros(2, np.uint32), data, out],
            form=("neighbour",), words="",
        )
        for _ in range(3)
    ]  # fmt: skip
    assert [each.schedules for each in made] == [2, 2, 1]


#: Two warps each write a half of the slot and arrive; a third one reads it.
COUNT = """
.shared .align 8 .b64 bar; .shared .align 4 .b8 slot[256];
.visible .entry two_arrive(.param .u64 p_out, .param .u32 p_count) .reqntid 96
{
  .reg .b64 %out, %o; .reg .b32 %t, %b, %n, %s, %v; .reg .pred %p, %done;
  ld.param.u64 %out, [p_out]; ld.param.u32 %n, [p_count]; mov.u32 %t, %tid.x; mov.b32 %b, bar;
  setp.ne.u32 %p, %t, 0; @!%p mbarrier.init.shared::cta.b64 [%b], %n;
  bar.sync 0;
  setp.lt.u32 %p, %t, 64; @%p bra WRITE;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
  sub.u32 %t, %t, 64; mov.b32 %s, slot; mad.lo.u32 %s, %t, 8, %s; ld.shared.b32 %v, [%s];
  mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o; st.global.b32 [%out], %v; ret;
WRITE: mov.b32 %s, slot; mad.lo.u32 %s, %t, 4, %s; st.shared.b32 [%s], %t; bar.warp.sync -1;
  and.b32 %v, %t, 31; setp.ne.u32 %p, %v, 0; @%p ret;
  mbarrier.arrive.shared::cta.b64 _, [%b];
  ret;
}"""


@pytest.mark.parametrize("count", [1, 2])
def test_a_count_that_is_too_small_is_the_cause(count: int) -> None:
    """PTX ISA 9.1, 9.7.13.15: the second arrival belongs to the phase that the first completed."""
    module = kernelbench.ptx.load("count.ptx", text=HEAD + COUNT)
    report = module.launch("two_arrive", 1, args=[np.zeros(32, np.int32), count], check=4, seed=1)
    assert report.clean == (count == 2), list(report.lines())
    if count == 1:
        (first, *_) = report.errors
        assert first.finding.kind == "arrival-count"
        assert first.finding.text.startswith("the count is 1, but 2 arrive in a phase")


#: Two warps arrive in two phases that nobody waits for, and do something else that is found.
UNRELATED = """
.shared .align 8 .b64 bar; .shared .align 8 .b64 full; .shared .align 16 .b8 slot[16];
.visible .entry unrelated(.param .u64 p_out) .reqntid 64
{
  .reg .b64 %out; .reg .b32 %t, %b, %s, %v; .reg .pred %p;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; mov.b32 %b, bar; mov.b32 %s, slot;
  setp.ne.u32 %p, %t, 0; @!%p mbarrier.init.shared::cta.b64 [%b], 1;
  bar.sync 0;
  and.b32 %v, %t, 31; setp.ne.u32 %p, %v, 0; @%p ret;
  mbarrier.arrive.shared::cta.b64 _, [%b];
  ELSE
  ret;
}"""
LOADS = """setp.ne.u32 %p, %t, 0; @%p ret;
  mov.b32 %b, full; mbarrier.init.shared::cta.b64 [%b], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 16;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%out], 16, [%b];"""
STORES = """setp.ne.u32 %p, %t, 0; @%p ret;
  st.shared.v4.b32 [%s], {%t, %t, %t, %t}; fence.proxy.async;
  cp.async.bulk.global.shared::cta.bulk_group [%out], [%s], 16;
  cp.async.bulk.commit_group;"""


@pytest.mark.parametrize(
    ("text", "kind", "severity"),
    [
        (LOADS, "exit", "error"),
        (STORES, "exit", "formal"),
        ("st.shared.b32 [%s], 7;", "race", "formal"),
    ],
)
def test_a_count_is_no_cause_of_what_is_formal_or_not_waited_for(
    text: str, kind: str, severity: str
) -> None:
    """That a GPU keeps memory until its bulk stores have read it is nowhere promised."""
    module = kernelbench.ptx.load("else.ptx", text=HEAD + UNRELATED.replace("ELSE", text))
    report = module.launch("unrelated", 1, args=[np.zeros(4, np.int32)], check=4, seed=1)
    found = [(each.finding.kind, each.severity) for each in report.findings]
    assert found == [(kind, severity)], list(report.lines())


#: Copies that are in flight when the CTA ends, in some schedules.
LEAVES = """
.visible .entry leaves(.param .u64 p_in) .reqntid 1
{
  .reg .b64 %in; .reg .b32 %s; .shared .align 16 .b8 slot[48];
  ld.param.u64 %in, [p_in]; mov.b32 %s, slot;
  cp.async.ca.shared.global [%s], [%in], 16;
  cp.async.ca.shared.global [%s+16], [%in], 16; cp.async.ca.shared.global [%s+32], [%in], 16;
  ret;
}"""


def test_copies_in_flight_at_the_exit_have_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "leaves.ptx").write_text(HEAD + LEAVES)
    module = kernelbench.ptx.load(tmp_path / "leaves.ptx")
    report = module.launch("leaves", 1, args=[np.zeros(4, np.int32)], check=20, seed=1)
    where = {each.finding.access.where for each in report.findings}
    first = (HEAD + LEAVES).splitlines().index("  cp.async.ca.shared.global [%s], [%in], 16;") + 1
    assert where == {f"leaves.ptx:{first + 1}"}
    found = {(each.finding.kind, each.severity) for each in report.findings}
    assert found == {("exit", "formal")}


#: Lanes of two warps hand a value on through shared memory.
EXCHANGE = """
.visible .entry exchange(.param .u64 p_out) .reqntid 64
{{
  .shared .align 4 .b8 kept[256];
  .reg .b64 %out, %at; .reg .b32 %t, %mine, %other, %v;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; mov.u32 %v, kept;
  shl.b32 %mine, %t, 2; add.u32 %mine, %v, %mine; st.shared.u32 [%mine], %t;
  {meet}
  xor.b32 %other, %t, 63; shl.b32 %other, %other, 2; add.u32 %other, %v, %other;
  ld.{how}shared.u32 %v, [%other];
  mul.wide.u32 %at, %t, 4; add.s64 %at, %out, %at; st.global.u32 [%at], %v;
  ret;
}}"""


#: The same words come from global memory, asynchronously.
COPIED = """mul.wide.u32 %at, %t, 4; add.s64 %at, %out, %at; st.global.u32 [%at], %t;
  cp.async.ca.shared.global [%mine], [%at], 4; cp.async.commit_group; """


@pytest.mark.parametrize(
    ("meet", "how", "schedules", "races"),
    [
        ("bar.sync 0;", "", 2, 0),
        ("", "", 2, 2),
        ("bar.sync 0;", "volatile.", 20, 0),
        (COPIED + "cp.async.wait_group 0; bar.sync 0;", "", 2, 0),
        (COPIED + "bar.sync 0;", "", 2, 2),
        (COPIED + "cp.async.wait_group 0;", "", 2, 2),
        ("bar.sync 0; mov.u32 %v, %clock; mov.u32 %v, kept;", "", 20, 0),
    ],
)
def test_what_is_the_same_in_every_schedule_runs_in_two(
    meet: str, how: str, schedules: int, races: int
) -> None:
    """A race shows in each of them."""
    text = HEAD + EXCHANGE.format(meet=meet, how=how)
    launches = CheckedLaunches(check=20, seed=SEED, sms=4, limit_s=0.0)
    report = launches.make(
        kernelbench.ptx.load("exchange.ptx", text=text), "exchange", (1,), None,
        [np.zeros(64, np.uint32)], form=("exchange",), words="",
    )  # fmt: skip
    assert report.schedules == schedules
    found = [each for each in report.errors if each.finding.kind in ("race", "early-read")]
    assert max((each.schedules for each in found), default=0) == races, list(report.lines())
    assert launches.order_matters == (schedules > 2)


ONE_WORD = """
.visible .entry one_word(.param .u64 p_out) .reqntid {threads}
{{
  .reg .b64 %out; .reg .b32 %t;
  ld.param.u64 %out, [p_out]; mov.u32 %t, {value};
  st.global.b32 [%out], %t; ret;
}}"""


@pytest.mark.parametrize(
    ("ctas", "threads", "value", "severities"),
    [
        (1, 64, "%tid.x", ["error"]), (1, 64, "7", []),
        (1, 32, "%tid.x", ["formal"]), (1, 32, "7", []),
        (2, 1, "%ctaid.x", ["error"]), (2, 1, "7", ["formal"]),
    ],
)  # fmt: skip
def test_stores_to_one_word_of_global_memory(
    ctas: int, threads: int, value: str, severities: list[str]
) -> None:
    """Of different values one stays if the lanes of a warp store them by one instruction."""
    text = HEAD + ONE_WORD.format(threads=threads, value=value)
    module = kernelbench.ptx.load("one_word.ptx", text=text)
    report = module.launch("one_word", ctas, args=[np.zeros(1, np.uint32)], check=2)
    assert [each.severity for each in report.findings] == severities
    for each in report.findings:
        said = "which of the values stays is not defined" in each.finding.text
        assert said == (each.severity == "formal" and ctas == 1)
    assert report.clean == ("error" not in severities)


def test_work_that_waits_for_what_the_launch_has_written_is_refused(module):
    """It is made anew once others have been done, and has written nothing then."""
    words = np.zeros(2, np.uint32)
    with pytest.raises(PtxError, match="go_round: it and streams wait for words that the other"):
        module.launch(
            "go_round", 1, 1, [words, 2**31], check=1, memory={"words": words},
            others=lambda perform: 0 if perform else 1, neighbours=list,
        )  # fmt: skip


def test_what_is_an_error_in_another_schedule_has_no_words_of_lanes() -> None:
    module = kernelbench.ptx.load(
        "one_word.ptx", text=HEAD + ONE_WORD.format(threads=32, value="%tid.x")
    )
    report = module.launch("one_word", 1, args=[np.zeros(1, np.uint32)], check=1)
    (formal,) = report.findings
    text = formal.finding.text.removesuffix(WHICH_STAYS)
    assert text != formal.finding.text
    error = replace(formal, severity="error", finding=replace(formal.finding, text=text), seed=9)
    (both,) = each_once([formal, error])
    assert both.severity == "error" and both.finding.text == text


#: The second CTA, by the order in which they come, loops until a plain load finds the first's flag.
POLLS_PLAINLY = """.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .b64 %a; .reg .b32 %i, %x; .reg .pred %q;
  ld.param.u64 %a, [p];
  atom.global.add.u32 %i, [%a], 1;
  setp.ne.u32 %q, %i, 0; @%q bra WAIT;
  atom.global.exch.release.gpu.b32 %x, [%a+4], 1;
  ret;
WAIT:
  ld.global.u32 %x, [%a+4];
  setp.eq.u32 %q, %x, 0; @%q bra WAIT;
  ret;
}
"""


def test_a_plain_load_that_polls_lets_others_run() -> None:
    module = kernelbench.ptx.load("polls.ptx", text=POLLS_PLAINLY)
    report = module.launch("k", 2, 1, [np.zeros(2, np.uint32)], check=20, limit_s=30)
    assert {each.finding.kind for each in report.errors} == {"race"}
    assert report.schedules == 20
