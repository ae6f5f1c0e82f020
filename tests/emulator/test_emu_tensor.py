"""Tensor memory and tcgen05 in the emulator: where operands are taken from and results go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensor_model import (
    COLUMNS,
    LANES,
    REGISTERS,
    SCALES,
    SFA,
    SFB,
    WIDTHS,
    A,
    B,
    Operands,
    Program,
    Tile,
    accumulator,
    instruction,
    pair,
    put_scales,
    scales_descriptor,
    simple,
)

FILE = "tensor_kernels.cu"
Emulated = Callable[..., Any]


@pytest.mark.parametrize("n", [8, 16, 24, 40, 64, 96, 128, 136, 200, 256])
def test_product_of_every_kind_of_width(emulated: Emulated, n: int) -> None:
    operands = Operands(n, seed=n)
    message, out = simple(operands).run(emulated(FILE))
    assert message == ""
    assert np.array_equal(accumulator(out[0], n), operands.sums())


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_steps_of_k_accumulate(emulated: Emulated, check: bool) -> None:
    operands = Operands(64, steps=4, seed=3)
    of = emulated(FILE, check=check, seed=5)
    message, out = simple(operands).run(of)
    assert message == "" and of.findings() == []
    assert np.array_equal(accumulator(out[0], 64), operands.sums())


def test_old_value_is_added_only_on_request(emulated: Emulated) -> None:
    operands = Operands(48, seed=4)
    old = np.random.default_rng(1).normal(0, 300, (1, LANES, COLUMNS)).astype(np.float32)
    for accumulate in (False, True):
        program = simple(operands, accumulate=accumulate, d=64)
        program.fill = old.view(np.uint32)
        message, out = program.run(emulated(FILE))
        assert message == ""
        expected = operands.sums(old[0, :, 64:112].copy() if accumulate else None)
        assert np.array_equal(accumulator(out[0], 48), expected)
    # Without a fill the old value is poison, and stays out.
    assert not np.isnan(operands.sums().view(np.float32)).any()


@pytest.mark.parametrize(
    ("swizzle", "offset"),
    [(code, at) for code, width in WIDTHS.items() for at in (0, 32, 96) if at < (width or 128)],
)
def test_tiles_of_every_swizzle(emulated: Emulated, swizzle: int, offset: int) -> None:
    width = WIDTHS[swizzle]
    operands = Operands(72, seed=swizzle)
    # Strides above the least, and for the plain layout both offsets in unusual roles.
    stride = 2 * 8 * width or 272
    leading = 16 if width else 128 * 1024 // 8 - 272
    a, b = (Tile(start + offset, swizzle, leading, stride) for start in (A, B))
    program = Program(loads=5)
    a.put(program.image, operands.a[:, 0])
    b.put(program.image, operands.b[:, 0])
    put_scales(program.image, SCALES, operands.scales_a[:, 0])
    put_scales(program.image, SCALES + 512, operands.scales_b[:, 0])
    program.copy(SFA, scales_descriptor(SCALES))
    program.copy(SFB, scales_descriptor(SCALES + 512))
    program.multiply(
        a=a.descriptor(), b=b.descriptor(), instruction=instruction(72), scales_a=SFA, scales_b=SFB
    )
    program.commit()
    message, out = program.run(emulated(FILE))
    assert message == ""
    assert np.array_equal(accumulator(out[0], 72), operands.sums())


def test_leading_offset_of_a_swizzled_tile_does_not_matter(emulated: Emulated) -> None:
    operands = Operands(8)
    results = []
    for leading in (0, 16, 4096):
        program = simple(operands)
        multiply = next(each for each in program.operations if each["kind"] == 1)
        multiply["a"] = Tile(A, leading=leading).descriptor()
        message, out = program.run(emulated(FILE))
        assert message == ""
        results.append(accumulator(out[0], 8))
    assert all(np.array_equal(result, operands.sums()) for result in results)


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_scales_of_b_start_at_any_column(emulated: Emulated, offset: int) -> None:
    # A tile of 32 columns at 32 · offset of a block of 128, whose scales are all there.
    block = Operands(128, seed=offset)
    tile = Operands(32, seed=offset)
    tile.b = block.b[32 * offset : 32 * offset + 32]
    tile.a, tile.scales_a = block.a, block.scales_a
    program = simple(tile)
    put_scales(program.image, SCALES + 512, block.scales_b[:, 0])
    multiply = next(each for each in program.operations if each["kind"] == 1)
    multiply["scales_b"] = SFB + offset
    tile.scales_b = block.scales_b[32 * offset : 32 * offset + 32]
    message, out = program.run(emulated(FILE))
    assert message == ""
    assert np.array_equal(accumulator(out[0], 32), tile.sums())


@pytest.mark.parametrize("signs", [1, 2, 3])
def test_signs_of_the_instruction(emulated: Emulated, signs: int) -> None:
    operands = Operands(16, seed=9)
    program = simple(operands, extra=signs << 13)
    _, out = program.run(emulated(FILE))
    got = accumulator(out[0], 16).view(np.float32)
    expected = operands.sums().view(np.float32) * (1 if signs == 3 else -1)
    assert np.array_equal(got, expected)


def test_copy_repeats_its_rows_for_every_warp(emulated: Emulated) -> None:
    program = Program(load_column=32)
    program.image[:512] = np.random.default_rng(2).integers(0, 256, 512, np.uint8)
    program.copy(36, scales_descriptor(0))
    program.commit()
    message, out = program.run(emulated(FILE))
    rows = program.image[:512].view(np.uint32).reshape(32, 4)
    assert message == ""
    assert np.array_equal(out[0, 0, :, 4:8], np.tile(rows, (4, 1)))
    assert (out[0, 0, :, :4] == 0xFFFFFFFF).all() and (out[0, 0, :, 8:] == 0xFFFFFFFF).all()


def ld_cells(shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Lane and column of thread and register, PTX ISA figures of 9.7.16.2: of one warp."""
    t, r = np.meshgrid(np.arange(32), np.arange(REGISTERS), indexing="ij")
    if shape == 0:
        return t, r
    half = 16 * (shape >= 10)
    if shape % 10 == 1:
        return half + t // 4 + 8 * (t & 1), (t >> 1 & 1) + 2 * r
    return half + t // 4 + 8 * (r >> 1 & 1), 2 * (t % 4) + (r & 1) + 8 * (r // 4)


