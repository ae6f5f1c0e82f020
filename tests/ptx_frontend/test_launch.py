"""``kernelbench.ptx.load``: kernels that nvcc made of small.cu, on arrays, and what is found."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import kernelbench.ptx
from kernelbench import IncorrectError
from kernelbench.base.errors import ExitCode
from kernelbench.ptx import launcher

pytestmark = pytest.mark.usefixtures("emulator_runtime")

FILE = Path(__file__).parent / "small.ptx"
#: All lanes write a word of shared memory, and one of them reads it.
LANES = """.version 8.8
.target sm_90
.address_size 64
.shared .align 4 .b32 word[2];
.visible .entry k(.param .u64 p)
{
  .reg .b64 %o, %out; .reg .b32 %t, %w, %a, %x; .reg .pred %p;
  ld.param.u64 %out, [p]; mov.u32 %t, %tid.x; mov.b32 %a, word; mov.b32 %x, 5;
  WORD
  st.shared.b32 [%a], %x;
  bar.sync 0;
  setp.ge.u32 %p, %t, 2; @%p ret;
  mov.b32 %a, word; mad.lo.u32 %a, %t, 4, %a; ld.shared.b32 %x, [%a];
  mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o; st.global.b32 [%out], %x;
  ret;
}
"""
REVERSED = list(range(63, -1, -1))


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load(FILE)


def test_kernels_by_name(module):
    assert {"add", "reverse", "stop"} <= set(module.kernels)


@pytest.mark.parametrize("kind", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_arrays_and_numbers(module, kind):
    a, b = kind([float(i) for i in range(100)]), kind([2.0 * i for i in range(100)])
    a, b = (each.astype("f4") if kind is np.array else each.float() for each in (a, b))
    c = a * 0
    report = module.launch("add", 4, 32, [a, b, c, 100])
    assert report.clean and report.schedules == 1
    assert [float(each) for each in c] == [3.0 * i for i in range(100)]


def test_doubles_and_more_dimensions(module):
    x = np.arange(8.0)
    module.launch("scale", (1, 2), (1, 4), [x, 0.5]).require_clean()
    assert x.tolist() == [i / 2 for i in range(8)]


def test_dynamic_shared_memory_in_many_schedules(module):
    data = np.arange(64, dtype=np.int32)
    report = module.launch("reverse", 1, 64, [data], shared=256, check=5)
    # Each schedule began with the first values.
    assert (report.clean, report.schedules, data.tolist()) == (True, 5, REVERSED)


def test_a_race_is_found_with_its_source(module):
    data = np.arange(64, dtype=np.int32)
    report = module.launch("reverse_without_barrier", 1, 64, [data], shared=256, check=5)
    races = [each for each in report.errors if each.finding.kind == "race"]
    assert races and not report.clean
    chains = {each.source for each in races} | {each.other_source for each in races}
    assert chains == {("small.cu:13", "small.cu:26"), ("small.cu:25",)}
    assert {each.finding.access.role for each in races} <= {"other_end", ""}
    assert all(each.finding.access.where.startswith("small.ptx:") for each in races)
    assert any("small.cu" in line for line in report.lines())
    with pytest.raises(IncorrectError, match=r"race: .*small\.ptx:\d+") as error:
        report.require_clean()
    assert error.value.exit_code == ExitCode.INCORRECT


def test_equal_findings_have_one_identity(module):
    data = np.arange(64, dtype=np.int32)
    first, second = (
        module.launch("reverse_without_barrier", 1, 64, [data], shared=256, check=3, seed=seed)
        for seed in (0, 100)
    )
    assert {each.identity for each in first.findings} == {each.identity for each in second.findings}
    assert max(each.schedules for each in first.findings) == 3


def test_lanes_of_one_instruction_are_a_formal_matter(module):
    data = np.full(32, 7, np.int32)
    report = module.launch("all_lanes_write", 1, 32, [data], check=4)
    assert {each.severity for each in report.findings} == {"formal"}
    assert report.clean and data.tolist() == [7] * 32


def test_lanes_of_any_warp_are(module):
    # Each warp has a word of its own.
    text = LANES.replace("WORD", "shr.u32 %w, %t, 5; mad.lo.u32 %a, %w, 4, %a;")
    out = np.zeros(2, np.uint32)
    report = kernelbench.ptx.load("lanes.ptx", text=text).launch("k", 1, 64, [out], check=4)
    assert {each.severity for each in report.findings} == {"formal"}, list(report.lines())
    assert report.clean and out.tolist() == [5, 5]


def test_lanes_of_two_warps_are_an_error(module):
    text = LANES.replace("WORD", "shr.u32 %w, %t, 6; mad.lo.u32 %a, %w, 4, %a; shr.u32 %x, %t, 5;")
    report = kernelbench.ptx.load("lanes.ptx", text=text).launch(
        "k", 1, 64, [np.zeros(2, np.uint32)], check=4
    )
    assert any(each.finding.kind == "race" for each in report.errors)


@pytest.mark.parametrize(("words", "severity"), [([7, 7], "formal"), ([7, 8], "error")])
def test_warps_that_write_one_word(module, words, severity):
    data = np.repeat(np.array(words, np.int32), 32)
    report = module.launch("all_lanes_write", 1, 64, [data], check=4)
    races = [each for each in report.findings if each.finding.kind == "race"]
    assert severity in {each.severity for each in races}
    assert report.clean == (severity == "formal")


#: What a reduction leaves in every warp, stored by each.
SAME = """.version 8.8
.target sm_90
.address_size 64
.shared .align 4 .b32 word;
.visible .entry k(.param .u64 p, .param .u32 p_by_warp) .reqntid 64
{
  .reg .b64 %p; .reg .b32 %t, %x, %by, %a; .reg .pred %q;
  ld.param.u64 %p, [p]; ld.param.u32 %by, [p_by_warp]; mov.u32 %t, %tid.x; mov.b32 %a, word;
  shr.u32 %x, %t, 5; mad.lo.u32 %x, %x, %by, 9;
  st.shared.b32 [%a], %x;
  EARLY
  bar.sync 0; setp.ne.u32 %q, %t, 0; @%q ret;
  ld.shared.b32 %x, [%a]; st.global.b32 [%p], %x; ret;
}
"""


@pytest.mark.parametrize(
    ("by_warp", "early", "clean"),
    [(0, "", True), (1, "", False), (0, "ld.shared.b32 %x, [%a];", False)],
    ids=["equal", "other", "read"],
)
def test_equal_values_of_several_warps_are_a_formal_matter(by_warp, early, clean):
    module = kernelbench.ptx.load("same.ptx", text=SAME.replace("EARLY", early))
    out = np.zeros(1, np.uint32)
    report = module.launch("k", 1, args=[out, by_warp], check=6)
    assert {each.finding.kind for each in report.findings} == {"race"}
    assert report.clean == clean, list(report.lines())
    if clean:
        assert {each.severity for each in report.findings} == {"formal"}
        assert out.tolist() == [9]


#: Two warps load each element in place, and the first stores what comes of it.
IN_PLACE = """.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p_in) .reqntid 64
{
  .reg .b64 %p, %o; .reg .b32 %t, %e, %f, %x, %y; .reg .pred %q, %r;
  ld.param.u64 %p, [p_in]; mov.u32 %t, %tid.x;
  and.b32 %e, %t, 31; mul.wide.u32 %o, %e, 4; add.s64 %p, %p, %o;
  ld.global.b32 %x, [%p];
  add.u32 %y, %x, 1; and.b32 %f, %t, 32; setp.eq.u32 %q, %f, 0;
  USE
  @%q st.global.b32 [%p], %y;
  ret;
}
"""


@pytest.mark.parametrize("warp", ["and.b32 %f, %t, 32", "bfe.u32 %f, %t, 5, 2"])
@pytest.mark.parametrize(
    ("use", "severity"), [("", "formal"), ("setp.eq.u32 %r, %y, 5; @%r trap;", "error")]
)
def test_a_load_in_place_whose_value_goes_nowhere(use, severity, warp):
    data = np.arange(32, dtype=np.uint32) * 9
    text = IN_PLACE.replace("USE", use).replace("and.b32 %f, %t, 32", warp)
    report = kernelbench.ptx.load("in_place.ptx", text=text).launch("k", 1, args=[data], check=4)
    assert {each.finding.kind for each in report.findings} == {"race"}
    assert severity in {each.severity for each in report.findings}
    assert report.clean == (severity == "formal"), list(report.lines())


#: The lanes of a warp load a word each, and leave the sum of all in the first one's.
SUM_IN_PLACE = """.version 8.8
.target sm_90
.address_size 64
.shared .align 4 .b8 sums[128];
.visible .entry k(.param .u64 p_out) .reqntid 64
{
  .reg .b64 %p; .reg .b32 %t, %l, %i, %b, %a, %w, %x, %y, %n; .reg .pred %q, %r, %s;
  ld.param.u64 %p, [p_out]; mov.u32 %t, %tid.x; mov.b32 %b, sums; mov.b32 %n, 0;
  setp.ge.u32 %q, %t, 32; setp.ge.u32 %s, %t, 16; mov.b32 %w, 5;
  shl.b32 %l, %t, 2; add.u32 %a, %b, %l;
  @!%q st.shared.b32 [%a], %t;
$again:
  BEFORE
  mov.b32 %x, 0;
  @%q bra $end;
  @%s bra $shuffle;
  ld.shared.b32 %x, [%a];
$shuffle:
  SHUFFLE
  st.shared.b32 [%b], %x;
$end:
  add.u32 %n, %n, 1; setp.lt.u32 %r, %n, TURNS; @%r bra $again;
  bar.sync 0;
  ld.shared.b32 %y, [%b];
  st.global.b32 [%p], %y;
  ret;
}
"""
BUTTERFLY = "".join(
    f"shfl.sync.bfly.b32 %y, %x, {each}, 31, -1; add.u32 %x, %x, %y; " for each in (16, 8, 4, 2, 1)
)


@pytest.mark.parametrize(
    ("shuffle", "before", "turns", "clean"),
    [
        (BUTTERFLY, "bar.sync 0;", 1, True),
        (BUTTERFLY, "bar.sync 0;", 2, True),
        (BUTTERFLY, "", 2, False),
        ("shfl.sync.bfly.b32 %y, %w, 1, 31, -1;", "bar.sync 0;", 1, False),
        (f"mov.u32 %i, -1; {BUTTERFLY.replace('-1', '%i')}", "bar.sync 0;", 1, True),
        ("", "bar.sync 0;", 1, False),
    ],
    ids=["sum", "in turns", "turns without a barrier", "of another", "mask in a register", "none"],
)
def test_a_sum_in_place_behind_shuffles(shuffle, before, turns, clean):
    text = SUM_IN_PLACE.replace("SHUFFLE", shuffle).replace("BEFORE", before)
    module = kernelbench.ptx.load("sum.ptx", text=text.replace("TURNS", str(turns)))
    report = module.launch("k", 1, args=[np.zeros(1, np.uint32)], check=6)
    assert "race" in {each.finding.kind for each in report.findings}
    assert report.clean == clean, list(report.lines())


#: 32 lanes load the sums of two warps, and the first takes the second one's.
SOME_WRITTEN = """.version 8.8
.target sm_90
.address_size 64
.shared .align 4 .b8 sums[128];
.visible .entry k(.param .u64 p_out) .reqntid 64
{
  .reg .b64 %p; .reg .b32 %t, %w, %l, %a, %x, %y; .reg .pred %q, %r, %s;
  ld.param.u64 %p, [p_out]; mov.u32 %t, %tid.x; mov.b32 %a, sums;
  shr.u32 %w, %t, 5; and.b32 %l, %t, 31;
  setp.eq.u32 %q, %l, 0; add.u32 %x, %w, 7; mad.lo.u32 %y, %w, 4, %a; @%q st.shared.b32 [%y], %x;
  bar.sync 0;
  mov.b32 %x, 0; setp.lt.u32 %s, %l, 2; mad.lo.u32 %y, %l, 4, %a; IF ld.shared.b32 %x, [%y];
  shfl.sync.idx.b32 %x, %x, 1, 31, -1;
  setp.eq.u32 %r, %t, 0; @%r st.global.b32 [%p], %x;
  ret;
}
"""


@pytest.mark.parametrize(("condition", "clean"), [("@%s", True), ("", False)])
def test_a_load_of_nothing_is_an_error_whatever_comes_of_it(condition, clean):
    """Kept: docs/findings/unwritten.md."""
    out = np.zeros(1, np.uint32)
    report = kernelbench.ptx.load("some.ptx", text=SOME_WRITTEN.replace("IF", condition)).launch(
        "k", 1, args=[out], check=3
    )
    assert out.tolist() == [8]
    kinds = {each.finding.kind for each in report.errors}
    assert kinds == (set() if clean else {"unwritten"})


#: What the first of 32 lanes loads of `halo` is chosen by CHOICE, or not; the others write it.
CHOSEN = """.version 8.8
.target sm_90
.address_size 64
.shared .align 4 .b8 halo[128];
.visible .entry k(.param .u64 p_out) .reqntid 32
{
  .reg .b64 %p; .reg .b32 %t, %a, %x, %y; .reg .pred %q, %s;
  ld.param.u64 %p, [p_out]; mov.u32 %t, %tid.x; mov.b32 %a, halo; mad.lo.u32 %a, %t, 4, %a;
  setp.ne.u32 %q, %t, 0; @%q st.shared.b32 [%a], %t;
  setp.eq.u32 %s, %t, 0;
  ld.shared.b32 %x, [%a];
  CHOICE
  mad.wide.u32 %p, %t, 4, %p; st.global.b32 [%p], %y;
  ret;
}
"""


@pytest.mark.parametrize(
    ("choice", "clean"),
    [
        ("selp.b32 %y, 0, %x, %s;", True),
        ("selp.b32 %y, %x, 0, %q;", True),
        ("selp.b32 %y, %x, 0, %s;", False),
        ("selp.b32 %y, %x, %x, %q;", False),
        ("selp.b32 %y, 0, %x, %s; add.u32 %y, %y, %x;", False),
        ("not.pred %s, %s; selp.b32 %y, %x, 0, %s;", False),
    ],
)
def test_a_load_that_a_select_leaves_is_none(choice, clean):
    """nvcc makes `rank ? halo[0] : 0` one; docs/findings/unwritten.md."""
    text = CHOSEN.replace("CHOICE", choice)
    out = np.zeros(32, np.uint32)
    report = kernelbench.ptx.load("chosen.ptx", text=text).launch("k", 1, args=[out], check=3)
    assert report.clean == clean, list(report.lines())
    assert not clean or out.tolist() == list(range(32))


def test_memory_of_the_module(module):
    data = np.zeros(8, np.int32)
    assert module.launch("count", 8, 1, [data], check=2).clean
    assert data.tolist() == [1] * 8


def test_beyond_the_end(module):
    a, c = np.zeros(64, np.float32), np.zeros(60, np.float32)
    report = module.launch("add", 2, 32, [a, a, c, 64], check=1)
    assert [each.finding.kind for each in report.errors] == ["out-of-bounds"]
    assert report.errors[0].source == ("small.cu:5",)


def test_trap_and_exit(module):
    assert module.launch("stop", 1, 1, [np.zeros(1, np.int32)]).clean
    report = module.launch("stop", 1, 1, [np.ones(1, np.int32)])
    assert [each.finding.text for each in report.errors] == ["trap"]


def test_a_hang_says_where(module):
    report = module.launch("wait_for_ever", 1, 1, [np.zeros(1, np.int32)], check=3)
    assert [each.finding.kind for each in report.errors] == ["hang"]
    assert report.schedules == 1
    assert report.waits[0].access.where.startswith("small.ptx:")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "ad"}, "small.ptx has no kernel 'ad'; it has add"),
        ({"grid": 0}, "add: grid 0 is not one to three positive integers"),
        ({"block": (1, 2, 3, 4)}, "add: block (1, 2, 3, 4) is not one to three positive"),
        ({"block": None}, "add: no block; it has no .reqntid that says it"),
        ({"block": 2000}, "add: 2000 threads; a CTA can have 1024"),
        ({"args": [1, 2]}, "add: 2 arguments for 4 parameters"),
        ({"args": [0, 0, 0, 1 << 40]}, "add: argument 3, 1099511627776, is none for a parameter"),
        ({"args": [0, 0, 0, 3.5]}, "argument 3, 3.5, is none for a parameter of 4 bytes (.u32)"),
        ({"args": [0, 0, 0, "n"]}, "add: argument 3, a str, is none for a parameter of 4 bytes"),
        ({"args": [np.zeros((4, 4))[:, 1], 0, 0, 1]}, "an array that is not contiguous"),
    ],
)
def test_launches_that_do_not_fit(module, options, message):
    form = {"kernel": "add", "grid": 1, "block": 32, "args": [0, 0, 0, 0]} | options
    with pytest.raises(kernelbench.ptx.PtxError) as error:
        module.launch(**form)
    assert message in str(error.value)
    assert error.value.exit_code == ExitCode.USAGE


def test_a_module_without_variables_is_built_when_it_is_launched(monkeypatch):
    text = ".version 8.8\n.target sm_90\n.address_size 64\n.entry none() { ret; }"
    module = kernelbench.ptx.load("unused.ptx", text=text)
    monkeypatch.setattr(module, "_path", lambda *_: pytest.fail("it is built"))
    assert module.variables(True) == {}


#: Kernels that call a function, of which two count in one variable.
COUNTING = """.version 8.8
.target sm_90
.address_size 64
.global .u32 count = 5;
.global .u64 to_count = count;
.func add(.param .b32 n) {
  .reg .b64 %a; .reg .b32 %n, %x;
  ld.param.u32 %n, [n]; mov.u64 %a, count; ld.global.u32 %x, [%a]; add.u32 %x, %x, %n;
  st.global.u32 [%a], %x; ret;
}
.visible .entry one() { { .param .b32 p; st.param.b32 [p], 1; call add, (p); } ret; }
.visible .entry ten() { { .param .b32 p; st.param.b32 [p], 10; call add, (p); } ret; }
.visible .entry other(.param .u64 p) {
  .reg .b64 %a, %b; .reg .b32 %x;
  ld.param.u64 %a, [p]; mov.u64 %b, to_count; ld.global.u64 %b, [%b]; ld.global.u32 %x, [%b];
  st.global.u32 [%a], %x; ret;
}
"""


@pytest.mark.parametrize("many", [0, 1000], ids=["by kernel", "whole"])
def test_of_a_large_module_only_what_is_launched_is_built(many, monkeypatch, tmp_path):
    build = Mock(side_effect=launcher.library_of)
    monkeypatch.setattr(launcher, "_MANY_STATEMENTS", many)
    monkeypatch.setattr(launcher, "library_of", build)
    of_its_own = kernelbench.ptx.load("counting.ptx", text=COUNTING, apart=tmp_path)
    modules = [kernelbench.ptx.load("counting.ptx", text=COUNTING), of_its_own]
    for module in modules:
        for kernel in ("one", "ten", "one"):
            module.launch(kernel, 1, 1, check=2).require_clean()
        assert list(module.variables(True)["count"]) == [17, 0, 0, 0]
    found = np.zeros(1, np.uint32)
    modules[0].launch("one", 1, 1, check=2)
    modules[0].launch("other", 1, 1, [found], check=True, memory=modules[0].variables(True))
    assert found == [18]
    assert list(of_its_own.variables(True)["count"]) == [17, 0, 0, 0]
    assert build.call_count == (7 if many == 0 else 2)  # the variables, and each kernel
