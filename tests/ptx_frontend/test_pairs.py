"""tcgen05.mma by pairs of CTAs, and with one power of two for 32 elements, against models.

The layouts are those of PTX ISA 9.1's figures (9.7.16.3, 9.7.16.10.5, 9.7.16.10.7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from test_dense import D_TO_TMEM, D_WORDS
from test_dense import _coded as _coded_dense
from test_tensor import (
    A_BYTES,
    ALLOCATE,
    BLACKWELL,
    FILL,
    FREE,
    HEAD,
    SCALES,
    TILE,
    VECTORS,
    _begin,
    _descriptor,
    _image,
    _registers,
    _stored,
)

import kernelbench.ptx
from kernelbench.ptx import PtxReport

pytestmark = pytest.mark.usefixtures("emulator_runtime")

B_AT, SCALES_A_AT, SCALES_B_AT = A_BYTES, 2 * A_BYTES, 2 * A_BYTES + 512
IMAGE = 16 * VECTORS
#: Bits of exponent and of mantissa.
_SMALL = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}
_NUMBERS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}


@dataclass(frozen=True)
class Product:
    """One instruction, by ``group`` CTAs; ids say which bytes of a word are the scales."""

    kind: str
    a: str
    b: str
    rows: int
    columns: int
    group: int = 2
    scale_a: int = 0
    scale_b: int = 0
    suffix: str = ""

    @property
    def scaled(self) -> bool:
        return self.kind.startswith("mx")

    @property
    def name(self) -> str:
        ids = f"{self.scale_a}{self.scale_b}"
        return f"{self.kind}_{self.a}_{self.b}_{self.rows}_{self.columns}_{self.group}_{ids}"

    @property
    def depth(self) -> int:
        return {"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}.get(self.kind, 32)

    @property
    def opcode(self) -> str:
        scaled = f".block_scale{self.suffix}" if self.scaled else ""
        return f"tcgen05.mma.cta_group::{self.group}.kind::{self.kind}{scaled}"

    @property
    def instruction(self) -> int:
        types = _NUMBERS[self.a] << 7 | _NUMBERS[self.b] << 10
        if self.kind.startswith("mxf4"):
            types = 1 << 7 | 1 << 10
        if not self.scaled:
            return 1 << 4 | types | self.columns // 8 << 17 | self.rows // 16 << 24
        ids = self.scale_b << 4 | self.scale_a << 29
        return types | ids | self.columns // 8 << 17 | 1 << 23 | self.rows // 128 << 27


PRODUCTS = [
    Product("f16", "f16", "f16", 256, 32),
    Product("f16", "bf16", "bf16", 128, 32),
    Product("tf32", "tf32", "tf32", 256, 16),
    Product("tf32", "tf32", "tf32", 128, 16),
    Product("f8f6f4", "e4m3", "e5m2", 256, 32),
    Product("f8f6f4", "e5m2", "e4m3", 128, 16),
    Product("f8f6f4", "e2m1", "e3m2", 64, 24, group=1),
    Product("f8f6f4", "e2m3", "e4m3", 128, 16, group=1),
    Product("mxf8f6f4", "e4m3", "e4m3", 128, 24, 1),
    Product("mxf8f6f4", "e5m2", "e2m1", 128, 32, 1, 3, 1, ".scale_vec::1X"),
    Product("mxf8f6f4", "e4m3", "e3m2", 256, 32, 2, 2, 3, ".block32"),
    Product("mxf4", "e2m1", "e2m1", 128, 8, 1, 2, 0),
    Product("mxf4", "e2m1", "e2m1", 256, 32, 2, 0, 2, ".scale_vec::2X"),
    Product("mxf4nvf4", "e2m1", "e2m1", 128, 16, 1, 0, 2, ".block32"),
]


def _program(product: Product) -> str:
    """D = A·B, and A·B once more on top; the even CTA issues for both."""
    group = f"cta_group::{product.group}"
    begin = _begin(product.name, f".reg .b32 %d<{D_WORDS}>, %r; .reg .b16 %m;")
    begin = begin.replace(".reqntid 128", f".reqntid 128 .reqnctapercluster {product.group}")
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    scales, at = "", ""
    if product.scaled:
        scales = f"""{_descriptor("%sa", SCALES_A_AT, SCALES | BLACKWELL)}
  {_descriptor("%sb", SCALES_B_AT, SCALES | BLACKWELL)}
  add.u32 %sfa, %tmem, 32; add.u32 %sfb, %tmem, 36;
  tcgen05.cp.{group}.32x128b.warpx4 [%sfa], %sa;
  tcgen05.cp.{group}.32x128b.warpx4 [%sfb], %sb;"""
        at = " [%sfa], [%sfb],"
    commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
    commit += ".multicast::cluster.b64 [%b], %m;" if product.group == 2 else ".b64 [%b];"
    return f"""{begin}
  mov.u32 %r, %cluster_ctarank;
  mul.wide.u32 %o, %r, {IMAGE}; add.s64 %in, %in, %o;
  mul.wide.u32 %o, %r, {128 * 4 * D_WORDS}; add.s64 %out, %out, %o;
  {FILL}
  {ALLOCATE.replace("cta_group::1", group)}
  {D_TO_TMEM}
  {meet}
  or.b32 %x, %t, %r; setp.ne.u32 %p, %x, 0; @%p bra ISSUED;
  {scales}
  {_descriptor("%da", 0, TILE | BLACKWELL)}
  {_descriptor("%db", B_AT, TILE | BLACKWELL)}
  mov.b32 %x, {product.instruction}; mov.b16 %m, 3;
  {product.opcode} [%tmem], %da, %db, %x,{at} %p;
  {product.opcode} [%tmem], %da, %db, %x,{at} 1;
  {commit}
