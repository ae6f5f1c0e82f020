"""Tensor copies of other modes than tiles: pixels (im2col), and four rows (gather4, scatter4)."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from test_bulk import WAIT, aligned, map_of

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.shared .align 1024 .b8 tile[8192];
.shared .align 8 .b64 bar;
"""
_BYTES = ".mbarrier::complete_tx::bytes"
_GLOBAL = ".shared::cluster.global"
#: What is loaded, by its operands; [map, {start}] is from the words behind the map.
LOADS = {
    "im2col_3d": f"cp.async.bulk.tensor.3d{_GLOBAL}.im2col{_BYTES}"
                 " [%a], [%map, {%c0, %c1, %c2}], [%b], {%o0}",
    "im2col_4d": f"cp.async.bulk.tensor.4d{_GLOBAL}.im2col{_BYTES}"
                 " [%a], [%map, {%c0, %c1, %c2, %c3}], [%b], {%o0, %o1}",
    "im2col_5d": f"cp.async.bulk.tensor.5d{_GLOBAL}.im2col{_BYTES}"
                 " [%a], [%map, {%c0, %c1, %c2, %c3, %c4}], [%b], {%o0, %o1, %o2}",
    "gather4": f"cp.async.bulk.tensor.2d{_GLOBAL}.tile::gather4{_BYTES}"
               " [%a], [%map, {%c0, %c1, %c2, %c3, %c4}], [%b]",
    "tiles": f"cp.async.bulk.tensor.2d{_GLOBAL}.tile{_BYTES} [%a], [%map, {{%c0, %c1}}], [%b]",
}  # fmt: skip
STORES = {
    "no_offs": "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group"
               " [%map, {%c0, %c1, %c2, %c3}], [%a]",
    "scatter4": "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"
                " [%map, {%c0, %c1, %c2, %c3, %c4}], [%a]",
}  # fmt: skip
_START = "\n".join(f"ld.global.b32 %c{i}, [%start+{4 * i}];" for i in range(5)) + "\n".join(
    f"ld.global.b16 %o{i}, [%start+{20 + 2 * i}];" for i in range(3)
)
_REGISTERS = """.reg .b64 %map, %start, %out, %at; .reg .b32 %t, %a, %b, %n, %x, %c<5>;
  .reg .b16 %o<3>; .reg .pred %p;"""


def _load(name: str) -> str:
    """Shared memory as a load leaves it."""
    return f"""
.visible .entry {name}(.param .u64 p_map, .param .u64 p_start, .param .u64 p_out, .param .u32 p_n)
  .reqntid 1
{{
  {_REGISTERS}
  ld.param.u64 %map, [p_map]; ld.param.u64 %start, [p_start]; ld.param.u64 %out, [p_out];
  ld.param.u32 %n, [p_n]; mov.b32 %b, bar; mov.b32 %a, tile;
  {_START}
  mbarrier.init.shared::cta.b64 [%b], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], %n;
  {LOADS[name]};
  {WAIT.format("%b")}
NEXT:
  ld.shared.b32 %x, [%a]; st.global.b32 [%out], %x; add.u32 %a, %a, 4; add.s64 %out, %out, 4;
  sub.u32 %n, %n, 4; setp.ne.u32 %p, %n, 0; @%p bra NEXT;
  ret;
}}"""


def _store(name: str) -> str:
    """Words 1, 2, … of shared memory are stored."""
    return f"""
.visible .entry {name}(.param .u64 p_map, .param .u64 p_start, .param .u64 p_out, .param .u32 p_n)
  .reqntid 1
{{
  {_REGISTERS}
  ld.param.u64 %map, [p_map]; ld.param.u64 %start, [p_start]; ld.param.u32 %n, [p_n];
  mov.b32 %a, tile; mov.b32 %x, 1;
  {_START}
NEXT:
  st.shared.b32 [%a], %x; add.u32 %a, %a, 4; add.u32 %x, %x, 1;
  sub.u32 %n, %n, 4; setp.ne.u32 %p, %n, 0; @%p bra NEXT;
  mov.b32 %a, tile;
  fence.proxy.async.shared::cta;
  {STORES[name]};
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  ret;
}}"""


TEXT = HEAD + "\n".join([*map(_load, LOADS), *map(_store, STORES)])


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("modes.ptx", text=TEXT)


