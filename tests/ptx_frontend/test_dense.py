"""tcgen05.mma of kinds f16, tf32, f8f6f4 and i8, all shapes of tcgen05.ld and st, against models.

The layouts are those of PTX ISA 9.1's figures (9.7.16.2, 9.7.16.4, 9.7.16.8, 9.7.16.10.5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from test_tensor import (
    A_BYTES,
    ALLOCATE,
    BLACKWELL,
    FILL,
    FREE,
    HEAD,
    LEADING,
    STRIDE,
    TILE,
    _begin,
    _descriptor,
    _image,
    _registers,
    _stored,
)

import kernelbench.ptx
from kernelbench.ptx import PtxReport

pytestmark = pytest.mark.usefixtures("emulator_runtime")

A_COLUMN = 32  # of A in tensor memory
D_WORDS = 32
_NUMBERS = {"f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "f8f6f4": {"e4m3": 0, "e5m2": 1},
            "i8": {"u8": 0, "s8": 1}}  # fmt: skip

_RANGES = {"u8": (0, 256), "s8": (-128, 128)}


@dataclass(frozen=True)
class Product:
    """One instruction: types of A and B, and which options it has."""

    kind: str
    a: str
    b: str
    rows: int
    columns: int
    along_a: bool = False  # A's rows run along M
    along_b: bool = False
    a_in_tmem: bool = False
    negate_a: bool = False

    @property
    def name(self) -> str:
        options = [self.along_a, self.along_b, self.a_in_tmem, self.negate_a]
        bits = "".join(str(int(each)) for each in options)
        return f"{self.kind}_{self.a}_{self.b}_{self.rows}_{self.columns}_{bits}"

    @property
    def depth(self) -> int:
        return {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32}[self.kind]

    @property
    def instruction(self) -> int:
        numbers = _NUMBERS[self.kind]
        types = numbers[self.a] << 7 | numbers[self.b] << 10
        options = self.negate_a << 13 | self.along_a << 15 | self.along_b << 16
        types |= (2 if self.kind == "i8" else 1) << 4
        return types | options | self.columns // 8 << 17 | self.rows // 16 << 24


PRODUCTS = [
    Product("f16", "f16", "f16", 128, 32),
    Product("f16", "bf16", "bf16", 64, 24, along_b=True),
    Product("f16", "f16", "f16", 64, 8, along_a=True),
    Product("f16", "bf16", "bf16", 64, 32, a_in_tmem=True),
    Product("f16", "f16", "f16", 128, 16, along_b=True, a_in_tmem=True),
    Product("tf32", "tf32", "tf32", 128, 16),
    Product("tf32", "tf32", "tf32", 64, 8, a_in_tmem=True),
    Product("f8f6f4", "e4m3", "e5m2", 128, 32),
    Product("f8f6f4", "e5m2", "e4m3", 64, 8, negate_a=True),
    Product("i8", "s8", "u8", 128, 32),
    Product("i8", "u8", "s8", 64, 24),
    Product("i8", "s8", "s8", 64, 32, a_in_tmem=True),
]
#: All that is read back is written.
D_TO_TMEM = f"""{" ".join(f"mov.b32 %d{i}, 0;" for i in range(D_WORDS))}
  shl.b32 %lane, %w, 21; add.u32 %lane, %lane, %tmem;
  tcgen05.st.sync.aligned.32x32b.x{D_WORDS}.b32 [%lane], {_registers("d", D_WORDS)};
  tcgen05.wait::st.sync.aligned;
  bar.sync 0;"""
A_TO_TMEM = f"""mul.wide.u32 %o, %t, 32; add.s64 %more, %more, %o;
  ld.global.v4.b32 {{%d0, %d1, %d2, %d3}}, [%more];
  ld.global.v4.b32 {{%d4, %d5, %d6, %d7}}, [%more+16];
  shl.b32 %lane, %w, 21; add.u32 %lane, %lane, %tmem;
  tcgen05.st.sync.aligned.32x32b.x8.b32 [%lane+{A_COLUMN}], {_registers("d", 8)};
  tcgen05.wait::st.sync.aligned;
  bar.sync 0;"""


def _program(product: Product) -> str:
    """D = A·B, and A·B once more on top.

    No tcgen05.fence stands around the commit's wait, and the registers of the load are used before
    tcgen05.wait::ld, as PTX allows.
    """
    opcode = f"tcgen05.mma.cta_group::1.kind::{product.kind}"
    a = f"[%tmem+{A_COLUMN}]" if product.a_in_tmem else "%da"
    return f"""{_begin(product.name, f".reg .b32 %d<{D_WORDS}>;")}
  {FILL}
  {ALLOCATE}
  {D_TO_TMEM}
  {A_TO_TMEM if product.a_in_tmem else ""}
  setp.ne.u32 %p, %t, 0; @%p bra ISSUED;
  {_descriptor("%da", 0, TILE | BLACKWELL)}
  {_descriptor("%db", A_BYTES, TILE | BLACKWELL)}
  mov.b32 %x, {product.instruction};
  {opcode} [%tmem], {a}, %db, %x, %p;
  {opcode} [%tmem], {a}, %db, %x, 1;
  cvt.u64.u32 %o, %b;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%o];
