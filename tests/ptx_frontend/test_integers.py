"""Integer instructions with a literal, two results or a carry flag, against Python's integers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from conformance import TUPLES, Case, operands_of, results
from integer_model import signed

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n"
_N = 256


def test_functions_of_three_bits():
    tables = (0x00, 0x96, 0xE8, 0xC0, 0x3C, 0xCA, 0x1D, 0xFF)
    cases = [Case("lop3.b32", ("b32",) * 4, f", {table}") for table in tables]
    found = results(cases)
    given = [operands_of("b32", at) for at in range(3)]
    for case, table in zip(cases, tables, strict=True):
        for at in range(TUPLES):
            x, y, z = (each[at] for each in given)
            want = sum(
                (table >> (4 * (x >> i & 1) + 2 * (y >> i & 1) + (z >> i & 1)) & 1) << i
                for i in range(32)
            )
            assert found[case][at] == want, (table, x, y, z)


def test_selection_by_a_sign():
    cases = [
        Case(f"slct.{kind}.{sign}", (kind, kind, kind, sign))
        for kind in ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64")
        for sign in ("s32", "f32")
    ]
    cases += [Case("slct.ftz.f32.f32", ("f32",) * 4), Case("slct.f64.s32", ("f64",) * 3 + ("s32",))]
    found = results(cases)
    for case in cases:
        given = [operands_of(kind, at) for at, kind in enumerate(case.types[1:])]
        for at in range(TUPLES):
            a, b, c = (each[at] for each in given)
            if case.types[3] == "s32":
                chosen = signed(c, "s32") >= 0
            else:
                subnormal = "ftz" in case.opcode and c & 0x7FFFFFFF < 0x800000
                negative = c >> 31 and c != 1 << 31 and not subnormal
                chosen = not negative and c & 0x7FFFFFFF <= 0x7F800000
            assert found[case][at] == (a if chosen else b), (case, a, b, c)


#: 128 bits by four and by two additions with carry, a difference, and a product of 64 bits plus
#: 128; whether a function of bits is nonzero; a branch by index.
WIDE = (
    HEAD
    + """
.visible .entry wide(.param .u64 p_in, .param .u64 p_out)
{
  .reg .b64 %in, %out, %o, %x0, %x1, %y0, %y1, %z0, %z1; .reg .b32 %t, %c, %a<4>, %b<4>, %d<4>, %i;
  .reg .pred %p, %q;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out];
  mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 32; add.s64 %in, %in, %o;
  mul.wide.u32 %o, %t, 88; add.s64 %out, %out, %o;
  ld.global.v2.b64 {%x0, %x1}, [%in]; ld.global.v2.b64 {%y0, %y1}, [%in+16];
  mov.b64 {%a0, %a1}, %x0; mov.b64 {%a2, %a3}, %x1; mov.b64 {%b0, %b1}, %y0;
  mov.b64 {%b2, %b3}, %y1;
  add.cc.u32 %d0, %a0, %b0; addc.cc.u32 %d1, %a1, %b1; addc.cc.s32 %d2, %a2, %b2;
  addc.u32 %d3, %a3, %b3;
  st.global.v2.b32 [%out], {%d0, %d1}; st.global.v2.b32 [%out+8], {%d2, %d3};
  add.cc.s64 %z0, %x0, %y0; addc.u64 %z1, %x1, %y1;
  st.global.b64 [%out+16], %z0; st.global.b64 [%out+24], %z1;
  sub.cc.u32 %d0, %a0, %b0; subc.cc.u32 %d1, %a1, %b1; subc.cc.u32 %d2, %a2, %b2;
  subc.s32 %d3, %a3, %b3;
  st.global.v2.b32 [%out+32], {%d0, %d1}; st.global.v2.b32 [%out+40], {%d2, %d3};
  sub.cc.u64 %z0, %x0, %y0; subc.u64 %z1, %x1, %y1;
  st.global.b64 [%out+48], %z0; st.global.b64 [%out+56], %z1;
  mad.lo.cc.u64 %z0, %x0, %x1, %y0; madc.hi.u64 %z1, %x0, %x1, %y1;
  st.global.b64 [%out+64], %z0; st.global.b64 [%out+72], %z1;
  setp.lt.u32 %q, %t, 0;
  lop3.or.b32 %d0|%p, %a0, %b0, %a1, 0x80, %q; selp.b32 %d1, 7, 9, %p;
  and.b32 %i, %t, 3;
TARGETS: .branchtargets L0, L1, L2, L1;
  brx.idx %i, TARGETS;
L0: add.u32 %d1, %d1, 100; bra END;
L1: add.u32 %d1, %d1, 200; bra END;
L2: add.u32 %d1, %d1, 300;
END:
  st.global.v2.b32 [%out+80], {%d0, %d1};
  ret;
}
"""
)


def test_carries_and_branches_by_index():
    rng = random.Random(5)
    widths = [rng.choice((1, 32, 33, 64, 65, 128)) for _ in range(2 * _N)]
    values = [rng.getrandbits(each) for each in widths]
    values[:4] = [(1 << 128) - 1, 1, 0, (1 << 128) - 1]
    data = np.frombuffer(b"".join(each.to_bytes(16, "little") for each in values), np.uint64)
    out = np.zeros(11 * _N, np.uint64)
    module = kernelbench.ptx.load("wide.ptx", text=WIDE)
    module.launch("wide", 1, _N, [data.copy(), out]).require_clean()
    least = (1 << 64) - 1
    for at in range(_N):
        x, y = values[2 * at : 2 * at + 2]
        row = [int(each) for each in out[11 * at : 11 * at + 11]]
        found = [row[i] | row[i + 1] << 64 for i in range(0, 10, 2)]
        product = (x & least) * (x >> 64) + y
        want = [each % (1 << 128) for each in (x + y, x + y, x - y, x - y, product)]
        assert found == want, (x, y)
        bits = x & y & x >> 32 & 0xFFFFFFFF
        branch = (100, 200, 300, 200)[at % 4]
        assert row[10] == bits | (branch + (7 if bits else 9)) << 32
