"""wmma of every shape and type: load, mma and store against products of whole numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from test_matrices import BITS, HEAD, _code, _drawn

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

_NUMBERS = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}


@dataclass(frozen=True)
class Case:
    """One instruction of each: element types of A and B, of C, of D; layouts of A, B, C and D."""

    shape: str
    kind: str
    of_c: str
    of_d: str
    layouts: str = "row col row row"
    space: str = ".global"
    operation: str = ""
    saturates: bool = False
    padding: int = 0  # elements behind each line of A and B

    @property
    def extents(self) -> tuple[int, int, int]:
        """M, N and K."""
        rows, rest = self.shape[1:].split("n")
        columns, depth = rest.split("k")
        return int(rows), int(columns), int(depth)

    @property
    def opcode(self) -> str:
        a, b, *_ = self.layouts.split()
        tail = ".satfinite" if self.saturates else ""
        if self.operation:
            return f"wmma.mma.{self.operation}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32"
        if self.kind == "f16":
            return f"wmma.mma.sync.aligned.{a}.{b}.{self.shape}.{self.of_d}.{self.of_c}"
        of = f"{self.of_d}.{self.kind}.{self.kind}.{self.of_c}"
        return f"wmma.mma.sync.aligned.{a}.{b}.{self.shape}.{of}{tail}"


CASES = [
    Case("m16n16k16", "f16", "f32", "f32"),
    Case("m16n16k16", "f16", "f16", "f16", "col row col row", padding=8),
    Case("m16n16k16", "f16", "f16", "f32", "row row col col"),
    Case("m16n16k16", "f16", "f32", "f16", "col col row col"),
    Case("m8n32k16", "f16", "f32", "f32", "row row row row", padding=16),
    Case("m32n8k16", "f16", "f16", "f16", "col col row row"),
    Case("m16n16k16", "bf16", "f32", "f32", "row col col row"),
    Case("m8n32k16", "bf16", "f32", "f32", "col row row row"),
    Case("m32n8k16", "bf16", "f32", "f32", space=""),
    Case("m16n16k8", "tf32", "f32", "f32", "row row row row"),
    Case("m16n16k8", "tf32", "f32", "f32", "col col row row"),
    Case("m8n8k4", "f64", "f64", "f64", "col row row col"),
    Case("m16n16k16", "s8", "s32", "s32", "row col row row", saturates=True),
    Case("m8n32k16", "u8", "s32", "s32", "col row row col", padding=16),
    Case("m32n8k16", "s8", "s32", "s32", "row row row row"),
    Case("m8n8k32", "s4", "s32", "s32"),
    Case("m8n8k32", "u4", "s32", "s32", saturates=True, padding=32),
    Case("m8n8k128", "b1", "s32", "s32", operation="xor"),
    Case("m8n8k128", "b1", "s32", "s32", operation="and"),
]


def _counts(case: Case) -> tuple[int, int, int, int]:
    """Registers of A, B, C and D."""
    m, n, k = case.extents
    bits = BITS[case.kind]
    of_a, of_b = (lines * k * bits // (32 * max(bits, 32)) for lines in (m, n))
    sums = [m * n * (16 if each == "f16" else 32) // 1024 for each in (case.of_c, case.of_d)]
    return (8, 8, *sums) if case.kind == "f16" else (of_a, of_b, *sums)


def _list(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def _kernel(at: int) -> str:
    case, counts = CASES[at], _counts(CASES[at])
    a, b, c, d = case.layouts.split()
    size = 64 if case.kind == "f64" else 32
    m, n, k = case.extents
    # With no stride given lines are as long as the tile.
    strides = [
        (k if a == "row" else m) + case.padding, (n if b == "row" else k) + case.padding,
    ]  # fmt: skip
    stride_a, stride_b = (f", {each}" if case.padding else "" for each in strides)
    c_list, d_list = _list("c", counts[2]), _list("d", counts[3])
    load, space, kind = "wmma.load", case.space, case.kind
    return f"""