ISSUED:
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
  shl.b32 %lane, %w, 21; add.u32 %lane, %lane, %tmem;
  tcgen05.ld.sync.aligned.32x32b.x32.b32 {_registers("d", D_WORDS)}, [%lane];
  {_stored(D_WORDS)}
  tcgen05.wait::ld.sync.aligned;
  {FREE}
}}"""


#: Shape, its ``.xN`` for 16 registers, lanes above the warp's first.
SHAPES = [("32x32b", 16, 0), ("16x64b", 16, 16), ("16x128b", 8, 0), ("16x128b", 8, 16),
          ("16x256b", 4, 0), ("16x32bx2", 16, 0), ("16x32bx2", 16, 16)]  # fmt: skip
SPLIT = 24  # columns between the halves of 16x32bx2


def _access(shape: str, repeat: int, half: int) -> str:
    """Registers to tensor memory in a shape and back, and 64 columns of it by lanes."""
    split = f", {SPLIT}" if shape == "16x32bx2" else ""
    head = f"tcgen05.{{}}.sync.aligned.{shape}.x{repeat}.b32"
    fill = " ".join(f"mov.b32 %d{i}, -1;" for i in range(64))
    values = " ".join(f"shl.b32 %e{i}, %t, 8; or.b32 %e{i}, %e{i}, {i};" for i in range(16))
    return f"""{_begin(f"access_{shape}_{half}", ".reg .b32 %d<64>; .reg .b32 %e<16>;")}
  {ALLOCATE}
  shl.b32 %sfa, %w, 21; add.u32 %sfa, %sfa, %tmem;
  {fill} {values}
  tcgen05.st.sync.aligned.32x32b.x64.b32 [%sfa], {_registers("d", 64)};
  tcgen05.wait::st.sync.aligned;
  add.u32 %lane, %sfa, {half << 16};
  {head.format("st")} [%lane]{split}, {_registers("e", 16)};
  tcgen05.wait::st.sync.aligned;
  {head.format("ld")} {_registers("e", 16)}, [%lane]{split};
  tcgen05.ld.sync.aligned.32x32b.x64.b32 {_registers("d", 64)}, [%sfa];
  tcgen05.wait::ld.sync.aligned;
  mul.wide.u32 %o, %t, 64; add.s64 %more, %more, %o;
  {" ".join(f"st.global.b32 [%more+{4 * i}], %e{i};" for i in range(16))}
  {_stored(64)}
  {FREE}
}}"""


TEXT = "\n".join([
    HEAD, *(_program(each) for each in PRODUCTS), *(_access(*each) for each in SHAPES),
])  # fmt: skip


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("dense.ptx", text=TEXT)


def _coded(kind: str, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Small integers as elements, in bytes of rows; of tf32 with bits that count for nothing."""
    floats = values.astype(np.float32)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint8)
    if kind == "bf16":
        return (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    if kind == "tf32":
        return (floats.view(np.uint32) | rng.integers(0, 1 << 13, values.shape)).astype(
            np.uint32
        ).view(np.uint8)  # fmt: skip
    if kind == "e5m2":
        return (values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)
    if kind in ("s8", "u8"):
        return values.astype(np.uint8)
    magnitudes = np.array([0x00, 0x38, 0x40, 0x44], np.uint8)
    return magnitudes[np.abs(values)] | np.where(values < 0, 0x80, 0).astype(np.uint8)


def _along(start: int, rows: np.ndarray) -> np.ndarray:
    """A tile of halves whose rows run along M or N: units of eight, eight k of each together."""
    image = np.zeros_like(_image())
    for row, k in np.ndindex(len(rows), 16):
        at = start + row // 8 * STRIDE + k // 8 * LEADING + k % 8 * 16 + row % 8 * 2
        image[at : at + 2] = rows[row, 2 * k : 2 * k + 2]
    return image


def _lane(product: Product, row: int) -> int:
    return row if product.rows == 128 else row // 16 * 32 + row % 16


def _multiplied(module, product: Product, check: int, name: str = "") -> tuple[PtxReport, bool]:
    """The report, and whether D is right."""
    rng = np.random.default_rng(product.rows + product.columns)
    a, b = (
        rng.integers(*_RANGES.get(kind, (-3, 4)), (rows, product.depth))
        for kind, rows in ((product.a, product.rows), (product.b, product.columns))
    )
    coded = [_coded(kind, of, rng) for kind, of in ((product.a, a), (product.b, b))]
    image = np.zeros_like(_image())
    for start, rows, along in zip(
        (0, A_BYTES), coded, (product.along_a, product.along_b), strict=True
    ):
        image |= _along(start, rows) if along else _image((start, rows))
    lanes = np.zeros((128, 32), np.uint8)
    for row, data in enumerate(coded[0]):
        lanes[_lane(product, row)] = data
    if product.a_in_tmem:
        image[:A_BYTES] = 0xFF
    out = np.zeros((128, D_WORDS), np.int32 if product.kind == "i8" else np.float32)
    report = module.launch(name or product.name, 1, args=[image, out, lanes], check=check)
    want = 2 * (a @ b.T) * (-1 if product.negate_a else 1)
    found = out[[_lane(product, row) for row in range(product.rows)], : product.columns]
    return report, bool((found == want).all())


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda each: each.name)
def test_products(module, product):
    report, right = _multiplied(module, product, check=1)
    assert right
    assert report.clean, list(report.lines())
    # Without fences there is no order in PTX's words.
    assert report.findings
    assert {each.severity for each in report.findings} == {"formal"}
    assert all("tcgen05.fence" in each.finding.text for each in report.findings)


