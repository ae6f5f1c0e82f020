"""What orders accesses beside an acquire and a release: fences of proxies, and lanes that meet."""

from __future__ import annotations

import numpy as np
import pytest
from test_bulk import WAIT, aligned, map_of

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.shared .align 128 .b8 tile[128];
.shared .align 8 .b64 full;
.shared .align 8 .b64 empty;
.shared .align 4 .b32 slot;
"""
_BEGIN = """
  .reg .b64 %in, %out, %o; .reg .b32 %t, %a, %x, %y, %f, %e; .reg .pred %p, %q;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out];
  mov.u32 %t, %tid.x; mov.b32 %a, tile; mov.b32 %f, full; mov.b32 %e, empty;
  setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%f], 1; mbarrier.init.shared::cta.b64 [%e], 1;
  fence.mbarrier_init.release.cluster;
MADE:"""
_COPY = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%a], [%in], 128, [%f];"

#: A warp reads a tile, and one lane gives it back to a thread that copies over it.
GIVEN_BACK = f"""
.visible .entry given_back(.param .u64 p_in, .param .u64 p_out) .reqntid 64
{{{_BEGIN}
  shl.b32 %x, %t, 2; add.u32 %y, %a, %x; setp.ge.u32 %q, %t, 32;
  @!%q st.shared.b32 [%y], %t;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%q bra COPIES;
  ld.shared.b32 %x, [%y];
  MEET
  @!%p mbarrier.arrive.shared::cta.b64 _, [%e];
  {WAIT.format("%f")}
  ld.shared.b32 %y, [%y]; add.u32 %x, %x, %y;
  mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o; st.global.b32 [%out], %x;
  ret;
COPIES:
  setp.ne.u32 %q, %t, 32; @%q ret;
  {WAIT.format("%e").replace("WAIT", "AGAIN")}
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%f], 128;
  {_COPY}
  ret;
}}
"""


@pytest.mark.parametrize(
    ("meet", "severities"),
    [
        ("bar.warp.sync -1;", set()),
        ("tcgen05.wait::ld.sync.aligned;", {"formal"}),
        ("", {"error"}),
    ],
    ids=["bar.warp.sync", "aligned", "nothing"],
)
def test_a_lane_gives_back_what_its_warp_has_read(meet, severities):
    """PTX has the lanes together at .sync.aligned and does not say that it orders memory."""
    module = kernelbench.ptx.load("lanes.ptx", text=HEAD + GIVEN_BACK.replace("MEET", meet))
    given, out = np.arange(32, dtype=np.uint32) * 77, np.zeros(32, np.uint32)
    report = module.launch("given_back", 1, args=[given, out], check=6)
    found = {(each.finding.kind, each.severity) for each in report.findings}
    assert {severity for _, severity in found} == severities, list(report.lines())
    assert {kind for kind, _ in found} <= {"overwrite", "early-read"}
    assert severities == {"error"} or (out == given + np.arange(32)).all()
    for each in report.findings:
        assert ("orders no memory" in each.finding.text) == (each.severity == "formal")


#: Stores, a fence, and a copy of what was stored by the same thread or by another.
STORED = """
.visible .entry stored(.param .u64 p_out) .reqntid 32
{
  .reg .b64 %out; .reg .b32 %t, %a, %x, %y; .reg .pred %p;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; mov.b32 %a, tile;
  shl.b32 %x, %t, 2; add.u32 %y, %a, %x; st.shared.b32 [%y], %t;
  FENCE
  bar.sync 0;
  setp.ne.u32 %p, %t, 0; @%p ret;
  ACQUIRE
  cp.async.bulk.global.shared::cta.bulk_group [%out], [%a], 128;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  ret;
}
"""
RELEASE = "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;"
ACQUIRE = "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;"


@pytest.mark.parametrize(
    ("release", "acquire", "right"),
    [(RELEASE, ACQUIRE, True), (RELEASE, "", True), ("", ACQUIRE, False), ("", "", False)],
)
def test_a_proxy_fence_in_one_direction(release, acquire, right):
    text = HEAD + STORED.replace("FENCE", release).replace("ACQUIRE", acquire)
    out = np.zeros(32, np.uint32)
    report = kernelbench.ptx.load("stored.ptx", text=text).launch("stored", 1, args=[out], check=3)
    kinds = {each.finding.kind for each in report.errors}
    assert kinds == (set() if right else {"proxy-fence"}), list(report.lines())
    assert not right or out.tolist() == list(range(32))


ACQUIRE_MAP = "fence.proxy.tensormap::generic.acquire.gpu [%map], 128;"
#: A map is changed and acquired by one warp, and used by another behind an mbarrier.
ACQUIRED = f"""
.visible .entry acquired(.param .u64 p_in, .param .u64 p_out, .param .u64 p_map) .reqntid 64
{{{_BEGIN}
  .reg .b64 %map; ld.param.u64 %map, [p_map];
  bar.sync 0;
  setp.eq.u32 %q, %t, 32; @%q bra COPIES; @%p ret;
  tensormap.replace.tile.global_address.global.b1024.b64 [%map], %in;
  fence.proxy.tensormap::generic.release.gpu;
  ACQUIRE
  mbarrier.arrive.shared::cta.b64 _, [%e];
  ret;
COPIES:
  {WAIT.format("%e")}
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%f], 16;
  cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes
    [%a], [%map, {{0}}], [%f];
  {WAIT.format("%f").replace("WAIT", "AGAIN")}
  ld.shared.b32 %x, [%a]; st.global.b32 [%out], %x;
  ret;
}}
"""


@pytest.mark.parametrize(
    ("old", "new", "right"),
    [
        ("ACQUIRE", ACQUIRE_MAP, True),
        ("ACQUIRE", "", False),
        ("fence.proxy.tensormap::generic.release.gpu;", "", False),
    ],
)
def test_a_map_that_another_warp_has_acquired(old, new, right):
    """8.9.5: the proxy fence is on the way, whichever thread executes it."""
    text = HEAD + ACQUIRED.replace(old, new).replace("ACQUIRE", ACQUIRE_MAP)
    given = aligned(128)
    given[:] = np.arange(128)
    out, map_ = np.zeros(1, np.uint32), map_of(aligned(16))
    module = kernelbench.ptx.load("acquired.ptx", text=text)
    report = module.launch("acquired", 1, args=[given, out, map_], check=6)
    kinds = {each.finding.kind for each in report.errors}
    assert kinds == (set() if right else {"tensor-map-proxy"}), list(report.lines())
    assert not right or out.tolist() == [0x03020100]


@pytest.mark.parametrize("copied", [False, True])
def test_a_map_at_null_is_wrong_where_it_is_used(copied):
    """9.7.13: the fence names no access. Warps that make no copy may acquire it with no map."""
    of_null = "mov.b64 %map, 0; fence.proxy.tensormap::generic.acquire.gpu [%map], 128;"
    text = HEAD + ACQUIRED.replace("ACQUIRE", ACQUIRE_MAP)
    copy = "mbarrier.arrive.expect_tx"
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%e];"
    at, add = (copy, of_null + copy) if copied else (arrive, arrive + of_null)
    given = aligned(128)
    out, map_ = np.zeros(1, np.uint32), map_of(aligned(16))
    module = kernelbench.ptx.load("acquired.ptx", text=text.replace(at, add))
    report = module.launch("acquired", 1, args=[given, out, map_], check=3)
    assert bool(report.errors) == copied, list(report.lines())


#: Each warp stores and loads its lanes of tensor memory; the first frees it behind the cluster.
FREED = """
.visible .entry freed(.param .u64 p_out) .reqntid 128 .reqnctapercluster 2
{
  .reg .b64 %out, %o; .reg .b32 %t, %w, %x, %r, %tmem, %at; .reg .pred %q;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; mov.b32 %x, slot;
  setp.ne.u32 %q, %w, 0; @%q bra ALLOCATED;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%x], 32;
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  ld.shared.b32 %tmem, [%x]; shl.b32 %at, %w, 21; SHIFT add.u32 %at, %at, %tmem;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%at], {%t};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r}, [%at];
  WAITS
  ORDER
  barrier.cluster.wait.aligned;
  mov.u32 %x, %ctaid.x; mad.lo.u32 %x, %x, 128, %t;
  mul.wide.u32 %o, %x, 4; add.s64 %out, %out, %o; st.global.b32 [%out], %r;
  @%q ret;
  tcgen05.fence::after_thread_sync;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 32;
  ret;
}
"""
RELAXED = "barrier.cluster.arrive.relaxed.aligned;"


def _freed(order: str, waits: str = "tcgen05.wait::ld.sync.aligned;", shift: str = "") -> str:
    text = FREED.replace("ORDER", order).replace("WAITS", waits).replace("SHIFT", shift)
    return HEAD + text


@pytest.mark.parametrize(
    ("order", "waits", "severities"),
    [
        (f"tcgen05.fence::before_thread_sync; {RELAXED}", True, {"formal"}),  # of the stores
        (f"fence.acq_rel.cluster; {RELAXED}", True, {"formal"}),
        (RELAXED, True, {"formal"}),
        ("tcgen05.fence::before_thread_sync; barrier.cluster.arrive.aligned;", True, set()),
        (RELAXED, False, {"error"}),
    ],
)
def test_tensor_memory_freed_behind_a_relaxed_cluster_barrier(order, waits, severities):
    """9.7.16.6: tcgen05.fence orders with what orders execution, which a relaxed arrival does."""
    wait = "tcgen05.wait::ld.sync.aligned;" if waits else ""
    module = kernelbench.ptx.load("freed.ptx", text=_freed(order, wait))
    out = np.zeros(256, np.uint32)
    report = module.launch("freed", 2, args=[out], check=4)
    found = {(each.finding.kind, each.severity) for each in report.findings}
    assert {severity for _, severity in found} == severities, list(report.lines())
    assert {kind for kind, _ in found} <= {"overwrite"}


@pytest.mark.parametrize(
    ("shift", "severities"),
    [
        ("", set()),
        ("and.b32 %at, %at, 0x1fffff;", {"formal"}),  # the bits that name a warp are left out
        ("xor.b32 %at, %at, 0x600000;", {"error"}),  # they name another warp's lanes
        ("add.u32 %at, %at, 0x100000;", {"error"}),
    ],
)
def test_a_warps_own_lanes(shift, severities):
    """9.7.16.8: a warp reaches its own lanes only."""
    order = "tcgen05.fence::before_thread_sync; barrier.cluster.arrive.aligned;"
    module = kernelbench.ptx.load("shifted.ptx", text=_freed(order, shift=shift))
    out = np.zeros(256, np.uint32)
    report = module.launch("freed", 2, args=[out], check=2)
    found = {(each.finding.kind, each.severity) for each in report.findings}
    assert {severity for _, severity in found} == severities, list(report.lines())
    assert {kind for kind, _ in found} <= {"tmem-bounds"}
    assert severities == {"error"} or out.tolist() == [*range(128)] * 2


ADDRESSES = """
.visible .entry addresses(.param .u64 p_out) .reqntid 1 .reqnctapercluster 2
{
  .reg .b64 %out, %a, %o; .reg .b32 %x, %r; .reg .pred %p;
  ld.param.u64 %out, [p_out]; mov.b64 %a, tile; cvt.u32.u64 %x, %a; cvta.shared.u64 %a, %a;
  mov.u32 %r, %ctaid.x; mul.wide.u32 %o, %r, 16; add.s64 %out, %out, %o;
  st.global.u64 [%out], %a; st.global.u32 [%out+8], %x;
  setp.eq.u32 %p, %r, 7; @%p brkpt;
  ret;
}
"""


def test_a_generic_address_ends_as_its_shared_address():
    """ThunderKittens makes descriptors of generic addresses: ``& 0x3FFFF``."""
    module = kernelbench.ptx.load("addresses.ptx", text=HEAD + ADDRESSES)
    out = np.zeros((2, 2), np.uint64)
    module.launch("addresses", 2, args=[out], check=1).require_clean()
    assert (out[:, 0] & 0xFFFFFF).tolist() == (out[:, 1] & 0xFFFFFF).tolist()
    assert out[0, 0] != out[1, 0]


def test_a_breakpoint_ends_the_launch_where_it_is_reached():
    module = kernelbench.ptx.load("addresses.ptx", text=HEAD + ADDRESSES)
    report = module.launch("addresses", 8, args=[np.zeros((8, 2), np.uint64)], check=1)
    assert [each.finding.kind for each in report.errors] == ["crash"]
    assert report.errors[0].finding.text.startswith("brkpt")
