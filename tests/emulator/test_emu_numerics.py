"""The emulator's arithmetic against independent models: block-scaled products, conversions, red;
and that each fact of the tensor core, broken, makes a right product wrong."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensor_model import (
    COLUMNS,
    LANES,
    Operands,
    Program,
    Tile,
    accumulator,
    bits,
    call,
    codes,
    hardware_element,
    instruction,
    pair,
    pointer,
    products,
    simple,
    to_fp32_truncated,
    ue4m3,
)

FILE = "numerics_kernels.cu"
TENSOR_FILE = "tensor_kernels.cu"
FACTS = Path(__file__).parents[2] / "kernels/common/backend/emu/runtime/facts.hpp"
Emulated = Callable[..., Any]


# ---- block-scaled products -------------------------------------------------------------------


def check_hardware_rounding(emulated: Emulated, operands: Operands, old: np.ndarray, n: int) -> int:
    """Compare a launch with the rational model; how many elements differ from fp32 addition."""
    program = simple(operands, accumulate=True)
    program.fill = np.zeros((1, LANES, COLUMNS), np.uint32)
    program.fill[0, :, :n] = old
    message, out = program.run(emulated(TENSOR_FILE, mma_rounding="hardware"))
    assert message == ""
    got = accumulator(out[0], n)
    _, plain = program.run(emulated(TENSOR_FILE))
    a, b = codes(operands.a[:, 0]).tolist(), codes(operands.b[:, 0]).tolist()
    for m in range(LANES):
        for column in range(n):
            expected = hardware_element(
                int(old[m, column]),
                a[m],
                b[column],
                operands.scales_a[m, 0].tolist(),
                operands.scales_b[column, 0].tolist(),
            )
            assert got[m, column] == expected, (m, column, hex(got[m, column]), hex(expected))
    return int((got != accumulator(plain[0], n)).sum())


def largest_exponent(operands: Operands, m: int, n: int) -> int:
    """Of the four blocks of an element, by their scales."""

    def exponent(code: int) -> int:
        return -126 if code == 0 else max(code >> 3, 1) - 7

    pairs = zip(operands.scales_a[m, 0], operands.scales_b[n, 0], strict=True)
    return max(exponent(int(a)) + exponent(int(b)) for a, b in pairs)


@pytest.mark.parametrize("seed", range(3))
def test_hardware_rounding_of_sums(emulated: Emulated, seed: int) -> None:
    n = 8
    operands = Operands(n, seed=seed)
    random = np.random.default_rng(100 + seed)
    old = bits(random.normal(0, 1, (LANES, n)) * 10.0 ** random.integers(-3, 6, (LANES, n)))
    assert check_hardware_rounding(emulated, operands, old, n) > LANES * n / 10


@pytest.mark.parametrize("low", [0x00, 0x01, 0x40])
def test_hardware_rounding_where_terms_are_cut(emulated: Emulated, low: int) -> None:
    # Old values from 45 binades below the largest block to 45 above: the cuts lie at 12 and 27.
    n = 8
    operands = Operands(n, seed=low)
    random = np.random.default_rng(low)
    operands.scales_a[:, 0] = random.integers(low, 0x7F, (LANES, 4))
    operands.scales_b[:n, 0] = random.integers(0, 0x7F, (n, 4))
    operands.scales_a[:, 0, 1] = random.choice([0, 1, 7, 8, 0x7E], LANES)
    old = np.zeros((LANES, n), np.uint32)
    for m in range(LANES):
        for column in range(n):
            exponent = largest_exponent(operands, m, column) + int(random.integers(-45, 46))
            mantissa = (0, 1, 0x7FFFFF, int(random.integers(0, 1 << 23)))[random.integers(0, 4)]
            field = min(max(exponent + 127, 0), 254)
            old[m, column] = int(random.integers(0, 2)) << 31 | field << 23 | mantissa
    check_hardware_rounding(emulated, operands, old, n)


@pytest.mark.parametrize("zero", ["a", "b", "neither"])
def test_a_scale_of_zero_does_not_cut_the_others(emulated: Emulated, zero: str) -> None:
    # Block 0 would have the largest exponent by its other scale; the rest is far below.
    operands = Operands(8, seed=6)
    for scales, name in ((operands.scales_a, "a"), (operands.scales_b, "b")):
        scales[:, 0, 1:] &= 0x07
        scales[:, 0, 0] = 0 if name == zero else 0x7E
    old = np.full((LANES, 8), (127 - 20) << 23 | 0x2AAAAB, np.uint32)
    check_hardware_rounding(emulated, operands, old, 8)


@pytest.mark.parametrize(("distance", "kept"), [(12, True), (13, False)])
def test_old_value_is_cut_13_binades_below(emulated: Emulated, distance: int, kept: bool) -> None:
    # One block of 2^0 · 1 beside an old value whose last bit is 2^(-23 - distance).
    operands = Operands(8)
    operands.a[:], operands.b[:] = 0, 0
    operands.a[:, 0, 0], operands.b[:, 0, 0] = 2, 2
    operands.scales_a[:], operands.scales_b[:] = 0x38, 0x38
    old = np.full((LANES, 8), (127 - distance) << 23 | 1, np.uint32)
    got = hardware_element(int(old[0, 0]), [2] + [0] * 63, [2] + [0] * 63, [0x38] * 4, [0x38] * 4)
    # The kept bit falls to the final truncation: seen with the opposite sign.
    assert got == 0x3F800000 + (1 << 23 >> distance)
    negative = old | 1 << 31
    below = hardware_element(
        int(negative[0, 0]), [2] + [0] * 63, [2] + [0] * 63, [0x38] * 4, [0x38] * 4
    )
    exact = Fraction(1) - Fraction(2) ** -distance * (1 + Fraction(1, 1 << 23))
    without = Fraction(1) - Fraction(2) ** -distance
    assert below == to_fp32_truncated(exact if kept else without)
    check_hardware_rounding(emulated, operands, negative, 8)


def test_both_modes_agree_where_sums_are_exact(emulated: Emulated) -> None:
    operands = Operands(128, seed=7)
    operands.a &= 0xBB  # magnitudes 0, 0.5, 1, 1.5
    operands.b &= 0xBB
    operands.scales_a = np.where(operands.scales_a & 1, 0x38, 0x40).astype(np.uint8)
    operands.scales_b = np.where(operands.scales_b & 1, 0x38, 0x40).astype(np.uint8)
    exact = products(
        operands.a[:, 0], operands.b[:, 0], operands.scales_a[:, 0], operands.scales_b[:, 0]
    ).sum(axis=2)
    for rounding in ("fp32", "hardware"):
        message, out = simple(operands).run(emulated(TENSOR_FILE, mma_rounding=rounding))
        assert message == ""
        assert np.array_equal(accumulator(out[0], 128), bits(exact))


@pytest.mark.parametrize("rounding", ["fp32", "hardware"])
def test_a_scale_that_is_nan_gives_nan(emulated: Emulated, rounding: str) -> None:
    operands = Operands(24, seed=1)
    operands.scales_a[5, 0, 2] = 0x7F
    operands.scales_b[17, 0, 0] = 0xFF
    operands.a[9] = 0  # nothing times NaN
    operands.scales_b[17, 0, 1:] = 0
    _, out = simple(operands).run(emulated(TENSOR_FILE, mma_rounding=rounding))
    nan = np.isnan(accumulator(out[0], 24).view(np.float32))
    expected = np.zeros((LANES, 24), bool)
    expected[5], expected[:, 17] = True, True
    assert np.array_equal(nan, expected)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("nan", ["none", "row", "column"])
def test_rows_of_zeros(emulated: Emulated, accumulate: bool, nan: str) -> None:
    # As a copy leaves them beyond the last row of A and of B: whole blocks that take no arithmetic.
    n = 96
    operands = Operands(n, seed=3)
    operands.a &= 0xBB  # exact sums
    operands.b &= 0xBB
    operands.a[40:], operands.b[48:] = 0, 0
    operands.a[100], operands.b[70] = 0x80, 0x08  # negative zeros
    operands.scales_a = np.where(operands.scales_a & 1, 0x38, 0x40).astype(np.uint8)
    operands.scales_b = np.where(operands.scales_b & 1, 0x38, 0x40).astype(np.uint8)
    if nan == "row":
        operands.scales_a[99, 0, 1] = 0x7F
    if nan == "column":
        operands.scales_b[90, 0, 3] = 0xFF
    sides = (operands.a, operands.b, operands.scales_a, operands.scales_b[:n])
    with np.errstate(invalid="ignore"):
        expected = products(*(side[:, 0] for side in sides)).sum(axis=2)
    program = simple(operands, accumulate=accumulate)
    program.fill = np.full((1, LANES, COLUMNS), bits(np.array([2.5]))[0], np.uint32)
    message, out = program.run(emulated(TENSOR_FILE))
    assert message == ""
    got = accumulator(out[0], n).view(np.float32)
    assert np.array_equal(got, expected + (2.5 if accumulate else 0), equal_nan=True)
    assert np.isnan(got).any() == (nan != "none")


def test_scales_over_their_whole_range(emulated: Emulated) -> None:
    # Exact products of all pairs of scales, one element each.
    operands = Operands(128)
    operands.a[:], operands.b[:] = 0, 0
    operands.a[:, 0, 0], operands.b[:, 0, 0] = 1, 7  # 0.5 · 6
    operands.scales_a[:, 0] = np.arange(128)[:, None]
    operands.scales_b[:, 0] = np.arange(128)[:, None]
    scales = np.array([ue4m3(code) for code in range(128)])
    expected = 3 * scales[:, None] * scales[None, :]
    for rounding in ("fp32", "hardware"):
        _, out = simple(operands).run(emulated(TENSOR_FILE, mma_rounding=rounding))
        got = accumulator(out[0], 128).view(np.float32)
        assert np.array_equal(got, expected.astype(np.float32), equal_nan=True)


def test_scales_that_are_powers_of_two(emulated: Emulated) -> None:
    n = 8
    operands = Operands(n, seed=3)
    random = np.random.default_rng(3)
    operands.scales_a[:, 0] = random.integers(0, 255, (LANES, 4))
    operands.scales_b[:n, 0] = random.integers(0, 255, (n, 4))
    # Most sums inside fp32; the last rows' are subnormal, and one scale is NaN.
    operands.scales_a[:64, 0] = random.integers(100, 150, (64, 4))
    operands.scales_b[:n, 0] = random.integers(100, 150, (n, 4))
    operands.scales_a[64:, 0] = random.integers(0, 20, (64, 4))
    operands.scales_a[3, 0, 3] = 0xFF
    program = simple(operands, extra=1 << 23)
    message, out = program.run(emulated(TENSOR_FILE))
    assert message == ""
    got = accumulator(out[0], n)
    a, b = codes(operands.a[:, 0]).tolist(), codes(operands.b[:, 0]).tolist()
    for m in range(LANES):
        for column in range(n):
            scales = operands.scales_a[m, 0].tolist(), operands.scales_b[column, 0].tolist()
            expected = hardware_element(0, a[m], b[column], *scales, ue8m0=True)
            assert got[m, column] == expected, (m, column)


# ---- broken facts ----------------------------------------------------------------------------


def facts() -> dict[str, int]:
    """The enumeration in facts.hpp."""
    body = FACTS.read_text().split("enum class Fact", 1)[1].split("};", 1)[0]
    return {name: i for i, name in enumerate(re.findall(r"^\s+k(\w+)", body, re.MULTILINE))}


# Those of the TMA are not of these kernels; the others name the launch that sees them.
TMA_FACTS = {"None", "NoSwizzle", "SwizzleRelative", "SwizzleRowBit", "Count"}


@pytest.mark.parametrize("fact", sorted(facts().keys() - TMA_FACTS))
@pytest.mark.parametrize("rounding", ["fp32", "hardware"])
def test_a_broken_fact_makes_a_right_product_wrong(
    emulated: Emulated, fact: str, rounding: str
) -> None:
    def launch(broken: int) -> tuple[str, np.ndarray]:
        of = emulated(TENSOR_FILE, mma_rounding=rounding, broken_fact=broken)
        return program.run(of)

    if fact.startswith("Pair"):
        operands = Operands(64, rows=256)
        program = pair(operands)
    else:
        operands = Operands(64, steps=2)
        program = simple(operands)
    if fact == "ScaleBOffsetIgnored":
        program = simple(Operands(32))
        next(each for each in program.operations if each["kind"] == 1)["scales_b"] += 1
    if fact == "OffsetsExchanged":  # a layout in which the hardware reads both
        program = plain_layout(operands)
    if fact == "Load16x256Exchanged":
        program.shape = 2
        program.loads = 2
    message, right = launch(0)
    assert message == ""
    message, wrong = launch(facts()[fact])
    assert message == ""
    assert not np.array_equal(right, wrong)


def plain_layout(operands: Operands) -> Program:
    """Without swizzle, 16-byte columns of K 4096 apart."""
    program = simple(operands)
    multiplies = [each for each in program.operations if each["kind"] == 1]
    program.operations = [each for each in program.operations if each is not multiplies[1]]
    for name, start, rows in (("a", 0, operands.a), ("b", 32 * 1024, operands.b)):
        program.image[start : start + 32 * 1024] = 0
        tile = Tile(start, swizzle=0, leading=4096, stride=128)
        tile.put(program.image, rows[:, 0])
        multiplies[0][name] = tile.descriptor()
    return program


# ---- conversions -----------------------------------------------------------------------------


def float_cases() -> np.ndarray:
    """Every upper half of fp32 with lower halves around ties, and random ones."""
    random = np.random.default_rng(0)
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    lower = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    cases = [upper | low for low in lower]
    cases.append(upper | random.integers(0, 1 << 16, 1 << 16, np.uint32))
    return np.concatenate(cases).view(np.float32)


def test_narrowing_conversions(emulated: Emulated) -> None:
    values = float_cases()
    count = values.size
    f16, bf16 = np.zeros(count, np.uint32), np.zeros(count, np.uint32)
    e4m3 = np.zeros(count, np.uint16)
    of = emulated(FILE)
    of.register(values, "in")
    for name, array in (("f16", f16), ("bf16", bf16), ("e4m3", e4m3)):
        of.register(array, name, writable=True)
    outs = [pointer(array) for array in (f16, bf16, e4m3)]
    assert call(of, "run_narrow", pointer(values), *outs, ctypes.c_uint32(count)) == ""
    tensor = torch.from_numpy(values.copy())
    nan = np.isnan(values)
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16).view(np.uint16)
    expected = {
        "f16": np.where(nan, 0x7FFF, halves),
        "bf16": np.where(nan, 0x7FFF, tensor.bfloat16().view(torch.int16).numpy().view(np.uint16)),
        "e4m3": np.where(
            nan, 0x7F, tensor.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        ),
    }
    for got, name, shift in ((f16, "f16", 16), (bf16, "bf16", 16), (e4m3, "e4m3", 8)):
        low = expected[name].astype(np.uint32)
        assert np.array_equal(got, low | low[::-1] << shift), name


def test_widening_conversions(emulated: Emulated) -> None:
    f32, f16 = np.zeros(1 << 16, np.uint32), np.zeros(1 << 16, np.uint32)
    of = emulated(FILE)
    of.register(f32, "f32", writable=True)
    of.register(f16, "f16", writable=True)
    assert call(of, "run_widen", pointer(f32), pointer(f16)) == ""
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = every.view(np.float16).astype(np.float32)
    assert np.array_equal(f32, np.where(np.isnan(wide), 0x7FFFFFFF, bits(wide)))
    byte = torch.arange(256, dtype=torch.uint8)
    half = byte.view(torch.float8_e4m3fn).to(torch.float16).view(torch.int16).numpy()
    half = np.where((byte.numpy() & 127) == 127, 0x7FFF, half.view(np.uint16)).astype(np.uint32)
    assert np.array_equal(f16, half[every & 255] | half[every >> 8] << 16)


# ---- red -------------------------------------------------------------------------------------


def test_red_adds_from_many_ctas(emulated: Emulated) -> None:
    count, ctas, rounds = 256, 40, 25
    sums = np.zeros(2 * count, np.float32)
    values = np.arange(count, dtype=np.float32) + 1
    of = emulated(FILE, os_threads=2)
    of.register(sums, "sums", writable=True)
    of.register(values, "values")
    numbers = [ctypes.c_uint32(each) for each in (count, rounds, ctas)]
    assert call(of, "run_add", pointer(sums), pointer(values), *numbers) == ""
    assert np.array_equal(sums[:count], values * ctas * rounds)
    halves = np.where(np.arange(count) % 4 < 2, values * ctas * rounds, 0)
    assert np.array_equal(sums[count:], halves)


def test_red_flushes_subnormals_and_has_one_nan(emulated: Emulated) -> None:
    # Seen on an H200.
    sums = np.array([1, 0x00400000, 0x00800001, 0x7FC12345, 3, 0x80000005, 0, 0], np.uint32)
    values = np.array([1, 0x00400001, 0x80800000, 0x3F800000], np.uint32)
    of = emulated(FILE)
    of.register(sums, "sums", writable=True)
    of.register(values, "values")
    numbers = [ctypes.c_uint32(each) for each in (4, 1, 1)]
    assert call(of, "run_add", pointer(sums), pointer(values), *numbers) == ""
    assert sums.tolist() == [0, 0, 0, 0x7FFFFFFF, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("shift", "kind"), [(1, "alignment"), (2, "alignment"), (1024, "out-of-bounds")]
)
def test_red_outside_its_place_is_found(emulated: Emulated, shift: int, kind: str) -> None:
    storage = np.zeros(512, np.float32)
    storage = storage[-(storage.ctypes.data // 4) % 4 :][:128]
    values = np.ones(64, np.float32)
    of = emulated(FILE)
    of.register(storage, "sums", writable=True)
    of.register(values, "values")
    at = ctypes.c_void_p(storage.ctypes.data + 4 * shift)
    numbers = [ctypes.c_uint32(each) for each in (16, 1, 1)]
    assert call(of, "run_add", at, pointer(values), *numbers).startswith(kind)


def test_instruction_of_the_model_is_the_documented_one() -> None:
    assert instruction(128) == 0x08200480