@pytest.mark.parametrize("used", [True, False])
def test_registers_that_are_used_were_read(used):
    """Without tcgen05.wait::ld the memory may be freed, formally, behind a use of the registers."""
    product = PRODUCTS[0]
    program = _program(product).replace("tcgen05.wait::ld.sync.aligned;", "")
    if not used:
        program = program.replace(_stored(D_WORDS), "")
    loose = kernelbench.ptx.load("loose.ptx", text="\n".join([HEAD, program]))
    report, right = _multiplied(loose, product, check=3)
    assert right == used
    assert {each.finding.kind for each in report.errors} == (
        set() if used else {"overwrite", "exit"}
    )


def test_what_is_missing_is_no_fence_alone():
    """Formal is only what tcgen05.fence would mend: not a commit, a wait or a proxy fence."""
    product = PRODUCTS[0]
    program = _program(product)
    wait = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;"
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%o];"
    proxy = "fence.proxy.async.shared::cta;"
    kinds = {}
    for name, text in (("wait", wait), ("commit", commit), ("proxy", proxy)):
        assert program.count(text) == 1
        mutant = kernelbench.ptx.load(
            f"{name}.ptx", text="\n".join([HEAD, program.replace(text, "")])
        )
        report, _ = _multiplied(mutant, product, check=3, name=product.name)
        kinds[name] = {each.finding.kind for each in report.errors}
    assert "early-read" in kinds["wait"]
    assert "hang" in kinds["commit"]
    assert "proxy-fence" in kinds["proxy"]


@pytest.mark.parametrize("due", [True, False], ids=["due", "pending"])
def test_a_commit_that_nobody_waits_for(due):
    """As a ring's last ones: formal if a later commit says that its products are complete."""
    product = PRODUCTS[0]
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%o];"
    other = "cvt.u64.u32 %o, %r; tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%o];"
    back = "cvt.u64.u32 %o, %b;"
    program = _program(product)
    begin = "mbarrier.init.shared::cta.b64 [%b], 1;"
    assert program.count(commit) == program.count(begin) == 1
    program = program.replace(begin, f"{begin} mov.b32 %r, other; {begin.replace('%b', '%r')}")
    both = f"{other} {back} {commit}" if due else f"{commit} {other}"
    program = program.replace(commit, both).replace("{", "{ .reg .b32 %r;", 1)
    text = "\n".join([HEAD, ".shared .align 8 .b64 other;", program])
    module = kernelbench.ptx.load("other.ptx", text=text)
    report, right = _multiplied(module, product, check=2, name=product.name)
    severities = {each.severity for each in report.findings if each.finding.kind == "exit"}
    assert right
    assert severities == {"formal" if due else "error"}, list(report.lines())


def _cell(shape: str, thread: int, register: int) -> tuple[int, int]:
    """Lane and column of a register, from the address on."""
    t, r = thread % 32, register
    return {
        "32x32b": (t, r),
        "16x64b": (t // 4 + 8 * (t & 1), (t >> 1 & 1) + 2 * r),
        "16x128b": (t // 4 + 8 * (r & 1), t % 4 + 4 * (r // 2)),
        "16x256b": (t // 4 + 8 * (r >> 1 & 1), 2 * (t % 4) + (r & 1) + 8 * (r // 4)),
        "16x32bx2": (t % 16, r + (t // 16) * SPLIT),
    }[shape]


@pytest.mark.parametrize(("shape", "repeat", "half"), SHAPES)
def test_shapes_of_tensor_memory(module, shape, repeat, half):
    out, back = np.zeros((128, 64), np.uint32), np.zeros((128, 16), np.uint32)
    report = module.launch(f"access_{shape}_{half}", 1, args=[out, out, back], check=1)
    assert report.clean, list(report.lines())
    want = np.full((128, 64), 0xFFFFFFFF, np.uint32)
    for thread, register in np.ndindex(128, 16):
        lane, column = _cell(shape, thread, register)
        want[thread // 32 * 32 + half + lane, column] = thread << 8 | register
        assert back[thread, register] == thread << 8 | register
    assert (out == want).all()
