"""mma.sync and wgmma of every type, on small integers, whose sums are exact in any order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "f32": torch.float32,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8, "u8": torch.uint8,
    "s32": torch.int32, "f64": torch.float64,
}  # fmt: skip


class Mma(NamedTuple):
    """One opcode."""

    m: int
    k: int
    sums: str
    a: str
    b: str
    saturates: bool = False

    @property
    def name(self) -> str:
        """Of its kernel."""
        return "_".join(("mma", *map(str, self)))

    @property
    def opcode(self) -> str:
        """As PTX spells it."""
        saturates = ".satfinite" if self.saturates else ""
        return (
            f"mma.sync.aligned.m{self.m}n8k{self.k}.row.col{saturates}"
            f".{self.sums}.{self.a}.{self.b}.{self.sums}"
        )


MMAS = [
    *(Mma(16, k, sums, "f16", "f16") for k in (8, 16) for sums in ("f32", "f16")),
    *(Mma(16, k, "f32", "bf16", "bf16") for k in (8, 16)),
    *(Mma(16, k, "f32", "tf32", "tf32") for k in (4, 8)),
    *(Mma(16, 32, "f32", a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    Mma(16, 16, "f16", "e4m3", "e4m3"),
    *(Mma(16, k, "s32", a, b) for k in (16, 32) for a, b in (("s8", "s8"), ("u8", "s8"))),
    Mma(8, 16, "s32", "s8", "u8"), Mma(16, 32, "s32", "u8", "u8", saturates=True),
    Mma(8, 4, "f64", "f64", "f64"), *(Mma(16, k, "f64", "f64", "f64") for k in (4, 8, 16)),
]  # fmt: skip


def _bytes_of(kind: str, values: np.ndarray) -> np.ndarray:
    """The elements' bytes, [*shape, bytes of one]."""
    made = torch.from_numpy(np.ascontiguousarray(values, np.float64)).to(TYPES[kind]).contiguous()
    return made.view(torch.uint8).numpy().reshape(*values.shape, -1)


def _values(kind: str, data: np.ndarray) -> np.ndarray:
    return torch.from_numpy(data.copy()).view(TYPES[kind]).to(torch.float64).numpy()


