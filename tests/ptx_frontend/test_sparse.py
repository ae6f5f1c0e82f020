"""mma.sp of every type and shape, against the dense product of what values and metadata mean.

Numbers are small integers, whose sums are exact in any order. PTX ISA 9.1, 9.7.14.6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import kernelbench.ptx
from kernelbench.ptx import UnsupportedPtxError

pytestmark = pytest.mark.usefixtures("emulator_runtime")

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4}
#: Of 0, 1, 2 and 3; the sign is the highest bit. Others are integers.
CODES = {
    "f16": (0, 0x3C00, 0x4000, 0x4200), "bf16": (0, 0x3F80, 0x4000, 0x4040),
    "tf32": (0, 0x3F800000, 0x40000000, 0x40400000),
    "e4m3": (0, 0x38, 0x40, 0x44), "e5m2": (0, 0x3C, 0x40, 0x42),
}  # fmt: skip


class Sparse(NamedTuple):
    """One opcode, and a selector."""

    k: int
    sums: str
    a: str
    b: str
    selector: int
    ordered: bool = False
    saturates: bool = False

    @property
    def name(self) -> str:
        """Of its kernel."""
        return "_".join(("sparse", *map(str, self)))

    @property
    def opcode(self) -> str:
        """As PTX spells it."""
        variant = "::ordered_metadata" if self.ordered else ""
        saturates = ".satfinite" if self.saturates else ""
        return (
            f"mma.sp{variant}.sync.aligned.m16n8k{self.k}.row.col{saturates}"
            f".{self.sums}.{self.a}.{self.b}.{self.sums}"
        )

    @property
    def side(self) -> int:
        """Elements that are given together."""
        return 2 if BITS[self.a] == 4 else 1

    @property
    def width(self) -> int:
        """Elements that share four bits of metadata; half of them are given."""
        return 2 if self.a == "tf32" else 4 * self.side


#: One of each layout of metadata and of elements.
CASES = [
    Sparse(16, "f32", "f16", "f16", 2), Sparse(32, "f32", "bf16", "bf16", 1, ordered=True),
    Sparse(8, "f32", "tf32", "tf32", 1), Sparse(64, "f32", "e4m3", "e5m2", 0),
    Sparse(32, "s32", "s8", "u8", 1), Sparse(128, "s32", "s4", "s4", 0, ordered=True),
]  # fmt: skip


def _others():
    of_halves = [(k, sums) for k in (16, 32) for sums in ("f32", "f16")]
    yield from (
        Sparse(k, sums, "f16", "f16", selector)
        for k, sums in of_halves
        for selector in range(64 // k)
    )
    yield from (Sparse(k, "f32", "bf16", "bf16", 1, ordered=k == 32) for k in (16, 32))
    yield from (Sparse(k, "f32", "tf32", "tf32", 1, ordered=k == 8) for k in (8, 16))
    yield Sparse(16, "f32", "f16", "f16", 2, ordered=True)
    yield from (Sparse(64, "f32", a, b, 0) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))
    yield Sparse(64, "f32", "e4m3", "e5m2", 0, ordered=True)
    yield from (Sparse(32, "s32", a, b, 1) for a in ("s8", "u8") for b in ("s8", "u8"))
    yield from (Sparse(64, "s32", "u8", "s8", 0, ordered=each, saturates=True) for each in (0, 1))
    yield from (Sparse(64, "s32", a, b, 0) for a, b in (("s4", "u4"), ("u4", "s4")))
    yield from (Sparse(128, "s32", "s4", "s4", 0, ordered=each) for each in (False, True))


OTHERS = [each for each in _others() if each not in CASES]


def _registers(of: Sparse) -> tuple[int, int]:
    """Of a lane: of A, as of B; of C, as of D."""
    return of.k * BITS[of.a] // 128, 2 if of.sums == "f16" else 4


def _kernel(of: Sparse, selector: int | None = None) -> str:
    operands, sums = _registers(of)
    counts = {"a": operands, "b": operands, "c": sums, "e": 1}
    loads = [
        f"ld.param.u64 %p, [p{letter}]; mad.wide.u32 %p, %t, {4 * count}, %p;\n"
        + "\n".join(f"ld.global.b32 %{letter}{i}, [%p+{4 * i}];" for i in range(count))
        for letter, count in (*counts.items(), ("c", sums))
    ]
    a, b, c = ("{" + ", ".join(f"%{x}{i}" for i in range(counts[x])) + "}" for x in "abc")
    stores = [f"st.global.b32 [%p+{4 * i}], %d{i};" for i in range(sums)]
    selector = of.selector if selector is None else selector
    return "\n".join((
        f".visible .entry {of.name}",
        "(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pe)",
        "{ .reg .b64 %p; .reg .b32 %t, %a<4>, %b<4>, %c<4>, %d<4>, %e0; mov.u32 %t, %tid.x;",
        *loads, f"{of.opcode} {c.replace('%c', '%d')}, {a}, {b}, {c}, %e0, {selector};", *stores,
        "ret; }",
    ))  # fmt: skip


HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def _loaded(cases: list[Sparse]):
    return kernelbench.ptx.load("sparse.ptx", text=HEAD + "\n".join(map(_kernel, cases)))


@pytest.fixture(scope="module")
def products():
    return _loaded(CASES)


@pytest.fixture(scope="module")
def others():
    return _loaded(OTHERS)


def _code(kind: str, value: int) -> int:
    bits = BITS[kind]
    if kind in CODES:
        return CODES[kind][abs(value)] | (value < 0) << (bits - 1)
    return value & ((1 << bits) - 1)


def _packed(kind: str, matrix: np.ndarray) -> np.ndarray:
    """Registers of A by its given elements, or of B by columns: 9.7.14.6.2."""
    rows, depth = matrix.shape
    per = 32 // BITS[kind]
    found = np.zeros((32, depth // (4 * per) * (rows // 8)), np.uint32)
    for (row, k), value in np.ndenumerate(matrix):
        lane, block = 4 * (row % 8) + k % (4 * per) // per, k // (4 * per)
        word = block * (rows // 8) + row // 8
        found[lane, word] |= np.uint32(_code(kind, int(value)) << BITS[kind] * (k % per))
    return found


def _metadata(of: Sparse, chunks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The lanes' words; those of other lanes are anything."""
    words = rng.integers(0, 1 << 32, 32, dtype=np.uint64)
    lanes = chunks.shape[1] // 4
    for (row, at), code in np.ndenumerate(chunks):
        lane, shift = at // 4, 16 * (row // 8) + 4 * (at % 4)
        if BITS[of.a] < 16:
            lane, shift = 2 * (at // 8) + row // 8, 4 * (at % 8)
        lane += 4 * (row % 8) + of.selector * lanes
        words[lane] = int(words[lane]) & ~(0xF << shift) | int(code) << shift
    return words.astype(np.uint32)


def _sum_bits(of: Sparse, sums: np.ndarray) -> np.ndarray:
    """A lane's registers of C or D."""
    kind = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[of.sums]
    lanes = [
        [sums[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] for i in range(4)]
        for lane in range(32)
    ]
    return np.array(lanes).astype(kind).view(np.uint32).copy()


def _drawn(of: Sparse, rng: np.random.Generator):
    """Metadata by chunk, the given elements, and the matrix that they mean."""
    count = of.k // of.width
    chunks = np.zeros((16, count), np.uint32)
    given = np.zeros((16, of.k // 2), int)
    dense = np.zeros((16, of.k), int)
    for row in range(16):
        for at in range(count):
            indices = rng.choice(4, 2, replace=False)
            if of.ordered:
                indices.sort()
            chunks[row, at] = indices[0] | indices[1] << 2
            if of.a == "tf32":
                indices = rng.integers(0, 2, 1)
                chunks[row, at] = (0b0100, 0b1110)[indices[0]]
            for number, index in enumerate(np.repeat(indices, of.side)):
                value = rng.integers(0 if of.a[0] == "u" else -3, 4)
                given[row, at * of.width // 2 + number] = value
                dense[row, at * of.width + index * of.side + number % of.side] = value
    return chunks, given, dense


@pytest.mark.parametrize("of", CASES, ids=lambda of: of.name)
def test_products(products, of):
    _multiply(products, of)


@pytest.mark.long
@pytest.mark.parametrize("of", OTHERS, ids=lambda of: of.name)
def test_products_of_other_types(others, of):
    _multiply(others, of)


def _multiply(products, of: Sparse) -> None:
    rng = np.random.default_rng(of.k + of.selector)
    chunks, given, dense = _drawn(of, rng)
    right = rng.integers(0 if of.b[0] == "u" else -3, 4, (8, of.k))
    start = rng.integers(-5, 6, (16, 8)) + (2**31 - 20 if of.saturates else 0)
    c = _sum_bits(of, np.minimum(start, 2**31 - 1))
    args = [_packed(of.a, given), _packed(of.b, right), c, _metadata(of, chunks, rng)]
    products.launch(of.name, 1, 32, args, check=1).require_clean()
    want = np.minimum(start, 2**31 - 1) + dense @ right.T
    assert (c == _sum_bits(of, np.minimum(want, 2**31 - 1))).all()


def test_elements_that_are_not_given_meet_nothing(products):
    """Not even a NaN of B, with which a zero would make one."""
    of, rng = CASES[0], np.random.default_rng(0)
    chunks = np.full((16, 4), 0b0100, np.uint32)
    given = np.ones((16, 8), int)
    right = _packed("f16", np.ones((8, 16), int))
    right[[lane for lane in range(32) if lane % 2]] = 0x7E007E00  # of k = 2, 3, 6, 7, …
    c = np.zeros((32, 4), np.float32)
    args = [_packed("f16", given), right, c, _metadata(of, chunks, rng)]
    products.launch(of.name, 1, 32, args, check=1).require_clean()
    assert (c == 8).all()


@pytest.mark.parametrize(
    ("kind", "code"),
    [("bf16", 0b0001), ("f16", 0b1010), ("tf32", 0b1100), ("s4", 0b1111)],
)
def test_undefined_metadata_are_named(products, kind, code):
    """Of ::ordered_metadata those in descending order, too."""
    of = next(each for each in CASES if each.a == kind)
    rng = np.random.default_rng(0)
    chunks, given, _ = _drawn(of, rng)
    chunks[9, 3] = code
    right, c = np.ones((8, of.k), int), np.zeros((32, _registers(of)[1]), np.uint32)
    args = [_packed(of.a, given), _packed(of.b, right), c, _metadata(of, chunks, rng)]
    report = products.launch(of.name, 1, 32, args, check=1)
    (found,) = report.findings
    assert found.finding.kind == "descriptor"
    text = f"metadata {code} of the {of.width} elements from [9, {3 * of.width}] of A on"
    assert text in found.finding.text and found.finding.text.endswith("undefined")


@pytest.mark.parametrize(("at", "selector"), [(0, 4), (-1, 1)])
def test_selectors_that_are_refused(at, selector):
    with pytest.raises(UnsupportedPtxError, match=f"a sparsity selector .*{selector}"):
        kernelbench.ptx.load("k.ptx", text=HEAD + _kernel(CASES[at], selector))
