"""Bulk copies, boxes of tensors by maps that the kernel writes, and what they complete on."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

BYTES = 512
#: A thread waits for phase 0 of a barrier.
WAIT = """{{ .reg .pred %done;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [{0}], 0; @!%done bra WAIT; }}"""

#: A load for CTAs of pairs, as PTX's text, CUTLASS and ThunderKittens have it.
_BYTES = ".mbarrier::complete_tx::bytes"
_BOX = "cp.async.bulk.tensor.1d"
_TO = ".shared::cluster.global"
PAIRS = {
    "pairs": f"{_BOX}{_TO}{_BYTES}.multicast::cluster.cta_group::2",
    "pairs_cutlass": f"{_BOX}.cta_group::2{_TO}{_BYTES}.multicast::cluster",
    "pairs_thunderkittens": f"{_BOX}{_TO}.tile{_BYTES}.cta_group::2.multicast::cluster",
}
COPIES = f"""
// 512 bytes in, one added to each word, and out. {{load}}
.visible .entry linear(.param .u64 p_in, .param .u64 p_out) .reqntid 128
{{
  .reg .b64 %in, %out; .reg .b32 %t, %a, %x, %b; .reg .pred %p;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out];
  mov.u32 %t, %tid.x; mov.b32 %b, bar; mov.b32 %a, tile;
  setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], {BYTES};
  cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%a], [%in], {BYTES}, [%b];
MADE:
  bar.sync 0;
  {WAIT.format("%b")}
  mad.lo.u32 %a, %t, 4, %a; ld.shared.b32 %x, [%a]; add.u32 %x, %x, 1; st.shared.b32 [%a], %x;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p ret;
  mov.b32 %a, tile;
  cp.async.bulk.global.shared::cta.bulk_group [%out], [%a], {BYTES};
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
  cp.async.bulk.wait_group 0;
  ret;
}}

// The first CTA of a cluster loads for both.
.visible .entry multicast(.param .u64 p_in, .param .u64 p_out) .reqntid 128 .reqnctapercluster 2
{{
  .reg .b64 %in, %out, %o; .reg .b32 %t, %a, %x, %b, %r; .reg .b16 %m; .reg .pred %p, %q;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; mov.u32 %r, %cluster_ctarank;
  mov.u32 %t, %tid.x; mov.b32 %b, bar; mov.b32 %a, tile; mov.b16 %m, 3;
  setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], {BYTES};
MADE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.ne.or.u32 %q, %r, 0, %p; @%q bra LOADED;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%a], [%in], {BYTES}, [%b], %m;
LOADED:
  {WAIT.format("%b")}
  mad.lo.u32 %a, %t, 4, %a; ld.shared.b32 %x, [%a];
  mov.u32 %r, %ctaid.x; mad.lo.u32 %t, %r, 128, %t; mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o;
  st.global.b32 [%out], %x;
  // The other CTA's bytes may be on their way.
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ret;
}}

// A barrier that counts the copies of cp.async.
.visible .entry counted(.param .u64 p_in, .param .u64 p_out) .reqntid 128
{{
  .reg .b64 %in, %out, %o; .reg .b32 %t, %a, %x, %b; .reg .pred %p;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out];
  mov.u32 %t, %tid.x; mov.b32 %b, bar; mov.b32 %a, tile; mad.lo.u32 %a, %t, 4, %a;
  mul.wide.u32 %o, %t, 4; add.s64 %in, %in, %o; add.s64 %out, %out, %o;
  setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%b], 128;
MADE:
  bar.sync 0;
  cp.async.ca.shared.global [%a], [%in], 4;
  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%b];
  {WAIT.format("%b")}
  xor.b32 %x, %t, 127; mov.b32 %a, tile; mad.lo.u32 %a, %x, 4, %a;
  ld.shared.b32 %x, [%a]; st.global.b32 [%out], %x;
  ret;
}}
"""


def _paired(name: str, opcode: str) -> str:
    """Rank 1 loads a box for four CTAs; the even one of each pair is told, twice."""
    return f"""
