"""mma.sync of every shape and type, and movmatrix, against products of whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"
BITS = {
    "f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4,
    "u4": 4, "b1": 1,
}  # fmt: skip
#: Shape, types of D, A and B, and what stands behind the layout and the types.
FORMS = [
    *(("m16n8k8", d, "f16", "f16", "", "") for d in ("f32", "f16")),
    *(("m16n8k16", d, "f16", "f16", "", "") for d in ("f32", "f16")),
    ("m16n8k8", "f32", "bf16", "bf16", "", ""),
    ("m16n8k16", "f32", "bf16", "bf16", "", ""),
    ("m16n8k4", "f32", "tf32", "tf32", "", ""),
    ("m16n8k8", "f32", "tf32", "tf32", "", ""),
    ("m16n8k16", "f16", "e5m2", "e4m3", "", ""),
    ("m16n8k32", "f32", "e4m3", "e5m2", "", ""),
    *((shape, "f64", "f64", "f64", "", "") for shape in ("m8n8k4", "m16n8k4", "m16n8k8")),
    ("m16n8k16", "f64", "f64", "f64", "", ""),
    ("m16n8k16", "s32", "s8", "u8", "", ""),
    ("m16n8k32", "s32", "u8", "s8", ".satfinite", ""),
    ("m16n8k32", "s32", "s4", "u4", "", ""),
    ("m16n8k64", "s32", "s4", "s4", ".satfinite", ""),
    ("m16n8k128", "s32", "b1", "b1", "", ".xor.popc"),
    ("m16n8k256", "s32", "b1", "b1", "", ".and.popc"),
]


def _code(kind: str, value: int) -> int:
    """A small whole number's bits."""
    if kind == "f64":
        return int(np.float64(value).view(np.uint64))
    if kind in ("tf32", "bf16"):
        bits = int(np.float32(value).view(np.uint32))
        return bits if kind == "tf32" else bits >> 16
    if kind == "f16":
        return int(np.float16(value).view(np.uint16))
    if kind == "e5m2":
        return int(np.float16(value).view(np.uint16)) >> 8
    if kind == "e4m3":
        sign, size = value < 0, abs(value)
        if size == 0:
            return sign << 7
        exponent = size.bit_length() - 1
        return sign << 7 | (exponent + 7) << 3 | (size << 3 - exponent) & 7
    return value & (1 << BITS[kind]) - 1