.visible .entry k{at}(.param .u64 p_a, .param .u64 p_b, .param .u64 p_c, .param .u64 p_d)
{{
  .reg .b64 %pa, %pb, %pc, %pd; .reg .b{size} %a<8>, %b<8>, %c<8>, %d<8>; .reg .b32 %ld;
  ld.param.u64 %pa, [p_a]; ld.param.u64 %pb, [p_b];
  ld.param.u64 %pc, [p_c]; ld.param.u64 %pd, [p_d]; mov.b32 %ld, {n if d == "row" else m};
  {load}.a.sync.aligned.{a}.{case.shape}{space}.{kind} {_list("a", counts[0])}, [%pa]{stride_a};
  {load}.b.sync.aligned.{b}.{case.shape}{space}.{kind} {_list("b", counts[1])}, [%pb]{stride_b};
  {load}.c.sync.aligned.{c}.{case.shape}{space}.{case.of_c} {c_list}, [%pc];
  {case.opcode} {d_list}, {_list("a", counts[0])}, {_list("b", counts[1])}, {c_list};
  wmma.store.d.sync.aligned.{d}.{case.shape}{space}.{case.of_d} [%pd], {d_list}, %ld;
  ret;
}}"""


TEXT = HEAD + "\n".join(map(_kernel, range(len(CASES))))


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("wmma.ptx", text=TEXT)


def _stored(kind: str, lines: np.ndarray, padding: int) -> np.ndarray:
    """A matrix in memory, line by line, as bytes."""
    bits = BITS[kind]
    padded = np.pad(lines, ((0, 0), (0, padding)))
    codes = [_code(kind, int(each)) for each in padded.ravel()]
    if bits >= 8:
        return np.array(codes, np.dtype(f"u{bits // 8}")).view(np.uint8)
    spread = [code >> bit & 1 for code in codes for bit in range(bits)]
    return np.packbits(np.array(spread, np.uint8), bitorder="little")


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: CASES[at].opcode)
def test_products(module, at):
    case = CASES[at]
    m, n, k = case.extents
    rng = np.random.default_rng(at)
    left, right = _drawn(rng, case.kind, (m, k)), _drawn(rng, case.kind, (k, n))
    start = rng.integers(-5, 6, (m, n))
    if case.saturates:
        start[0] = np.iinfo(np.int32).max
    a, b, c, d = case.layouts.split()
    given = [
        _stored(case.kind, left if a == "row" else left.T, case.padding),
        _stored(case.kind, right if b == "row" else right.T, case.padding),
        np.ascontiguousarray((start if c == "row" else start.T).astype(_NUMBERS[case.of_c])),
    ]
    out = np.zeros((m, n) if d == "row" else (n, m), _NUMBERS[case.of_d])
    module.launch(f"k{at}", 1, 32, [*given, out]).require_clean()
    want = start + left @ right
    if case.operation:
        pairs = left[:, :, None], right[None]
        joined = pairs[0] ^ pairs[1] if case.operation == "xor" else pairs[0] & pairs[1]
        want = start + joined.sum(1)
    if case.saturates:
        want = np.clip(want, np.iinfo(np.int32).min, np.iinfo(np.int32).max)
    assert ((out if d == "row" else out.T) == want).all()


def test_fragments_are_scaled_element_by_element():
    """What nvcuda::wmma does with x[i] is right whatever a fragment's layout is."""
    twice = "".join(f"  add.f32 %d{i}, %d{i}, %d{i};\n" for i in range(8))
    text = _kernel(0).replace("k0(", "scaled(").replace("  wmma.store", f"{twice}  wmma.store")
    scaled = kernelbench.ptx.load("scaled.ptx", text=HEAD + text)
    rng = np.random.default_rng(5)
    left, right = rng.integers(-3, 4, (16, 16)), rng.integers(-3, 4, (16, 16))
    out = np.zeros((16, 16), np.float32)
    given = [_stored("f16", each, 0) for each in (left, np.ascontiguousarray(right.T))]
    scaled.launch("scaled", 1, 32, [*given, np.zeros((16, 16), np.float32), out]).require_clean()
    assert (out == 2 * (left @ right)).all()