ISSUED:
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%b], 0; @!%done bra WAIT;
  tcgen05.fence::after_thread_sync;
  shl.b32 %lane, %w, 21; add.u32 %lane, %lane, %tmem;
  tcgen05.ld.sync.aligned.32x32b.x{D_WORDS}.b32 {_registers("d", D_WORDS)}, [%lane];
  tcgen05.wait::ld.sync.aligned;
  {_stored(D_WORDS)}
  {meet}
  {FREE.replace("cta_group::1", group)}
}}"""


TEXT = "\n".join([HEAD, *map(_program, PRODUCTS)])


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("pairs.ptx", text=TEXT)


def _value(kind: str, code: int) -> float:
    exponents, mantissas = _SMALL[kind]
    exponent, mantissa = code >> mantissas & (1 << exponents) - 1, code & (1 << mantissas) - 1
    size = (mantissa + (exponent > 0) * 2.0**mantissas) * 2.0 ** (
        max(exponent, 1) - (1 << exponents - 1) + 1 - mantissas
    )
    return -size if code >> exponents + mantissas else size


def _codes(kind: str, values: np.ndarray) -> np.ndarray:
    found = {_value(kind, code): code for code in range(1 << 1 + sum(_SMALL[kind]))}
    return np.vectorize(found.__getitem__, otypes=[np.uint8])(values)


def _rows(product: Product, kind: str, values: np.ndarray) -> np.ndarray:
    """Rows of 32 bytes: sixteen elements of 4 or 6 bits in sixteen bytes, or 64 of 4 bits."""
    if kind not in _SMALL:
        return _coded_dense(kind, values, np.random.default_rng(2)).reshape(len(values), 32)
    codes, bits = _codes(kind, values), 1 + sum(_SMALL[kind])
    if bits == 8:
        return codes
    if product.kind.startswith("mxf4"):
        return codes[:, ::2] | codes[:, 1::2] << 4
    groups = codes.reshape(-1, 16, 1) >> np.arange(bits) & 1
    packed = np.packbits(groups.reshape(-1, 16 * bits), axis=1, bitorder="little")
    return np.pad(packed, ((0, 0), (0, 16 - 2 * bits)), constant_values=0xA5).reshape(-1, 32)


def _with_scales(image: np.ndarray, start: int, factors: np.ndarray, first: int) -> None:
    """Exponents of each row into bytes ``first`` … of its word; the other bytes are anything."""
    rng = np.random.default_rng(3)
    image[start : start + 512] = rng.integers(0, 256, 512)
    for row, of in enumerate(factors):
        at = start + row % 32 * 16 + row // 32 * 4 + first
        image[at : at + len(of)] = 127 + of


def _multiplied(module, product: Product, check: int) -> tuple[PtxReport, np.ndarray, np.ndarray]:
    """The report, what tensor memory has of D, and what it should have."""
    rng = np.random.default_rng(product.rows + product.columns + product.scale_a)
    most = {"e2m1": 3, "e2m3": 3}.get(product.a, 3)
    a, b = (
        rng.integers(-most, most + 1, (rows, product.depth))
        for rows in (product.rows, product.columns)
    )
    per = {"mxf8f6f4": 1}.get(product.kind, 2)
    factors = [rng.integers(-2, 3, (rows, per)) for rows in (product.rows, product.columns)]
    images = np.zeros((product.group, IMAGE), np.uint8)
    of_a, of_b = product.rows // product.group, product.columns // product.group
    for rank, image in enumerate(images):
        mine = [a[rank * of_a :][:of_a], b[rank * of_b :][:of_b]]
        image |= _image(
            (0, _rows(product, product.a, mine[0])), (B_AT, _rows(product, product.b, mine[1]))
        )
        if product.scaled:
            _with_scales(image, SCALES_A_AT, factors[0][rank * of_a :][:of_a], product.scale_a)
            _with_scales(image, SCALES_B_AT, factors[1], product.scale_b)
    out = np.zeros((product.group, 128, D_WORDS), np.float32)
    report = module.launch(product.name, product.group, args=[images, out, out], check=check)
    if product.scaled:
        blocks = product.depth // per
        a, b = (
            each * (2.0**of).repeat(blocks, axis=1)
            for each, of in zip((a, b), factors, strict=True)
        )
    return report, _gathered(product, out), 2 * (a @ b.T)


def _gathered(product: Product, out: np.ndarray) -> np.ndarray:
    """D by rows and columns, from the lanes and columns of tensor memory."""
    rows, n = product.rows // product.group, product.columns
    if rows == 64 and product.group == 2:
        halves = out[:, :64, : n // 2], out[:, 64:, : n // 2]
        return np.concatenate(halves, axis=2).reshape(product.rows, n)
    lanes = [row if rows == 128 else row // 16 * 32 + row % 16 for row in range(rows)]
    return out[:, lanes, :n].reshape(product.rows, n)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda each: each.name)
def test_products(module, product):
    report, found, want = _multiplied(module, product, check=2)
    assert (found == want).all()
    assert report.clean, list(report.lines())


@pytest.mark.parametrize("due", [True, False], ids=["due", "pending"])
def test_a_commit_to_both_ctas_that_nobody_waits_for(due):
    """As a ring's last ones: formal if each CTA has seen a later commit of the same products."""
    product = PRODUCTS[0]
    commit = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
    commit += ".multicast::cluster.b64 [%b], %m;"
    other = commit.replace("%b]", "%ring]")
    init = "mbarrier.init.shared::cta.b64 [%b], 1;"
    program = _program(product)
    assert program.count(commit) == program.count(init) == 1
    program = program.replace(commit, f"{other} {commit}" if due else f"{commit} {other}")
    program = program.replace(init, f"{init} {init.replace('%b', '%ring')}")
    program = program.replace("mov.b32 %b, bar;", "mov.b32 %b, bar; mov.b32 %ring, ring;")
    program = program.replace(".reg .b16 %m;", ".reg .b16 %m; .reg .b32 %ring;")
    text = "\n".join([HEAD, ".shared .align 8 .b64 ring;", program])
    report, found, want = _multiplied(kernelbench.ptx.load("ring.ptx", text=text), product, check=2)
    assert (found == want).all()
    severities = {each.severity for each in report.findings if each.finding.kind == "exit"}
    assert severities == {"formal" if due else "error"}, list(report.lines())
