"""Matrices of warpgroups and tensor memory, and launch control, against models of small integers.

Fragments, core matrices and lanes are those of PTX ISA 9.1's figures (9.7.15, 9.7.16).
"""

from __future__ import annotations

import numpy as np
import pytest

import kernelbench.ptx
from kernelbench.emulator.settings import Emulation

pytestmark = pytest.mark.usefixtures("emulator_runtime")

#: Of core matrices, without swizzle: from one to the next along K, and along M or N.
LEADING, STRIDE = 128, 256
A_BYTES = 128 * 32
VECTORS = 1024  # of 16 bytes: the image of shared memory
#: Kind, N, whether A is in registers.
PRODUCTS = [
    ("e4m3", 8, False), ("e4m3", 40, True), ("e4m3", 256, False), ("f16", 16, False),
    ("f16", 96, True),
]  # fmt: skip

HEAD = f""".version 8.8
.target sm_100a
.address_size 64
.shared .align 128 .b8 image[{16 * VECTORS}];
.shared .align 16 .b8 answer[16];
.shared .align 8 .b64 bar;
.shared .align 4 .b32 slot;
"""
#: 128 threads bring the image to shared memory, for the async proxy.
FILL = "\n  ".join([
    "mul.lo.u32 %x, %t, 16; mov.b32 %a, image; add.u32 %a, %a, %x;",
    "cvt.u64.u32 %o, %x; add.s64 %from, %in, %o;",
    *(
        f"ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%from+{2048 * i}];"
        f" st.shared.v4.b32 [%a+{2048 * i}], {{%v0, %v1, %v2, %v3}};"
        for i in range(VECTORS // 128)
    ),
    "fence.proxy.async.shared::cta;",
])  # fmt: skip
#: %d: descriptor of the tile at an offset of the image.
DESCRIPTOR = (
    "mov.b32 %a, image; add.u32 %a, %a, {offset}; and.b32 %a, %a, 0x3ffff; shr.u32 %a, %a, 4;"
    " cvt.u64.u32 %o, %a; or.b64 {name}, %o, {rest};"
)
TILE = LEADING >> 4 << 16 | STRIDE >> 4 << 32
SCALES = 128 >> 4 << 32
BLACKWELL = 1 << 46


def _descriptor(name: str, offset: int, rest: int) -> str:
    return DESCRIPTOR.format(name=name, offset=offset, rest=hex(rest))


def _registers(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def _begin(name: str, registers: str) -> str:
    return f"""
.visible .entry {name}(.param .u64 p_in, .param .u64 p_out, .param .u64 p_more) .reqntid 128
{{
  .reg .b64 %in, %out, %more, %o, %from, %da, %db; .reg .b32 %t, %a, %x, %b, %w, %v<4>;
  .reg .pred %p, %q, %done; .reg .b64 %sa, %sb; .reg .b32 %tmem, %sfa, %sfb, %lane; {registers}
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; ld.param.u64 %more, [p_more];
  mov.u32 %t, %tid.x; mov.b32 %b, bar; shr.u32 %w, %t, 5;"""


def _stored(count: int) -> str:
    """A thread's registers, one after another."""
    return "\n  ".join([
        f"mul.wide.u32 %o, %t, {4 * count}; add.s64 %out, %out, %o;",
        *(f"st.global.b32 [%out+{4 * i}], %d{i};" for i in range(count)),
    ])  # fmt: skip


def _product(kind: str, columns: int, in_registers: bool) -> str:
    """D = A·B, and then A·B once more on top."""
    count, types = columns // 2, {"e4m3": "k32.f32.e4m3.e4m3", "f16": "k16.f32.f16.f16"}[kind]
    opcode = f"wgmma.mma_async.sync.aligned.m64n{columns}{types}"
    a = "{%v0, %v1, %v2, %v3}" if in_registers else "%da"
    turns = ", 0, 0" if kind == "f16" and not in_registers else ", 0" if kind == "f16" else ""
    fragments = "mul.wide.u32 %o, %t, 16; add.s64 %more, %more, %o; "
    fragments += "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%more];"
    return f"""{_begin(_name(kind, columns, in_registers), f".reg .b32 %d<{count}>;")}
  {FILL}
  bar.sync 0;
  {fragments if in_registers else ""}
  {_descriptor("%da", 0, TILE)}
  {_descriptor("%db", A_BYTES, TILE)}
  setp.ne.u32 %p, 0, 0; setp.eq.u32 %q, 0, 0;
  wgmma.fence.sync.aligned;
  {opcode} {_registers("d", count)}, {a}, %db, %p, 1, 1{turns};
  {opcode} {_registers("d", count)}, {a}, %db, %q, 1, 1{turns};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  {_stored(count)}
  ret;
}}"""


def _name(kind: str, columns: int, in_registers: bool) -> str:
    return f"{kind}_{columns}{'_registers' if in_registers else ''}"


#: Where operands of the scaled product are, and its columns of tensor memory.
B_AT, SCALES_A_AT, SCALES_B_AT, COLUMNS = A_BYTES, A_BYTES + 512, A_BYTES + 1024, 16
ALLOCATE = """setp.ne.u32 %p, %t, 0; @%p bra MADE;
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
MADE:
  mov.b32 %x, slot;
  setp.ne.u32 %q, %w, 0; @%q bra ALLOCATED;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%x], 64;
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  ld.shared.b32 %tmem, [%x];"""
FREE = """tcgen05.fence::before_thread_sync;
  bar.sync 0;
  @%q ret;
  tcgen05.fence::after_thread_sync;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 64;
  ret;"""
INSTRUCTION = 1 << 7 | 1 << 10 | COLUMNS // 8 << 17 | 1 << 27
MMA = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X"
SCALED = f"""{_begin("scaled", f".reg .b32 %d<{COLUMNS}>;")}
  {FILL}
  {ALLOCATE}
  setp.ne.u32 %p, %t, 0; @%p bra ISSUED;
  {_descriptor("%da", 0, TILE | BLACKWELL)}
  {_descriptor("%db", B_AT, TILE | BLACKWELL)}
  {_descriptor("%sa", SCALES_A_AT, SCALES | BLACKWELL)}
  {_descriptor("%sb", SCALES_B_AT, SCALES | BLACKWELL)}
  add.u32 %sfa, %tmem, 32; add.u32 %sfb, %tmem, 36; mov.b32 %x, {INSTRUCTION};
  tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfa], %sa;
  tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfb], %sb;
  {MMA} [%tmem], %da, %db, %x, [%sfa], [%sfb], %p;
  or.b32 %lane, %sfa, 0x40000000;
  {MMA} [%tmem], %da, %db, %x, [%lane], [%sfb], 1;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%b];
ISSUED:
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
  tcgen05.fence::after_thread_sync;
  shl.b32 %lane, %w, 21; add.u32 %lane, %lane, %tmem;
  tcgen05.ld.sync.aligned.32x32b.x16.b32 {_registers("d", COLUMNS)}, [%lane];
  tcgen05.wait::ld.sync.aligned;
  {_stored(COLUMNS)}
  {FREE}
}}"""

#: Shape, registers of a load, lanes above the first.
LOADS = [("32x32b", 16, 0), ("16x64b", 16, 0), ("16x64b", 16, 16), ("16x256b", 4, 0),
         ("16x256b", 4, 16)]  # fmt: skip


def _load(shape: str, repeat: int, half: int) -> str:
    """What 64 columns hold was stored there before."""
    columns = [f"or.b32 %d{i}, %lane, {i};" for i in range(16)]
    more = "\n  ".join(
        f"{' '.join(columns)} add.u32 %x, %lane, {16 * at};"
        f" {' '.join(f'add.u32 %d{i}, %d{i}, {16 * at};' for i in range(16))}"
        f" tcgen05.st.sync.aligned.32x32b.x16.b32 [%sfa+{16 * at}], {_registers('d', 16)};"
        for at in range(4)
    )
    return f"""{_begin(f"load_{shape}_{half}", ".reg .b32 %d<16>; .reg .b32 %e<16>;")}
  {ALLOCATE}
  shl.b32 %sfa, %w, 21; add.u32 %sfa, %sfa, %tmem; shl.b32 %lane, %t, 16;
  {more}
  tcgen05.wait::st.sync.aligned;
  add.u32 %sfa, %sfa, {half << 16};
  tcgen05.ld.sync.aligned.{shape}.x{repeat}.b32 {_registers("e", 16)}, [%sfa+32];
  tcgen05.wait::ld.sync.aligned;
  {_stored(16).replace("%d", "%e")}
  {FREE}
}}"""


#: Two loads into one register, each used without a wait.
AGAIN = f"""{_begin("again", ".reg .b32 %d<2>;")}
  {ALLOCATE}
  shl.b32 %lane, %w, 21; add.u32 %lane, %lane, %tmem; add.u32 %x, %t, 1000;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%lane], {{%t}};
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%lane+1], {{%x}};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%x}}, [%lane];
  mov.b32 %d0, %x;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%x}}, [%lane+1];
  mov.b32 %d1, %x;
  {_stored(2)}
  {FREE}
}}"""

#: A CTA does the work of those that it cancels.
LAUNCH_CONTROL = """
.visible .entry cancel(.param .u64 p_out) .reqntid 1
{
  .reg .b64 %out, %o; .reg .b32 %tile, %b, %r, %phase, %y, %z; .reg .pred %p, %done;
  .reg .b128 %answer;
  ld.param.u64 %out, [p_out]; mov.u32 %tile, %ctaid.x; mov.b32 %b, bar; mov.b32 %r, answer;
  mov.b32 %phase, 0;
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
NEXT:
  mul.wide.u32 %o, %tile, 4; add.s64 %o, %o, %out;
  red.global.add.u32 [%o], 1;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 16;
  clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r], [%b];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], %phase; @!%done bra WAIT;
  ld.shared.b128 %answer, [%r];
  fence.proxy.async.shared::cta;
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p, %answer;
  @!%p ret;
  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%tile, %y, %z, _}, %answer;
  clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %y, %answer;
  setp.ne.u32 %p, %y, %tile; @%p trap;
  xor.b32 %phase, %phase, 1;
  bra NEXT;
}"""
TEXT = "\n".join([
    HEAD, *(_product(*each) for each in PRODUCTS), SCALED, *(_load(*each) for each in LOADS),
    AGAIN, LAUNCH_CONTROL,
])  # fmt: skip


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("tensor.ptx", text=TEXT)


def _image(*tiles: tuple[int, np.ndarray]) -> np.ndarray:
    """Tiles of rows of 32 bytes by core matrices of 8 rows by 16 bytes."""
    image = np.zeros(16 * VECTORS, np.uint8)
    for start, rows in tiles:
        for row, data in enumerate(rows):
            for chunk in range(2):
                at = start + row // 8 * STRIDE + chunk * LEADING + row % 8 * 16
                image[at : at + 16] = data[16 * chunk : 16 * chunk + 16]
    return image


def _coded(kind: str, values: np.ndarray) -> np.ndarray:
    """Small integers as bytes of rows."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint8)
    magnitudes = np.array([0x00, 0x38, 0x40, 0x44], np.uint8)
    return magnitudes[np.abs(values)] | np.where(values < 0, 0x80, 0).astype(np.uint8)


@pytest.mark.parametrize(("kind", "columns", "in_registers"), PRODUCTS)
def test_wgmma(module, kind, columns, in_registers):
    rng = np.random.default_rng(columns)
    depth = {"e4m3": 32, "f16": 16}[kind]
    a, b = (rng.integers(-3, 4, (rows, depth)) for rows in (64, columns))
    coded = _coded(kind, a)
    image = _image((0, coded), (A_BYTES, _coded(kind, b)))
    fragments = np.zeros((128, 4, 4), np.uint8)
    for thread, register in np.ndindex(128, 4):
        row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register % 2)
        at = 4 * (thread % 4) + 16 * (register // 2)  # in bytes
        fragments[thread, register] = coded[row, at : at + 4]
    out = np.zeros((128, columns // 2), np.float32)
    name = _name(kind, columns, in_registers)
    report = module.launch(name, 1, args=[image, out, fragments], check=1)
    assert report.clean, list(report.lines())
    want = 2 * (a @ b.T)
    for thread, register in np.ndindex(*out.shape):
        row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register // 2 % 2)
        column = 8 * (register // 4) + 2 * (thread % 4) + register % 2
        assert out[thread, register] == want[row, column], (thread, register)


def test_scaled_product(module):
    rng = np.random.default_rng(1)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes = [rng.integers(0, 16, (rows, 64)) for rows in (128, COLUMNS)]
    packed = [(each[:, ::2] | each[:, 1::2] << 4).astype(np.uint8) for each in codes]
    scales = [rng.integers(0, 3, (128, 4)) for _ in range(2)]  # 1/2, 1, 2
    image = _image((0, packed[0]), (B_AT, packed[1]))
    for start, of in zip((SCALES_A_AT, SCALES_B_AT), scales, strict=True):
        for row, block in np.ndindex(128, 4):
            image[start + row % 32 * 16 + row // 32 * 4 + block] = 0x30 + 8 * of[row, block]
    out = np.zeros((128, COLUMNS), np.float32)
    report = module.launch("scaled", 1, args=[image, out, image], check=1)
    assert report.clean, list(report.lines())
    # CUTLASS has the descriptor's ID of scales in the address, too.
    assert ("tmem-bounds", "formal") in {(e.finding.kind, e.severity) for e in report.findings}
    a, b = (
        values[code] * (2.0 ** (of[: len(code)] - 1)).repeat(16, axis=1)
        for code, of in zip(codes, scales, strict=True)
    )
    assert (out == 2 * (a @ b.T)).all()


@pytest.mark.parametrize(("shape", "repeat", "half"), LOADS)
def test_loads_of_tensor_memory(module, shape, repeat, half):
    out = np.zeros((128, 16), np.uint32)
    report = module.launch(f"load_{shape}_{half}", 1, args=[out, out, out], check=1)
    assert report.clean, list(report.lines())
    for thread, r in np.ndindex(*out.shape):
        t = thread % 32
        lane, column = {
            "32x32b": (t, r),
            "16x64b": (t // 4 + 8 * (t & 1), (t >> 1 & 1) + 2 * r),
            "16x256b": (t // 4 + 8 * (r >> 1 & 1), 2 * (t % 4) + (r & 1) + 8 * (r // 4)),
        }[shape]
        want = thread // 32 * 32 + half + lane << 16 | 32 + column
        assert out[thread, r] == want, (thread, r)


def test_a_register_that_is_loaded_again(module):
    out = np.zeros((128, 2), np.uint32)
    report = module.launch("again", 1, args=[out, out, out], check=4)
    assert report.clean, list(report.lines())
    assert (out == np.arange(128)[:, None] + [0, 1000]).all()


def test_ctas_that_are_cancelled(module):
    for seed in range(6):
        out = np.zeros(12, np.uint32)
        report = module.launch(
            "cancel", 12, args=[out], check=1, seed=seed, emulation=Emulation(sms=2)
        )
        assert report.clean, list(report.lines())
        assert out.tolist() == [1] * 12