.visible .entry {name}(.param .u64 p_map, .param .u64 p_out) .reqntid 16 .reqnctapercluster 4
{{
  .reg .b64 %map, %out; .reg .b32 %t, %a, %x, %b, %r, %to, %odd; .reg .b16 %m; .reg .b64 %o;
  .reg .pred %p, %q;
  ld.param.u64 %map, [p_map]; ld.param.u64 %out, [p_out]; mov.u32 %r, %cluster_ctarank;
  mov.u32 %t, %tid.x; mov.b32 %b, bar; mov.b32 %a, tile; mov.b16 %m, 15; and.b32 %odd, %r, 1;
  setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
  setp.ne.u32 %q, %odd, 0; @%q bra MADE;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 32;
MADE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.ne.or.u32 %q, %r, 1, %p; @%q bra LOADED;
  mapa.shared::cluster.u32 %to, %b, 0;
  {opcode}
    [%a], [%map, {{0}}], [%to], %m;
LOADED:
  setp.ne.u32 %q, %odd, 0; @%q bra TOLD;
  {WAIT.format("%b")}
TOLD:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  add.u32 %a, %a, %t; ld.shared.u8 %x, [%a];
  mad.lo.u32 %t, %r, 16, %t; cvt.u64.u32 %o, %t; add.s64 %out, %out, %o; st.global.u8 [%out], %x;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ret;
}}"""


def _boxes(rank: int, group: str = "") -> str:
    """Loads a box by one map and stores it by another; both are written here, field by field."""
    dims, coordinates = range(rank), ", ".join(f"%c{d}" for d in range(rank))
    to = ", ".join(f"%e{d}" for d in range(rank))
    fields = []
    for name in ("source", "target"):
        pointer = {"source": "%in", "target": "%out"}[name]
        replace = "tensormap.replace.tile"
        fields += [
            f"mov.b32 %m, {name};",
            f"{replace}.global_address.shared::cta.b1024.b64 [%m], {pointer};",
            f"{replace}.rank.shared::cta.b1024.b32 [%m], {rank - 1};",
        ]
        for d in dims:
            fields += [
                f"ld.global.b32 %x, [%form+{4 * d}];",
                f"{replace}.global_dim.shared::cta.b1024.b32 [%m], {d}, %x;",
                f"ld.global.b32 %x, [%form+{4 * (5 + d)}];",
                f"{replace}.box_dim.shared::cta.b1024.b32 [%m], {d}, %x;",
                f"{replace}.element_stride.shared::cta.b1024.b32 [%m], {d}, 1;",
            ]
            if d:
                fields += [
                    f"ld.global.b64 %s, [%form+{40 + 8 * (d - 1)}];",
                    f"{replace}.global_stride.shared::cta.b1024.b64 [%m], {d - 1}, %s;",
                ]
        fields += [
            f"{replace}.elemtype.shared::cta.b1024.b32 [%m], 2;",
            f"{replace}.interleave_layout.shared::cta.b1024.b32 [%m], 0;",
            f"{replace}.swizzle_mode.shared::cta.b1024.b32 [%m], 0;",
            f"{replace}.fill_mode.shared::cta.b1024.b32 [%m], 0;",
        ]
    newline = "\n  "
    return f"""
.visible .entry box{rank}(.param .u64 p_in, .param .u64 p_out, .param .u64 p_form,
                          .param .u64 p_maps, .param .u32 p_bytes) .reqntid 32
{{
  .reg .b64 %in, %out, %form, %maps, %s, %first, %second; .reg .b32 %t, %a, %x, %b, %m, %n, %o;
  .reg .b32 %c<5>, %e<5>; .reg .pred %p;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; ld.param.u64 %form, [p_form];
  ld.param.u64 %maps, [p_maps]; ld.param.u32 %n, [p_bytes];
  mov.u32 %t, %tid.x; mov.b32 %b, bar; mov.b32 %a, tile;
  // Valid maps to begin with: fields replace those of a map.
  mul.lo.u32 %o, %t, 4; cvt.u64.u32 %s, %o; add.s64 %first, %maps, %s;
  ld.global.b32 %x, [%first]; mov.b32 %m, source; add.u32 %m, %m, %o; st.shared.b32 [%m], %x;
  mov.b32 %m, target; add.u32 %m, %m, %o; st.shared.b32 [%m], %x;
  add.s64 %first, %maps, 128; add.s64 %second, %maps, 256;
  bar.warp.sync -1;
  setp.ne.u32 %p, %t, 0; @%p bra WRITTEN;
  {newline.join(fields)}
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
WRITTEN:
  bar.warp.sync -1;
  mov.b32 %m, source;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%first], [%m], 128;
  mov.b32 %m, target;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%second], [%m], 128;
  fence.proxy.tensormap::generic.acquire.gpu [%first], 128;
  fence.proxy.tensormap::generic.acquire.gpu [%second], 128;
  @%p ret;
  {newline.join(f"ld.global.b32 %c{d}, [%form+{72 + 4 * d}];" for d in dims)}
  {newline.join(f"ld.global.b32 %e{d}, [%form+{92 + 4 * d}];" for d in dims)}
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], %n;
  cp.async.bulk.tensor.{rank}d.shared::cta.global.tile.mbarrier::complete_tx::bytes
    [%a], [%first, {{{coordinates}}}], [%b];
  {WAIT.format("%b")}
  cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%second, {{{to}}}], [%a];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  ret;
}}"""


HEAD = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 128 .b8 tile[8192];
.shared .align 128 .b8 source[128];
.shared .align 128 .b8 target[128];
.shared .align 8 .b64 bar;
"""
TEXT = "\n".join([
    HEAD, COPIES, *(_paired(*each) for each in PAIRS.items()), *map(_boxes, range(1, 6)),
])  # fmt: skip


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("bulk.ptx", text=TEXT)