def _registers(kind: str, matrix: np.ndarray, rows: int) -> np.ndarray:
    """Of each lane, 32 bits each (PTX ISA 9.1, 9.7.14.5: figures of the fragments).

    ``matrix`` is [rows, k]; of B it is transposed, and ``rows`` is 8.
    """
    bits, depth = BITS[kind], matrix.shape[1]
    per = max(32 // bits, 1)
    count = rows * depth // 32 // per
    words = np.zeros((32, count), np.uint64)
    for lane in range(32):
        for register in range(count):
            upper = register % 2 if rows == 16 else 0
            part = register // 2 if rows == 16 else register
            for e in range(per):
                row = lane // 4 + 8 * upper
                k = per * (lane % 4) + e + 4 * per * part
                code = _code(kind, int(matrix[row, k]))
                words[lane, register] |= np.uint64(code << bits * e)
    return words if bits == 64 else words.astype(np.uint32)


def _drawn(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    least, most = {"u8": (0, 255), "u4": (0, 15), "s4": (-8, 7), "b1": (0, 1)}.get(kind, (-3, 3))
    return rng.integers(least, most + 1, shape)


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("mma.ptx", text=HEAD + "\n".join(map(_kernel, range(len(FORMS)))))


def _counts(form: tuple[str, ...]) -> tuple[int, int, int, int]:
    """Rows, depth, and registers of A and of B."""
    shape, _, a, *_ = form
    rows, depth = int(shape[1 : shape.index("n")]), int(shape.partition("k")[2])
    unit = max(BITS[a], 32)
    return rows, depth, rows * depth * BITS[a] // 32 // unit, 8 * depth * BITS[a] // 32 // unit


def _kernel(at: int) -> str:
    form = FORMS[at]
    shape, d, a, b, behind, operation = form
    rows, _, of_a, of_b = _counts(form)
    wide = 64 if d == "f64" else 32
    of_c = rows // 8 if d == "f16" else rows // 4
    size = wide // 8
    given = of_a + of_b + of_c
    opcode = f"mma.sync.aligned.{shape}.row.col{behind}.{d}.{a}.{b}.{d}{operation}"
    lists = [
        "{" + ", ".join(f"%v{i}" for i in range(first, first + count)) + "}"
        for first, count in ((0, of_a), (of_a, of_b), (of_a + of_b, of_c))
    ]
    loads = "\n".join(f"ld.global.b{wide} %v{i}, [%in+{size * i}];" for i in range(given))
    stores = "\n".join(
        f"st.global.b{wide} [%out+{size * i}], %v{of_a + of_b + i};" for i in range(of_c)
    )
    return f"""
.visible .entry k{at}(.param .u64 p_in, .param .u64 p_out)
{{
  .reg .b64 %in, %out, %o; .reg .b32 %t; .reg .b{wide} %v<{given}>;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x;
  mul.wide.u32 %o, %t, {size * given}; add.s64 %in, %in, %o;
  mul.wide.u32 %o, %t, {size * of_c}; add.s64 %out, %out, %o;
  {loads}
  {opcode} {lists[2]}, {lists[0]}, {lists[1]}, {lists[2]};
  {stores}
  ret;
}}"""


@pytest.mark.parametrize("at", range(len(FORMS)), ids=lambda at: "-".join(FORMS[at][:4]))
def test_products(module, at):
    _, d, a, b, behind, operation = form = FORMS[at]
    rows, depth, *_ = _counts(form)
    rng = np.random.default_rng(at)
    left, right = _drawn(rng, a, (rows, depth)), _drawn(rng, b, (8, depth))
    start = rng.integers(-5, 6, (rows, 8))
    if behind:
        start[0] = np.iinfo(np.int32).max
    sums = np.zeros((32, rows // 4), np.int64)
    places = [
        [(lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2) for i in range(rows // 4)]
        for lane in range(32)
    ]
    for lane, mine in enumerate(places):
        sums[lane] = [start[place] for place in mine]
    kinds = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "s32": np.int32}
    c = np.ascontiguousarray(sums.astype(kinds[d]))
    words = c.view(np.uint64 if d == "f64" else np.uint32)
    given = np.concatenate([_registers(a, left, rows), _registers(b, right, 8), words], 1)
    out = np.zeros_like(words)
    module.launch(f"k{at}", 1, 32, [np.ascontiguousarray(given), out]).require_clean()
    if a == "b1":
        joined = left[:, None] ^ right[None] if "xor" in operation else left[:, None] & right[None]
        want = start + joined.sum(2)
    else:
        want = start + left @ right.T
    if behind:
        want = np.clip(want, np.iinfo(np.int32).min, np.iinfo(np.int32).max)
    found = out.view(kinds[d])
    for lane, mine in enumerate(places):
        assert found[lane].tolist() == [want[place] for place in mine], lane


def test_a_matrix_is_transposed():
    text = (
        HEAD
        + """
.visible .entry moved(.param .u64 p_in)
{
  .reg .b64 %in, %o; .reg .b32 %t, %x;
  ld.param.u64 %in, [p_in]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.s64 %in, %in, %o;
  ld.global.b32 %x, [%in]; movmatrix.sync.aligned.m8n8.trans.b16 %x, %x; st.global.b32 [%in], %x;
  ret;
}
"""
    )
    data = np.arange(64, dtype=np.uint16).reshape(8, 8)
    module = kernelbench.ptx.load("moved.ptx", text=text)
    moved = data.copy()
    module.launch("moved", 1, 32, [moved]).require_clean()
    assert (moved == data.T).all()