def _places(rows: int, columns: int, bits: int) -> np.ndarray:
    """Row and column of a lane's elements of A, or of Bᵀ: PTX ISA 9.1, 9.7.14.5, by figures.

    A lane's group is its row; where there are 16 rows the next register is that of row + 8. A
    register has the elements of 32 bits side by side, or half of one.
    """
    side = max(1, 32 // bits)
    at = []
    for lane in range(32):
        for block in range(columns // (4 * side)):
            for below in range(rows // 8):
                column = block * 4 * side + lane % 4 * side
                at += [(lane // 4 + 8 * below, column + i) for i in range(side)]
    return np.array(at).reshape(32, -1, 2)


def _sum_places(rows: int) -> np.ndarray:
    return np.array([
        (lane // 4 + 8 * below, lane % 4 * 2 + i)
        for lane in range(32) for below in range(rows // 8) for i in range(2)
    ]).reshape(32, -1, 2)  # fmt: skip


def _kernel(of: Mma) -> str:
    size = 64 if of.a == "f64" else 32
    counts = [each.shape[1] * _bits(kind) // size for each, kind in _operands(of)]
    names = [
        "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"
        for letter, count in zip("abc", counts, strict=True)
    ]
    loads = [
        f"ld.param.u64 %p, [p{letter}]; mad.wide.u32 %p, %t, {count * size // 8}, %p;\n"
        + "\n".join(f"ld.global.b{size} %{letter}{i}, [%p+{size // 8 * i}];" for i in range(count))
        for letter, count in zip("abc", counts, strict=True)
    ]
    results = names[2].replace("%c", "%d")
    stores = [f"st.global.b{size} [%p+{size // 8 * i}], %d{i};" for i in range(counts[2])]
    registers = " ".join(f".reg .b{size} %{letter}<8>;" for letter in "abcd")
    return "\n".join((
        f".visible .entry {of.name}(.param .u64 pa, .param .u64 pb, .param .u64 pc)",
        f"{{ .reg .b64 %p; .reg .b32 %t; {registers} mov.u32 %t, %tid.x;",
        *loads, f"{of.opcode} {results}, {names[0]}, {names[1]}, {names[2]};", *stores, "ret; }",
    ))  # fmt: skip


def _bits(kind: str) -> int:
    return 32 if kind == "tf32" else 8 * TYPES[kind].itemsize


def _operands(of: Mma) -> tuple[tuple[np.ndarray, str], ...]:
    return (
        (_places(of.m, of.k, _bits(of.a)), of.a), (_places(8, of.k, _bits(of.b)), of.b),
        (_sum_places(of.m), of.sums),
    )  # fmt: skip


@pytest.fixture(scope="module")
def products():
    head = ".version 8.8\n.target sm_90a\n.address_size 64\n"
    return kernelbench.ptx.load("mma.ptx", text=head + "\n".join(map(_kernel, MMAS)))


@pytest.mark.long
@pytest.mark.parametrize("of", MMAS, ids=lambda of: of.name)
def test_mma(products, of):
    rng = np.random.default_rng(of.k)
    low = 0 if "u8" in of else -3
    a, b = rng.integers(low, 4, (of.m, of.k)), rng.integers(low, 4, (8, of.k))
    c = rng.integers(-5, 6, (of.m, 8)).astype(np.float64)
    if of.saturates:
        a, b, c = a * 60, b * 60, c + 2**31 - 5000
    given = []
    for values, (places, kind) in zip((a, b, c), _operands(of), strict=True):
        chosen = values[places[..., 0], places[..., 1]]
        given.append(_bytes_of(kind, chosen).reshape(32, -1))
    products.launch(of.name, 1, 32, given, check=1).require_clean()
    places = _sum_places(of.m)
    want = a @ b.T + c
    want = np.minimum(want, 2.0**31 - 1) if of.saturates else want
    assert (_values(of.sums, given[2]) == want[places[..., 0], places[..., 1]]).all()


WGMMAS = [
    ("f32", "tf32", "tf32"), ("f32", "bf16", "bf16"), ("f16", "f16", "f16"),
    ("f32", "e5m2", "e5m2"), ("f32", "e4m3", "e5m2"), ("f16", "e5m2", "e4m3"),
    ("s32", "s8", "u8"), ("s32", "u8", "u8"),
]  # fmt: skip
N, A_BYTES = 16, 2048


def _wgmma(sums: str, a: str, b: str) -> str:
    count = N // (4 if sums == "f16" else 2)
    depth = 32 // TYPES[a].itemsize
    d = "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"
    opcode = f"wgmma.mma_async.sync.aligned.m64n{N}k{depth}.{sums}.{a}.{b}"
    more = (
        ""
        if sums == "s32"
        else ", 1, 1" + (", 0, 0" if TYPES[a].itemsize == 2 and a != "tf32" else "")
    )
    stores = "\n".join(f"st.global.b32 [%out+{4 * i}], %d{i};" for i in range(count))
    return f"""
.visible .entry w_{sums}_{a}_{b}(.param .u64 p_in, .param .u64 p_out) .reqntid 128
{{
  .reg .b64 %in, %out, %o, %da, %db; .reg .b32 %t, %s, %x, %d<8>; .reg .pred %p, %q;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x; mov.b32 %s, tile;
NEXT:
  setp.ge.u32 %p, %t, {(A_BYTES + 32 * N) // 4}; @%p bra FILLED;
  mul.wide.u32 %o, %t, 4; add.s64 %o, %in, %o; ld.global.b32 %x, [%o];
  mad.lo.u32 %d0, %t, 4, %s; st.shared.b32 [%d0], %x; add.u32 %t, %t, 128; bra NEXT;
FILLED:
  fence.proxy.async.shared::cta; bar.sync 0; mov.u32 %t, %tid.x;
  shr.u32 %x, %s, 4; cvt.u64.u32 %da, %x; or.b64 %da, %da, {(128 >> 4) << 16 | (256 >> 4) << 32};
  add.s64 %db, %da, {A_BYTES >> 4};
  setp.ne.u32 %p, 0, 0; setp.eq.u32 %q, 0, 0;
  wgmma.fence.sync.aligned;
  {opcode} {d}, %da, %db, %p{more};
  {opcode} {d}, %da, %db, %q{more};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  mul.wide.u32 %o, %t, {4 * count}; add.s64 %out, %out, %o;
  {stores}
  ret;
}}"""


@pytest.fixture(scope="module")
def warpgroup_products():
    head = ".version 8.8\n.target sm_90a\n.address_size 64\n.shared .align 1024 .b8 tile[4096];\n"
    text = head + "\n".join(_wgmma(*each) for each in WGMMAS)
    return kernelbench.ptx.load("wgmma.ptx", text=text)


@pytest.mark.parametrize(("sums", "a", "b"), WGMMAS)
def test_wgmma(warpgroup_products, sums, a, b):
    rng = np.random.default_rng(7)
    depth = 32 // TYPES[a].itemsize
    values = [rng.integers(0, 4, (rows, depth)) for rows in (64, N)]
    image = np.zeros(A_BYTES + 32 * N, np.uint8)
    for start, kind, of in zip((0, A_BYTES), (a, b), values, strict=True):
        # Rows of 32 bytes, by core matrices of 8 rows by 16 bytes.
        for row, data in enumerate(_bytes_of(kind, of).reshape(len(of), 32)):
            for chunk in range(2):
                at = start + row // 8 * 256 + chunk * 128 + row % 8 * 16
                image[at : at + 16] = data[16 * chunk : 16 * chunk + 16]
    out = np.zeros((128, N // (4 if sums == "f16" else 2)), np.uint32)
    report = warpgroup_products.launch(f"w_{sums}_{a}_{b}", 1, args=[image, out], check=1)
    assert report.clean, list(report.lines())
    found = _values(sums, out.view(np.uint8)).reshape(128, N // 2)
    want = 2 * (values[0] @ values[1].T)
    for thread, element in np.ndindex(*found.shape):
        row = thread // 32 * 16 + thread % 32 // 4 + 8 * (element // 2 % 2)
        column = 8 * (element // 4) + 2 * (thread % 4) + element % 2
        assert found[thread, element] == want[row, column], (thread, element)