def test_bytes_in_and_out(module):
    given, out = np.arange(128, dtype=np.uint32) * 77, np.zeros(128, np.uint32)
    report = module.launch("linear", 1, args=[given, out], check=4)
    assert report.clean, list(report.lines())
    assert (out == given + 1).all()


@pytest.mark.parametrize("fence", ["", "fence.proxy.async.shared::cta;"])
def test_an_initialization_that_the_copy_may_not_see(fence):
    """Formal without a fence: compilers and kernels that are right have none (docs/ptx.md)."""
    text = "\n".join([HEAD, COPIES]).replace("fence.mbarrier_init.release.cluster;", fence)
    changed = kernelbench.ptx.load("unfenced.ptx", text=text)
    for name, ctas in (("linear", 1), ("multicast", 2)):
        given, out = np.arange(128, dtype=np.uint32), np.zeros(128 * ctas, np.uint32)
        report = changed.launch(name, ctas, args=[given, out], check=4)
        assert report.clean, list(report.lines())
        seen = [each for each in report.findings if each.finding.kind == "proxy-fence"]
        assert bool(seen) == (not fence)
        assert all(each.severity == "formal" for each in seen)
        assert all("mbarrier_init or fence.proxy.async" in each.finding.text for each in seen)


@pytest.mark.parametrize("fence", ["", "fence.mbarrier_init.release.cluster;"])
def test_a_relaxed_arrival_hands_fenced_initializations_on(fence):
    arrive = "barrier.cluster.arrive.aligned;"
    text = "\n".join([HEAD, COPIES])
    text = text.replace(arrive, arrive.replace("arrive", "arrive.relaxed"), 1)
    text = text.replace("fence.mbarrier_init.release.cluster;", fence)
    changed = kernelbench.ptx.load("relaxed.ptx", text=text)
    given, out = np.arange(128, dtype=np.uint32), np.zeros(256, np.uint32)
    report = changed.launch("multicast", 2, args=[given, out], check=4)
    kinds = {each.finding.kind for each in report.errors}
    assert ("barrier-state" in kinds) == (not fence), list(report.lines())
    assert fence == "" or report.clean


def test_one_load_for_a_cluster(module):
    given, out = np.arange(128, dtype=np.uint32) * 77, np.zeros(512, np.uint32)
    report = module.launch("multicast", 4, args=[given, out], check=4)
    assert report.clean, list(report.lines())
    assert (out.reshape(4, 128) == given).all()


@pytest.mark.parametrize("name", PAIRS)
def test_one_load_for_pairs(module, name):
    """9.7.9.27.1.2: each signal goes to the CTA of its pair as even as the barrier's."""
    given = np.arange(100, 116, dtype=np.uint8)
    maps = map_of(given)
    out = np.zeros((4, 16), np.uint8)
    report = module.launch(name, 4, args=[maps, out], check=6, memory={"given": given})
    assert report.clean, list(report.lines())
    assert (out == given).all()


def test_a_barrier_counts_copies(module):
    given, out = np.arange(128, dtype=np.uint32) * 77, np.zeros(128, np.uint32)
    report = module.launch("counted", 1, args=[given, out], check=4)
    assert report.clean, list(report.lines())
    assert (out == given[::-1]).all()


@pytest.mark.parametrize(
    ("arrival", "found"), [("mbarrier.arrive.shared::cta.b64 _, [%b];", set()), ("", {"hang"})]
)
def test_a_barrier_counts_copies_beside_its_arrivals(arrival, found):
    """Without ``.noinc``, as ``cuda::memcpy_async`` has it."""
    noinc = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%b];"
    assert COPIES.count(noinc) == 1
    text = COPIES.replace(noinc, f"cp.async.mbarrier.arrive.shared::cta.b64 [%b]; {arrival}")
    module = kernelbench.ptx.load("beside.ptx", text="\n".join([HEAD, text]))
    given, out = np.arange(128, dtype=np.uint32) * 77, np.zeros(128, np.uint32)
    report = module.launch("counted", 1, args=[given, out], check=4)
    assert {each.finding.kind for each in report.findings} == found, list(report.lines())
    assert found or (out == given[::-1]).all()


