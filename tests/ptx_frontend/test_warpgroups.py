"""wgmma.wait_group by one warp says that the whole warpgroup's operation is complete."""

from __future__ import annotations

import numpy as np
import pytest

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

WAIT = "wgmma.wait_group.sync.aligned 0;"
#: One thread of four warps says that the stage is free, and a fifth warp fills it again.
ARRIVE = "setp.ne.u32 %p, %t, 0; @!%p mbarrier.arrive.shared::cta.b64 _, [%b];"
RING = """
.version 8.8
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[4096];
.shared .align 8 .b64 empty;
.visible .entry ring(.param .u64 p_out) .reqntid 160
{{
  .reg .b64 %out, %o, %da, %db; .reg .b32 %t, %s, %x, %b, %d<8>; .reg .pred %p, %done;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; mov.b32 %s, tile; mov.b32 %b, empty;
  setp.ne.u32 %p, %t, 0; @!%p mbarrier.init.shared::cta.b64 [%b], 1;
  mad.lo.u32 %x, %t, 4, %s;
FILL:
  st.shared.b32 [%x], 0; add.u32 %x, %x, 640; add.u32 %d0, %s, 4096;
  setp.lt.u32 %p, %x, %d0; @%p bra FILL;
  fence.proxy.async.shared::cta; bar.sync 0;
  setp.ge.u32 %p, %t, 128; @%p bra REFILL;
  shr.u32 %x, %s, 4; cvt.u64.u32 %da, %x; or.b64 %da, %da, {strides};
  add.s64 %db, %da, 128;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16
    {{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}}, %da, %db, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  {end}
  mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o; st.global.b32 [%out], %d0;
  ret;
REFILL:
  mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra REFILL;
  sub.u32 %x, %t, 128; mad.lo.u32 %x, %x, 64, %s; st.shared.b32 [%x], 1; st.shared.b32 [%x+2048], 1;
  ret;
}}
"""


@pytest.mark.parametrize(
    ("end", "right"),
    [(f"{WAIT} {ARRIVE}", True), (f"{ARRIVE} {WAIT}", False)],
    ids=["behind", "before"],
)
def test_one_thread_frees_what_its_warpgroup_reads(end, right):
    strides = (128 >> 4) << 16 | (256 >> 4) << 32
    module = kernelbench.ptx.load("ring.ptx", text=RING.format(strides=strides, end=end))
    out = np.ones(128, np.float32)
    report = module.launch("ring", 1, args=[out], check=8)
    assert report.clean == right, list(report.lines())
    assert right or "overwrite" in {each.finding.kind for each in report.errors}
    assert not right or not out.any()


def test_an_accumulator_that_moves_before_the_wait():
    """nvcc writes such moves at the edges of loops; ptxas gives both registers one place."""
    strides = (128 >> 4) << 16 | (256 >> 4) << 32
    moved = "mov.b32 %moved, %d0; mov.b32 %again, %moved;"
    text = RING.format(strides=strides, end=f"{moved} {WAIT} {ARRIVE}")
    text = text.replace(".reg .pred", ".reg .b32 %moved, %again; .reg .pred")
    text = text.replace("st.global.b32 [%out], %d0", "st.global.b32 [%out], %again")
    out = np.ones(128, np.float32)
    module = kernelbench.ptx.load("moved.ptx", text=text)
    module.launch("ring", 1, args=[out], check=4).require_clean()
    assert not out.any()
    early = text.replace(f"{WAIT} {ARRIVE}", "").replace(
        "  ret;\nREFILL", f"{WAIT} {ARRIVE} ret;\nREFILL"
    )
    kernelbench.ptx.load("early.ptx", text=early).launch("ring", 1, args=[out], check=1)
    assert np.isnan(out).all()