def _map(
    tensor: np.ndarray, box: tuple[int, ...], steps: tuple[int, ...] = (),
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> np.ndarray:  # fmt: skip
    """Of words: the box of tiles, or channels and pixels with the box's corners in W, H, D."""
    rank = tensor.ndim
    dims = tensor.shape[::-1]
    made = map_of(tensor)
    words = made.view(np.uint64)
    words[3 : 3 + rank] = dims
    words[8 : 8 + rank - 1] = [4 * int(np.prod(dims[:d])) for d in range(1, rank)]
    extents, more = [*box], bytes(6)
    if corners is not None:
        extents += [each & 0xFFFF for each in corners[0]]
        more = struct.pack("<3h", *(*corners[1], 0, 0)[:3])
    made[96:106].view(np.uint16)[: len(extents)] = extents
    made[106:111] = (*steps, 1, 1, 1, 1, 1)[:5]
    made[111], made[112] = rank, 2  # words of 32 bits
    made[116] = corners is not None
    made[118:124] = np.frombuffer(more, np.uint8)
    return made


def _start(at: tuple[int, ...], offsets: tuple[int, ...] = ()) -> np.ndarray:
    packed = struct.pack("<5i3H", *(*at, 0, 0, 0)[:5], *(*offsets, 0, 0, 0)[:3])
    return np.frombuffer(packed + bytes(2), np.uint8).copy()


def _pixels(tensor, at, offsets, steps, corners, channels, pixels):
    """Where each pixel's channels are, or None; by the text of 5.5.4."""
    dims = tensor.shape[::-1]
    spatial = range(1, tensor.ndim - 1)
    axes = [range(corners[0][d - 1], dims[d] + corners[1][d - 1], steps[d]) for d in spatial]
    # The traversal from the box's first pixel on, and where the start is on it.
    every = [
        place[::-1] for n in range(dims[-1] + pixels)
        for place in itertools.product([n], *axes[::-1])
    ]  # fmt: skip
    first = every.index(tuple(at[1:]))
    for place in every[first : first + pixels]:
        where = [*(p + o for p, o in zip(place[:-1], offsets, strict=True)), place[-1]]
        inside = all(0 <= p < d for p, d in zip(where, dims[1:], strict=True))
        yield tuple(where[::-1]) if inside else None, range(at[0], at[0] + channels)


CASES = [
    ((3, 20, 8), (0, -2, 1), (3,), (1, 1, 1), ((-2,), (1,))),
    ((2, 5, 7, 8), (4, 3, 1, 0), (1, 2), (1, 1, 1, 1), ((-1, -2), (-1, 1))),
    ((2, 6, 9, 8), (4, 3, -2, 1), (2, 0), (1, 2, 3, 1), ((-1, -2), (0, 2))),
    ((2, 4, 3, 5, 4), (0, 1, -1, 1, 0), (0, 2, 1), (1, 2, 1, 1, 1), ((-1, -1, 0), (1, 0, -1))),
]


@pytest.mark.parametrize(("shape", "at", "offsets", "steps", "corners"), CASES)
def test_pixels(module, shape, at, offsets, steps, corners):
    tensor = np.arange(1, 1 + np.prod(shape), dtype=np.uint32).reshape(shape)
    channels, pixels = 4, 40
    made = _map(tensor, (channels, pixels), steps, corners)
    out = np.full((pixels, channels), 7, np.uint32)
    args = [made, _start(at, offsets), out, out.nbytes]
    memory = {"tensor": tensor}
    report = module.launch(f"im2col_{len(shape)}d", 1, args=args, memory=memory, check=2)
    assert report.clean, list(report.lines())
    want = np.zeros_like(out)
    places = _pixels(tensor, at, offsets, steps, corners, channels, pixels)
    for pixel, (where, taken) in enumerate(places):
        if where is not None:
            want[pixel] = [tensor[(*where, each)] for each in taken]
    assert (out == want).all() and want.any() and not want.all()


def test_pixels_are_stored(module):
    shape, at, steps, corners = (2, 5, 7, 8), (4, 1, 0, 0), (1, 1, 2, 1), ((1, 0), (-1, 0))
    tensor = np.zeros(shape, np.uint32)
    made = _map(tensor, (4, 20), steps, corners)
    args = [made, _start(at), tensor, 20 * 16]
    report = module.launch("no_offs", 1, args=args, check=2)
    assert report.clean, list(report.lines())
    want = np.zeros_like(tensor)
    for pixel, (where, taken) in enumerate(_pixels(tensor, at, (0, 0), steps, corners, 4, 20)):
        if where is not None:
            want[(*where, slice(taken[0], taken[-1] + 1))] = np.arange(4) + 1 + 4 * pixel
    assert (tensor == want).all() and want.any()


def test_rows_are_gathered(module):
    """One beyond the tensor, and columns beyond it, are zeros."""
    tensor = np.arange(1, 1 + 9 * 12, dtype=np.uint32).reshape(9, 12)
    out = np.full((4, 8), 7, np.uint32)
    args = [_map(tensor, (8, 1)), _start((8, 6, 0, 9, 6)), out, out.nbytes]
    report = module.launch("gather4", 1, args=args, memory={"tensor": tensor}, check=2)
    assert report.clean, list(report.lines())
    want = np.zeros_like(out)
    for row, number in enumerate((6, 0, 9, 6)):
        if number < 9:
            want[row, :4] = tensor[number, 8:]
    assert (out == want).all()


def test_rows_are_scattered(module):
    tensor = np.zeros((9, 12), np.uint32)
    args = [_map(tensor, (8, 1)), _start((4, 7, 2, 9, 3)), tensor, 4 * 32]
    report = module.launch("scatter4", 1, args=args, check=2)
    assert report.clean, list(report.lines())
    want = np.zeros_like(tensor)
    for row, number in enumerate((7, 2, 9, 3)):
        if number < 9:
            want[number, 4:] = np.arange(1, 9) + 8 * row
    assert (tensor == want).all()


@pytest.mark.parametrize(
    ("kernel", "box", "corners", "message"),
    [
        ("im2col_3d", (4, 2, 1), None, "it is for tiles, the instruction is im2col"),
        ("im2col_4d", (4, 2), ((0,), (0,)), "it has 3 dimensions, the instruction 4"),
        ("im2col_3d", (4, 2000), ((0,), (0,)), "pixelsPerColumn is 2000, and must be 1 … 1024"),
        ("im2col_3d", (4, 20), ((6,), (-1,)), "the pixels' box is empty along dimension 1"),
    ],
)  # fmt: skip
def test_maps_that_are_refused(module, kernel, box, corners, message):
    tensor, out = np.zeros((2, 6, 8), np.uint32), np.zeros(64, np.uint32)
    args = [_map(tensor, box, corners=corners), _start((0, 0, 0)), out, 128]
    report = module.launch(kernel, 1, args=args, memory={"tensor": tensor}, check=1)
    assert [each.finding.kind for each in report.findings] == ["descriptor"]
    assert message in report.findings[0].finding.text


def test_boxes_of_several_rows_are_not_gathered(module):
    tensor, out = np.zeros((6, 8), np.uint32), np.zeros(64, np.uint32)
    args = [_map(tensor, (4, 2)), _start((0, 0, 0)), out, 128]
    report = module.launch("gather4", 1, args=args, memory={"tensor": tensor}, check=1)
    assert "its boxes have 2 rows, those of four rows one" in report.findings[0].finding.text
    assert aligned(128).ctypes.data % 128 == 0


@pytest.mark.parametrize(
    ("kernel", "at", "corners", "message"),
    [
        ("im2col_4d", (0, 6, 0, 0), ((0, 0), (-1, 0)), "starts at 6, outside its pixels' box 0"),
        ("im2col_4d", (0, 0, 1, 0), ((0, 2), (0, 0)), "starts at 1, outside its pixels' box 2"),
        ("no_offs", (0, 0, 0, 0), ((0, 0), (0, 1)), "box goes beyond the tensor: 0 … 5"),
        ("no_offs", (0, 1, 0, 0), ((-1, 0), (0, 0)), "box goes beyond the tensor: -1 … 6"),
    ],
)  # fmt: skip
def test_pixels_that_an_h200_refuses(module, kernel, at, corners, message):
    tensor, out = np.zeros((2, 5, 7, 8), np.uint32), np.zeros(64, np.uint32)
    args = [_map(tensor, (4, 8), corners=corners), _start(at), out, 128]
    report = module.launch(kernel, 1, args=args, memory={"tensor": tensor}, check=1)
    assert [each.finding.kind for each in report.findings] == ["out-of-bounds"]
    assert message in report.findings[0].finding.text