class _Map(ctypes.Structure):
    """``MapImage`` of the runtime."""

    _fields_ = (
        ("magic", ctypes.c_uint64), ("changed_by_hosts", ctypes.c_uint64),
        ("address", ctypes.c_uint64), ("dims", ctypes.c_uint64 * 5),
        ("strides", ctypes.c_uint64 * 4), ("box", ctypes.c_uint16 * 5),
        ("element_strides", ctypes.c_uint8 * 5), ("rank", ctypes.c_uint8),
        ("rest", ctypes.c_uint8 * 12),
    )  # fmt: skip


def aligned(size: int) -> np.ndarray:
    """Zeros that begin at a multiple of 128 bytes."""
    room = np.zeros(size + 128, np.uint8)
    return room[-room.ctypes.data % 128 :][:size]


def map_of(tensor: np.ndarray) -> np.ndarray:
    """A map of one dimension of 16 bytes."""
    one = _Map(0x70616D2D726F736E, address=tensor.ctypes.data, rank=1)
    one.dims[0], one.box[0], one.element_strides[0] = 16, 16, 1
    found = aligned(128)
    found[:] = np.frombuffer(bytes(one), np.uint8)
    return found


@pytest.mark.parametrize("rank", range(1, 6))
def test_boxes_of_tensors(module, rank):
    rng = np.random.default_rng(rank)
    dims = [int(each) for each in rng.integers(5, 9, rank)]  # innermost first
    dims[0] = 24
    box = [int(each) for each in rng.integers(2, 5, rank)]
    box[0] = 8
    shape = dims[::-1]
    given = rng.integers(1, 1 << 32, shape, dtype=np.uint32)
    for schedule in range(6):
        # Partly outside on either side: zeros come in, and nothing goes out.
        # Only loads start below 0; along the contiguous dimension all start at 16 bytes' multiples.
        start, to = (
            [
                int(rng.integers((1 - b) * outside, d)) // (1 if at else 4) * (1 if at else 4)
                for at, (b, d) in enumerate(zip(box, dims, strict=True))
            ]
            for outside in (True, False)
        )
        out = np.full(shape, 7, np.uint32)
        maps = aligned(384)
        # Fields replace those of a map, or fill one of zeros, as Triton has them do.
        if schedule % 2:
            maps[:128] = map_of(given)
        strides = [each * 4 for each in itertools.accumulate(dims, lambda a, b: a * b)]
        form = _form(dims, box, strides, start, to)
        args = [given, out, form, maps, 4 * int(np.prod(box))]
        report = module.launch(f"box{rank}", 1, args=args, check=1, seed=schedule)
        assert report.clean, list(report.lines())
        assert (out == _expected(given, dims, box, start, to)).all(), (start, to)


def test_fields_of_a_map_without_a_warp_barrier_are_formal():
    """As Triton writes its descriptors: the copy comes once all lanes are there."""
    text = TEXT.replace("WRITTEN:\n  bar.warp.sync -1;", "WRITTEN:")
    assert text != TEXT
    module = kernelbench.ptx.load("bulk.ptx", text=text)
    dims, box = [24, 8], [8, 2]
    given = np.arange(24 * 8, dtype=np.uint32).reshape(8, 24)
    out, maps = np.zeros_like(given), aligned(384)
    form = _form(dims, box, [96, 768], [0, 0], [8, 4])
    report = module.launch("box2", 1, args=[given, out, form, maps, 64], check=8)
    assert {(each.finding.kind, each.severity) for each in report.findings} == {("race", "formal")}
    assert (out == _expected(given, dims, box, [0, 0], [8, 4])).sum() >= 16


def _form(dims, box, strides, start, to) -> np.ndarray:
    """What the kernel makes the maps of, at the offsets that it reads."""

    def padded(values, count):
        return [*values, *[0] * (count - len(values))]

    words = np.array([*padded(dims, 5), *padded(box, 5)], np.uint32).tobytes()
    words += np.array(padded(strides[: len(dims) - 1], 4), np.uint64).tobytes()
    words += np.array([*padded(start, 5), *padded(to, 5)], np.int32).tobytes()
    return np.frombuffer(words, np.uint8).copy()


def _expected(given, dims, box, start, to) -> np.ndarray:
    out = np.full_like(given, 7)
    for offset in itertools.product(*map(range, box)):
        here = [s + o for s, o in zip(start, offset, strict=True)]
        there = [s + o for s, o in zip(to, offset, strict=True)]
        if all(0 <= at < size for at, size in zip(there, dims, strict=True)):
            inside = all(0 <= at < size for at, size in zip(here, dims, strict=True))
            out[tuple(there[::-1])] = given[tuple(here[::-1])] if inside else 0
    return out
