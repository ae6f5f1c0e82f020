"""cp.async in all its sizes, and what is found when its wait is missing."""

from __future__ import annotations

import numpy as np
import pytest

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

KERNEL = """.version 8.8
.target sm_90
.address_size 64
.shared .align 16 .b8 tile[512];
.visible .entry k(.param .u64 p_in, .param .u64 p_out, .param .u32 p_bytes)
{{
  .reg .b64 %in, %out, %o; .reg .b32 %t, %s, %n, %x; .reg .pred %p;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; ld.param.u32 %n, [p_bytes];
  mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 16; add.s64 %in, %in, %o; add.s64 %out, %out, %o;
  mov.u32 %s, tile; mad.lo.u32 %s, %t, 16, %s; setp.eq.u32 %p, %n, 0;
  mov.b32 %x, -1; st.shared.v4.b32 [%s], {{%x, %x, %x, %x}};
  {copy}
  ld.shared.b32 %x, [%s]; st.global.b32 [%out], %x;
  ld.shared.b32 %x, [%s+4]; st.global.b32 [%out+4], %x;
  ld.shared.b32 %x, [%s+8]; st.global.b32 [%out+8], %x;
  ld.shared.b32 %x, [%s+12]; st.global.b32 [%out+12], %x;
  ret;
}}
"""
WAITS = ("cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;")


def _launch(copy: str, size: int, check: int = 2):
    module = kernelbench.ptx.load("copies.ptx", text=KERNEL.format(copy=copy))
    given = np.arange(1, 513, dtype=np.uint16).view(np.uint8)[:512].copy()
    out = np.zeros(512, np.uint8)
    report = module.launch("k", 1, 32, [given, out, size], check=check)
    return report, given.reshape(32, 16), out.reshape(32, 16)


@pytest.mark.parametrize(
    ("opcode", "size", "read"),
    [
        ("cp.async.ca.shared.global [%s], [%in], 4", 4, 4),
        ("cp.async.ca.shared::cta.global.L2::128B [%s], [%in], 8", 8, 8),
        ("cp.async.cg.shared.global [%s], [%in], 16", 16, 16),
        ("cp.async.cg.shared.global [%s], [%in], 16, %n", 16, 7),
        ("cp.async.cg.shared.global [%s], [%in], 16, %p", 16, 0),
        ("cp.async.cg.shared.global [%s], [%in], 16, %p", 16, 16),
    ],
)
def test_sizes(opcode, size, read):
    # Both waits in one kernel: the second has nothing to wait for.
    report, given, out = _launch(f"{opcode}; {' '.join(WAITS)}", read)
    assert report.clean, list(report.lines())
    want = np.full((32, 16), 0xFF, np.uint8)
    want[:, :size] = 0
    want[:, :read] = given[:, :read]
    assert (out == want).all()


def test_a_missing_wait():
    copy = "cp.async.cg.shared.global [%s], [%in], 16; cp.async.commit_group;"
    report, *_ = _launch(copy, 16, check=3)
    assert "early-read" in {each.finding.kind for each in report.errors}
    assert report.errors[0].finding.access.where.startswith("copies.ptx:")
