"""Bulk copies that combine, copies and stores between CTAs of a cluster, against models.

PTX ISA 9.1, 9.7.9.25 (cp.reduce.async.bulk), 9.7.9.27 (of boxes), 9.7.9.12 (st.async), 9.7.13.8
(red.async).
"""

from __future__ import annotations

import numpy as np
import pytest
from test_bulk import WAIT, map_of

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

BYTES = 2048
#: Operations of each type.
OPERATIONS = {
    **dict.fromkeys(("u32", "s32", "u64"), ("add", "min", "max")), "s64": ("min", "max"),
    "b32": ("and", "or", "xor"), "b64": ("and", "or", "xor"),
    "f16": ("add.noftz", "min", "max"), "bf16": ("add.noftz", "min", "max"),
    "f32": ("add",), "f64": ("add",),
}  # fmt: skip
CASES = [(each, kind) for kind, of in OPERATIONS.items() for each in of]
CASES += [("inc", "u32"), ("dec", "u32")]


def _name(operation: str, kind: str) -> str:
    return f"{operation.partition('.')[0]}_{kind}"


def _linear(operation: str, kind: str) -> str:
    """Each of the CTAs combines the same bytes with one part of the result."""
    return f"""
.visible .entry {_name(operation, kind)}(.param .u64 p_in, .param .u64 p_out) .reqntid 128
{{
  .reg .b64 %in, %out, %o; .reg .b32 %t, %a, %x, %y, %z, %w; .reg .pred %p;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x;
  mul.lo.u32 %x, %t, 16; cvt.u64.u32 %o, %x; add.s64 %in, %in, %o;
  mov.u32 %y, %ctaid.x; mul.wide.u32 %o, %y, {BYTES}; add.s64 %in, %in, %o;
  mov.b32 %a, tile; add.u32 %a, %a, %x;
  ld.global.v4.b32 {{%x, %y, %z, %w}}, [%in]; st.shared.v4.b32 [%a], {{%x, %y, %z, %w}};
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p, %t, 0; @%p ret;
  mov.b32 %a, tile;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [%out], [%a], {BYTES};
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  ret;
}}"""


HEAD = f""".version 8.8
.target sm_100a
.address_size 64
.shared .align 128 .b8 tile[{BYTES}];
.shared .align 8 .b64 bar;
"""
#: A box by a map of sixteen bytes, of which a kernel makes the first three words of 32 bits.
BOX = """
.visible .entry box(.param .u64 p_in, .param .u64 p_map, .param .u64 p_tensor) .reqntid 1
{
  .reg .b64 %in, %map; .reg .b32 %a, %x;
  ld.param.u64 %in, [p_in]; ld.param.u64 %map, [p_map]; mov.b32 %a, tile;
  ld.global.b32 %x, [%in]; st.shared.b32 [%a], %x;
  ld.global.b32 %x, [%in+4]; st.shared.b32 [%a+4], %x;
  ld.global.b32 %x, [%in+8]; st.shared.b32 [%a+8], %x;
  mov.b32 %x, -1; st.shared.b32 [%a+12], %x;
  fence.proxy.async.shared::cta;
  cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%map, {0}], [%a];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  ret;
}
"""
#: CTA 0 sends bytes, words and vectors to CTA 1, which waits for all of them.
CLUSTER = f"""
.visible .entry sent(.param .u64 p_in, .param .u64 p_out) .reqntid 32 .reqnctapercluster 2
{{
  .reg .b64 %in, %out, %o, %wide; .reg .b32 %t, %a, %x, %y, %b, %r, %far, %to; .reg .pred %p, %q;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; mov.u32 %r, %cluster_ctarank;
  mov.u32 %t, %tid.x; mov.b32 %b, bar; mov.b32 %a, tile; mul.wide.u32 %o, %t, 4;
  add.s64 %in, %in, %o; setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], {128 + 32 * 28};
MADE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.ne.u32 %q, %r, 0; @%q bra TAKE;
  ld.global.b32 %x, [%in]; mad.lo.u32 %y, %t, 4, %a; st.shared.b32 [%y], %x;
  fence.proxy.async.shared::cta;
  bar.warp.sync -1;
  mapa.shared::cluster.u32 %to, %b, 1; mapa.shared::cluster.u32 %far, %a, 1;
  @%p bra COPIED;
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%far], [%a], 128, [%to];
COPIED:
  mad.lo.u32 %far, %t, 4, %far;
  st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%far+128], %t, [%to];
  mad.lo.u32 %far, %t, 4, %far; cvt.u64.u32 %wide, %t; shl.b64 %wide, %wide, 32;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%far+256], %wide, [%to];
  mad.lo.u32 %far, %t, 8, %far; add.u32 %y, %t, 7;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32
    [%far+512], {{%t, %y, %x, %r}}, [%to];
  bra DONE;
TAKE:
  {WAIT.format("%b").replace("parity.shared", "parity.acquire.cluster.shared")}
  mad.lo.u32 %a, %t, 4, %a; add.s64 %out, %out, %o;
  mov.b32 %r, 0;
NEXT:
  ld.shared.b32 %x, [%a]; st.global.b32 [%out], %x; add.u32 %a, %a, 128; add.s64 %out, %out, 128;
  add.u32 %r, %r, 1; setp.lt.u32 %p, %r, 8; @%p bra NEXT;
DONE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ret;
}}
"""
IN_CLUSTER = [(each, "u32") for each in ("add", "min", "inc", "dec")]
IN_CLUSTER += [("max", "s32"), ("add", "u64"), ("and", "b32"), ("or", "b32"), ("xor", "b32")]


