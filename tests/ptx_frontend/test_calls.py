"""Functions that kernels call, and which calls are refused."""

from __future__ import annotations

import numpy as np
import pytest

import kernelbench.ptx
from kernelbench.ptx import UnsupportedPtxError

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n"
#: a·b + the bytes of a structure, by way of another function; one without parameters or results
#: that has a barrier and shared memory of its own; and one that nothing calls.
TEXT = (
    HEAD
    + """
.shared .align 4 .b32 seen[64];
.func (.param .b32 made) product(.param .b32 left, .param .b32 right);
.func (.param .align 8 .b8 made[16]) both(.param .align 8 .b8 given[16], .param .b32 other)
{
  .reg .b32 %r<5>;
  .param .b32 unused;
  ld.param.b32 %r0, [given];
  ld.param.b32 %r1, [given+12];
  ld.param.b32 %r2, [other];
  {
    .param .b32 p0; .param .b32 p1; .param .b32 result;
    st.param.b32 [p0], %r0;
    st.param.b32 [p1+0], %r2;
    call.uni (result), product, (p0, p1);
    ld.param.b32 %r3, [result];
  }
  add.s32 %r3, %r3, %r1;
  st.param.v2.b32 [made], {%r3, %r0};
  st.param.v2.b32 [made+8], {%r1, %r2};
  ret;
}
.func (.param .b32 made) product(.param .b32 left, .param .b32 right)
{
  .reg .b32 %r<3>; .reg .pred %p;
  ld.param.b32 %r0, [left];
  ld.param.b32 %r1, [right];
  mul.lo.s32 %r2, %r0, %r1;
  setp.eq.s32 %p, %r0, 7;
  @%p mov.b32 %r2, -1;
  st.param.b32 [made], %r2;
  ret;
}
.func publish()
{
  .reg .b32 %r<3>;
  mov.u32 %r0, %tid.x;
  mov.b32 %r1, seen;
  mad.lo.s32 %r1, %r0, 4, %r1;
  st.shared.b32 [%r1], %r0;
  bar.sync 0;
  ret;
}
.func dead() { .reg .b32 %r0; add.cc.u32 %r0, %r0, %r0; ret; }
.visible .entry run(.param .u64 out)
{
  .reg .b32 %r<8>; .reg .b64 %rd<3>; .reg .pred %p;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %tid.x;
  call publish;
  mov.b32 %r7, seen;
  xor.b32 %r6, %r0, 63;
  mad.lo.s32 %r7, %r6, 4, %r7;
  ld.shared.b32 %r6, [%r7];
  setp.ne.s32 %p, %r0, 9;
  {
    .param .align 8 .b8 p0[16]; .param .b32 p1; .param .align 8 .b8 result[16];
    st.param.v2.b32 [p0], {%r0, 0};
    st.param.v2.b32 [p0+8], {0, 1000};
    st.param.b32 [p1], %r6;
    @%p call (result), both, (p0, p1);
    @%p ld.param.b32 %r1, [result];
  }
  mul.wide.u32 %rd1, %r0, 4;
  add.s64 %rd1, %rd1, %rd0;
  @%p st.global.b32 [%rd1], %r1;
  ret;
}
"""
)


def test_functions_give_results_and_share_memory():
    out = np.zeros(64, np.int32)
    kernelbench.ptx.load("calls.ptx", text=TEXT).launch("run", 1, 64, [out]).require_clean()
    expected = [1000 + (-1 if t == 7 else t * (63 - t)) for t in range(64)]
    expected[9] = 0
    assert out.tolist() == expected


def test_a_finding_in_a_function_names_its_line():
    text = TEXT.replace("  bar.sync 0;\n", "")
    report = kernelbench.ptx.load("race.ptx", text=text).launch(
        "run", 1, 64, [np.zeros(64, np.int32)], check=4
    )
    line = text[: text.index("st.shared")].count("\n") + 1
    places = {each.finding.access.where for each in report.errors}
    places |= {each.finding.other.where for each in report.errors if each.finding.other}
    assert any(each.startswith(f"race.ptx:{line}") for each in places), places


@pytest.mark.parametrize(
    ("functions", "call", "reason"),
    [
        ("", "call vprintf, (v);", "vprintf is not defined in this module"),
        ("", "call %rd0, (v), prototype;", "an indirect call"),
        (".func f() { ret; }", "call %rd0;", "an indirect call"),
        (".func f() { call g; ret; } .func g() { call f; ret; }", "call f;", "f calls itself"),
        (".func f() { exit; }", "call f;", "in a function that is called"),
        (".func f(.param .b32 a) { ret; }", "call f;", "0 for 1 results or parameters"),
        (".func f(.param .b64 a) { ret; }", "call f, (v);", "4 bytes for a"),
        (".func f(.reg .b32 a) { ret; }", "call f, (%r0);", "%r0 is passed in a register"),
        (".func f(.param .b32 a) { .reg .b64 d; mov.b64 d, a; ret; }", "call f, (v);",
         "the address of a function's parameter"),
    ],
)  # fmt: skip
def test_calls_that_are_refused(functions, call, reason):
    text = (
        f"{HEAD}{functions}\n.visible .entry k()\n"
        f"{{ .reg .b64 %rd0; .reg .b32 %r0; .param .b32 v;\n{call}\nret; }}"
    )
    with pytest.raises(UnsupportedPtxError) as error:
        kernelbench.ptx.load("k.ptx", text=text)
    assert any(each.reason == reason for each in error.value.obstacles), error.value.obstacles