@pytest.mark.parametrize("shape", [0, 1, 2, 11, 12])
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_loads_of_every_shape(emulated: Emulated, shape: int, check: bool) -> None:
    lanes, columns = np.meshgrid(np.arange(LANES), np.arange(COLUMNS), indexing="ij")
    program = Program(shape=shape, load_column=160, loads=3)
    program.fill = (lanes << 16 | columns).astype(np.uint32)[None]
    of = emulated(FILE, check=check)
    message, out = program.run(of)
    assert message == "" and of.findings() == []
    lane, column = ld_cells(shape)
    width = REGISTERS * (1 if shape == 0 else 2)
    for load in range(3):
        for warp in range(4):
            expected = 32 * warp + lane << 16 | 160 + load * width + column
            assert np.array_equal(out[0, load, 32 * warp : 32 * warp + 32], expected)


# ---- pairs of CTAs ---------------------------------------------------------------------------


@pytest.mark.parametrize("n", [16, 128, 256])
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_a_pair_multiplies_together(emulated: Emulated, n: int, check: bool) -> None:
    operands = Operands(n, seed=n, rows=256)
    of = emulated(FILE, check=check, seed=n)
    message, out = pair(operands).run(of)
    assert message == "" and of.findings() == []
    for rank in range(2):
        expected = operands.sums(rows=slice(128 * rank, 128 * rank + 128))
        assert np.array_equal(accumulator(out[rank], n), expected)


def test_a_pair_allocates_together(emulated: Emulated) -> None:
    of = emulated(FILE)
    message, _ = pair(Operands(16, rows=256)).run(of, "pair one allocates")
    assert message.startswith("hang")
    assert {each["kind"] for each in of.report()["waits"]} >= {"tmem-alloc"}