def _in_cluster(operation: str, kind: str) -> str:
    """Both CTAs combine a word a thread, and a buffer, with words of CTA 1, which waits."""
    size = int(kind[1:]) // 8
    word = f"b{8 * size}"
    opcode = ".mbarrier::complete_tx::bytes." + f"{operation}.{kind}"
    return f"""
.visible .entry cluster_{operation}_{kind}(.param .u64 p_start, .param .u64 p_in, .param .u64 p_out)
  .reqntid 32 .reqnctapercluster 2
{{
  .reg .b64 %start, %in, %out, %o; .reg .b32 %t, %a, %y, %b, %r, %far, %to; .reg .pred %p, %q;
  .reg .{word} %x;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; ld.param.u64 %start, [p_start];
  mov.u32 %r, %cluster_ctarank; mov.u32 %t, %tid.x; mov.b32 %b, bar; mov.b32 %a, tile;
  mul.wide.u32 %o, %t, {size}; add.s64 %start, %start, %o; add.s64 %out, %out, %o;
  mad.lo.u32 %y, %r, 32, %t; mul.wide.u32 %o, %y, {size}; add.s64 %in, %in, %o;
  mad.lo.u32 %y, %t, {size}, %a;
  ld.global.{word} %x, [%start]; st.shared.{word} [%y], %x; st.shared.{word} [%y+512], %x;
  ld.global.{word} %x, [%in]; st.shared.{word} [%y+1024], %x;
  setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], {2 * 2 * 32 * size};
MADE:
  fence.proxy.async.shared::cta; // before
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %to, %b, 1; mapa.shared::cluster.u32 %far, %y, 1;
  red.async.relaxed.cluster.shared::cluster{opcode} [%far], %x, [%to];
  @%p bra SENT;
  mapa.shared::cluster.u32 %far, %a, 1; add.u32 %far, %far, 512; add.u32 %a, %a, 1024;
  cp.reduce.async.bulk.shared::cluster.shared::cta{opcode} [%far], [%a], {32 * size}, [%to];
SENT:
  setp.eq.u32 %q, %r, 0; @%q bra DONE;
  {WAIT.format("%b").replace("parity.shared", "parity.acquire.cluster.shared")}
  ld.shared.{word} %x, [%y]; st.global.{word} [%out], %x;
  ld.shared.{word} %x, [%y+512]; st.global.{word} [%out+{32 * size}], %x;
DONE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ret;
}}"""


