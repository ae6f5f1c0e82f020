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


PRINTS = (
    HEAD
    + r"""
.extern .func (.param .b32 count) vprintf(.param .b64 format, .param .b64 values);
.extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line,
                           .param .b64 function, .param .b64 size);
.global .align 1 .b8 text[32] = {37, 100, 32, 37, 46, 50, 102, 37, 37, 32, 37, 108, 108, 120, 10};
.global .align 1 .b8 what[4] = {97, 62, 98};
.visible .entry run(.param .u32 wrong)
{
  .local .align 8 .b8 own[24];
  .reg .b64 %a, %t, %d; .reg .b32 %x; .reg .pred %p;
  mov.b64 %a, own; cvta.local.u64 %a, %a; mov.b64 %t, text; cvta.global.u64 %t, %t;
  mov.b32 %x, -7; st.u32 [%a], %x; mov.b64 %d, 0d3FF8000000000000; st.f64 [%a+8], %d;
  mov.b64 %d, 0xabcdef0123; st.u64 [%a+16], %d;
  { .param .b64 p0; .param .b64 p1; .param .b32 made;
    st.param.b64 [p0], %t; st.param.b64 [p1], %a;
    call.uni (made), vprintf, (p0, p1); ld.param.b32 %x, [made]; }
  ld.param.u32 %x, [wrong]; setp.eq.u32 %p, %x, 0; @%p ret;
  mov.b64 %t, what;
  { .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4;
    st.param.b64 [p0], %t; st.param.b64 [p1], %t; st.param.b32 [p2], 12;
    st.param.b64 [p3], %t; st.param.b64 [p4], 1;
    call.uni __assertfail, (p0, p1, p2, p3, p4); }
  ret;
}
"""
)


def test_printf_and_assert(capfd):
    module = kernelbench.ptx.load("prints.ptx", text=PRINTS)
    module.launch("run", 1, 1, [0]).require_clean()
    assert capfd.readouterr().out == "-7 1.50% abcdef0123\n"
    report = module.launch("run", 1, 1, [1])
    assert [each.finding.text for each in report.errors] == ["assertion failed"]
    assert "a>b:12: a>b: assertion `a>b` failed" in capfd.readouterr().err
    assert report.errors[0].finding.access.where.startswith("prints.ptx:")


@pytest.mark.parametrize(
    ("functions", "call", "reason"),
    [
        ("", "call vprintf, (v);", "vprintf is not defined in this module"),
        ("", "call %rd0, (%r0), prototype;", "%r0 is passed in a register"),
        (".func f() { ret; }", "call f, (), prototype;", "operands behind the parameters"),
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


#: Of four kernels, what the last three have or call is refused.
SOME_REFUSED = (
    HEAD
    + """.global .align 8 .u64 table[1] = {by_table};
.func bad() { .reg .b32 %r<3>; vadd.u32.u32.u32 %r0, %r1, %r2; ret; }
.func by_table() { call bad; ret; }
.visible .entry good(.param .u64 p)
{ .reg .b64 %rd0; ld.param.u64 %rd0, [p]; st.global.b32 [%rd0], 7; ret; }
.visible .entry worse() { .reg .b32 %r<3>;
vadd.u32.u32.u32 %r0, %r1, %r2;
vadd.s32.s32.s32 %r0, %r1, %r2; ret; }
.visible .entry calls() { call by_table; ret; }
.visible .entry by_address() { .reg .b64 %rd0; ld.global.u64 %rd0, [table];
f: .callprototype ()_ ();
call %rd0, f; ret; }
"""
)


def test_a_kernel_that_is_never_launched_refuses_nothing():
    module = kernelbench.ptx.load("k.ptx", text=SOME_REFUSED)
    data = np.zeros(1, np.int32)
    module.launch("good", 1, 1, [data], check=1).require_clean()
    assert data[0] == 7
    for kernel, lines in (("worse", [10, 11]), ("calls", [5]), ("by_address", [5])):
        with pytest.raises(UnsupportedPtxError, match=f"^{kernel}: unsupported PTX: vadd") as error:
            module.launch(kernel, 1, 1)
        assert [each.line for each in error.value.obstacles] == lines


def test_the_line_of_the_source_is_named():
    """The innermost, and that which it was inlined into."""
    locations = '.file 1 "in/k.cu"\n.file 2 "in/wrapper.h"\n'
    text = SOME_REFUSED.replace(".global .align", locations + ".global .align", 1).replace(
        "vadd.s32.s32.s32", ".loc 1 40 3\n.loc 2 8 1, function_name $name, inlined_at 1 40 3\n"
        "vadd.s32.s32.s32", 1
    )  # fmt: skip
    with pytest.raises(UnsupportedPtxError, match=r"vadd\.s32\S* at wrapper\.h:8 in k\.cu:40, k"):
        kernelbench.ptx.load("k.ptx", text=text).launch("worse", 1, 1)