TEXT = "\n".join([
    HEAD, *(_linear(*each) for each in CASES), BOX, CLUSTER,
    *(_in_cluster(*each) for each in IN_CLUSTER),
])  # fmt: skip
_NUMPY = {
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32,
    "b64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("reductions.ptx", text=TEXT)


def _combined(operation: str, old: np.ndarray, given: np.ndarray) -> np.ndarray:
    if operation == "inc":
        return np.where(old >= given, 0, old + 1).astype(old.dtype)
    if operation == "dec":
        return np.where((old == 0) | (old > given), given, old - 1).astype(old.dtype)
    return {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
        "or": np.bitwise_or, "xor": np.bitwise_xor,
    }[operation](old, given)  # fmt: skip


def _drawn(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Any integers, whose sums wrap; of floats such that sums of three are exact."""
    if kind in ("f16", "f32", "f64"):
        return rng.integers(-400, 400, shape).astype(_NUMPY[kind])
    numbers = np.iinfo(_NUMPY[kind])
    return rng.integers(numbers.min, numbers.max, shape, _NUMPY[kind], endpoint=True)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("operation", "kind"), CASES)
def test_elements(module, operation, kind, seed):
    """Of two CTAs and what is there, in whatever order: it is one result, or one of two."""
    rng = np.random.default_rng(seed)
    plain, count = operation.partition(".")[0], BYTES // int(kind.lstrip("busf")) * 8
    drawn = "f16" if kind == "bf16" else kind
    start, given = _drawn(rng, drawn, (count,)), _drawn(rng, drawn, (2, count))
    if kind == "bf16":
        start, given = np.sign(start) * (abs(start) % 41), np.sign(given) * (abs(given) % 41)
    if kind == "u32":
        given = np.where(rng.random((2, count)) < 0.5, given, start + given % 3)
    out, sent = _stored(kind, start), _stored(kind, given)
    report = module.launch(_name(operation, kind), 2, args=[sent, out], check=2, seed=seed)
    assert report.clean, list(report.lines())
    wants = [_combined(plain, _combined(plain, start, given[at]), given[1 - at]) for at in (0, 1)]
    assert ((out == _stored(kind, wants[0])) | (out == _stored(kind, wants[1]))).all()


def _stored(kind: str, values: np.ndarray) -> np.ndarray:
    """As memory has them: of bf16 the upper halves of f32."""
    if kind != "bf16":
        return values.copy()
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_sums_of_f32_flush(module):
    tiny = np.full(BYTES // 4, 1e-40, np.float32)
    out = np.full_like(tiny, -1e-40)
    module.launch("add_f32", 1, args=[tiny, out], check=1).require_clean()
    assert (out.view(np.uint32) << 1 == 0).all()


def test_the_last_sixteen_bytes_are_combined_as_a_whole(module):
    """A box of four words of f32 on a tensor that has three: the fourth becomes a NaN (H200)."""
    out, given = np.array([1, 2, 3, 4], np.float32), np.array([10, 20, 30], np.float32)
    maps = map_of(out)
    fields = maps[24:32].view(np.uint64), maps[96:98].view(np.uint16)
    fields[0][0], fields[1][0] = 3, 4
    maps[112] = 7  # the element: FLOAT32
    report = module.launch("box", 1, args=[given, maps, out], check=2)
    assert report.clean, list(report.lines())
    assert out[:3].tolist() == [11, 22, 33] and np.isnan(out[3])


def test_what_a_cta_sends_to_another(module):
    given, out = np.arange(100, 132, dtype=np.uint32), np.zeros((8, 32), np.uint32)
    report = module.launch("sent", 2, args=[given, out], check=6)
    assert report.clean, list(report.lines())
    lanes = np.arange(32, dtype=np.uint32)
    vectors = np.stack([lanes, lanes + 7, given, 0 * lanes], axis=1)
    want = [given, lanes, *np.stack([0 * lanes, lanes], axis=1).reshape(2, 32)]
    assert (out == np.concatenate([*want, *vectors.reshape(4, 32)]).reshape(8, 32)).all()


@pytest.mark.parametrize(("operation", "kind"), IN_CLUSTER)
def test_reductions_in_a_cluster(module, operation, kind):
    rng = np.random.default_rng(len(operation))
    start, given = _drawn(rng, kind, (32,)), _drawn(rng, kind, (2, 32))
    given[0] = np.where(rng.random(32) < 0.5, given[0], start + given[0] % 3)
    out = np.zeros((2, 32), start.dtype)
    name = f"cluster_{operation}_{kind}"
    report = module.launch(name, 2, args=[start, given, out], check=4)
    assert report.clean, list(report.lines())
    wants = [_combined(operation, _combined(operation, start, given[at]), given[1 - at])
             for at in (0, 1)]  # fmt: skip
    assert ((out == wants[0]) | (out == wants[1])).all()


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        # Only the reduction of the async proxy needs it.
        ("fence.proxy.async.shared::cta; // before", "", {"proxy-fence"}),
        (WAIT.format("%b").replace("parity.shared", "parity.acquire.cluster.shared"), "",
         {"race", "early-read", "overwrite", "exit"}),
        (" [%far], %x, [%to];", " [%far], %x, [%b];", {"descriptor"}),
    ],
)  # fmt: skip
def test_reductions_in_a_cluster_without_order(old, new, kinds):
    text = _in_cluster("add", "u32")
    assert text.count(old) == 1
    module = kernelbench.ptx.load("wrong.ptx", text=HEAD + text.replace(old, new))
    start, given, out = (np.ones(each, np.uint32) for each in (32, 64, 64))
    report = module.launch("cluster_add_u32", 2, args=[start, given, out], check=4)
    assert {each.finding.kind for each in report.findings} <= kinds and report.findings, [
        *report.lines()
    ]
