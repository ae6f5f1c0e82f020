"""wgmma in the emulator: fragments, descriptors, Hopper's rounding, and what is found wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tensor_model import bits, call, kinds

FILE = "numerics_kernels.cu"
Emulated = Callable[..., Any]

WGMMA_FAULTS = (
    "right", "no fence", "no wait", "never waits", "no proxy fence", "overwrite tile",
    "pending tile", "wait twice", "one warp less", "one waits",
)  # fmt: skip


class Product(ctypes.Structure):
    """``Product`` of numerics_kernels.cu."""

    _fields_ = (
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("d", ctypes.c_void_p),
        ("steps", ctypes.c_int32),
        ("swizzled", ctypes.c_int32),
        ("a_in_registers", ctypes.c_int32),
        ("fault", ctypes.c_int32),
    )


def run_wgmma(
    of: Any,
    a: np.ndarray,
    b: np.ndarray,
    *,
    swizzled: bool = True,
    a_in_registers: bool = False,
    fault: str = "right",
) -> tuple[str, np.ndarray]:
    """Message and D of a product of a [steps, 64, k] and b [steps, columns, k]."""
    steps, columns = b.shape[:2]
    d = np.zeros((64, columns), np.float32)
    of.register(a, "a")
    of.register(b, "b")
    of.register(d, "d", writable=True)
    product = Product(
        a.ctypes.data,
        b.ctypes.data,
        d.ctypes.data,
        steps,
        swizzled,
        a_in_registers,
        WGMMA_FAULTS.index(fault),
    )
    f16 = a.dtype == np.float16
    return call(of, "run_product", ctypes.byref(product), columns, int(f16)), d


def parts(code: int, exponent_bits: int, mantissa_bits: int) -> tuple[Fraction, int]:
    """Value and exponent of a finite float's bits."""
    mantissa = code & (1 << mantissa_bits) - 1
    field = code >> mantissa_bits & (1 << exponent_bits) - 1
    exponent = max(field, 1) - (1 << exponent_bits - 1) + 1
    value = (Fraction(mantissa, 1 << mantissa_bits) + bool(field)) * Fraction(2) ** exponent
    return (-value if code >> exponent_bits + mantissa_bits else value), exponent


def hopper_step(
    old: Fraction,
    a: list[tuple[Fraction, int]],
    b: list[tuple[Fraction, int]],
    fraction: int,
    mantissa: int,
) -> Fraction:
    """One operation's element: terms cut to the largest exponent, the sum cut to its mantissa."""
    terms = [(x[0] * y[0], x[1] + y[1]) for x, y in zip(a, b, strict=True) if x[0] * y[0]]
    if old:
        terms.append((old, floor_log2(abs(old))))
    if not terms:
        return Fraction(0)
    unit = Fraction(2) ** (max(exponent for _, exponent in terms) - fraction)
    total = sum(int(value / unit) for value, _ in terms) * unit
    if not total:
        return Fraction(0)
    last = Fraction(2) ** (floor_log2(abs(total)) - mantissa)
    return int(total / last) * last


def floor_log2(value: Fraction) -> int:
    """Exponent of a positive rational."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess - (value < Fraction(2) ** guess)


FORMATS = {"e4m3": (4, 3, 32, 13, 13), "f16": (5, 10, 16, 25, 23)}


def random_operand(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random finite codes of every exponent, a fifth of them zero."""
    random = np.random.default_rng(seed)
    if kind == "e4m3":
        values = random.integers(0, 256, shape, np.uint8)
        values[values & 127 == 127] = 1
    else:
        values = random.integers(0, 1 << 16, shape, np.uint16)
        values[values >> 10 & 31 == 31] = 1
    values[random.random(shape) < 0.2] = 0
    return values if kind == "e4m3" else values.view(np.float16)


@pytest.mark.parametrize(("kind", "columns"), [("e4m3", 8), ("e4m3", 64), ("f16", 64)])
@pytest.mark.parametrize("a_in_registers", [False, True], ids=["tiles", "fragments"])
@pytest.mark.parametrize("swizzled", [False, True], ids=["plain", "swizzled"])
def test_wgmma_rounds_as_hopper(
    emulated: Emulated, kind: str, columns: int, a_in_registers: bool, swizzled: bool
) -> None:
    exponent_bits, mantissa_bits, k, fraction, mantissa = FORMATS[kind]
    steps = 3
    a = random_operand(kind, (steps, 64, k), 1)
    b = random_operand(kind, (steps, columns, k), 2)
    of = emulated(FILE, mma_rounding="hardware")
    message, d = run_wgmma(of, a, b, swizzled=swizzled, a_in_registers=a_in_registers)
    assert message == ""
    as_int = np.uint8 if kind == "e4m3" else np.uint16
    for m in range(0, 64, 5):
        for n in range(0, columns, 1 if columns == 8 else 13):
            total = Fraction(0)
            for step in range(steps):
                left, right = (
                    [parts(int(code), exponent_bits, mantissa_bits) for code in row.view(as_int)]
                    for row in (a[step, m], b[step, n])
                )
                total = hopper_step(total, left, right, fraction, mantissa)
            assert Fraction(float(d[m, n])) == total, (m, n)


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("fault", ["right", "wait twice"])
@pytest.mark.parametrize(("kind", "columns"), [("e4m3", 128), ("f16", 128)])
def test_wgmma_of_small_integers_is_exact(
    emulated: Emulated, kind: str, columns: int, fault: str, check: bool
) -> None:
    random = np.random.default_rng(5)
    k = FORMATS[kind][2]
    a = random.integers(-2, 3, (8, 64, k)).astype(np.float32)
    b = random.integers(-2, 3, (8, columns, k)).astype(np.float32)
    exact = np.einsum("smk,snk->mn", a, b)
    if kind == "e4m3":
        a, b = (
            torch.from_numpy(each).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
            for each in (a, b)
        )
    else:
        a, b = a.astype(np.float16), b.astype(np.float16)
    for seed in range(4 if check else 1):
        of = emulated(FILE, check=check, seed=seed)
        message, d = run_wgmma(of, a, b, fault=fault)
        assert message == "" and of.findings() == []
        assert np.array_equal(d, exact)


def test_fp8_accumulator_keeps_14_bits(emulated: Emulated) -> None:
    # As probed on an H200: from 8192 on in steps of 1, of 2 from 16384 on, each term truncated.
    one, two, three, big = 0x38, 0x40, 0x44, 0x68  # big is 64
    for fours, terms, expected in (
        (4, [one], 16384),
        (4, [two], 16386),
        (4, [three], 16386),
        (4, [one, one], 16384),
        (2, [one], 8193),
    ):
        a, b = np.zeros((2, 64, 32), np.uint8), np.zeros((2, 8, 32), np.uint8)
        a[0, :, :fours], b[0, :, :fours] = big, big
        a[1, :, : len(terms)], b[1, :, : len(terms)] = terms, one
        _, d = run_wgmma(emulated(FILE), a, b)
        assert (d == expected).all(), (terms, d[0, 0])


@pytest.mark.parametrize("rounding", ["fp32", "hardware"])
def test_wgmma_of_values_that_are_not_finite(emulated: Emulated, rounding: str) -> None:
    a = np.ones((1, 64, 16), np.float16)
    b = np.ones((1, 64, 16), np.float16)
    a[0, 1, 3], a[0, 2, 4], a[0, 3, 5], b[0, 7, 5] = np.inf, -np.inf, np.nan, 0
    a[0, 4, 5] = np.inf  # times zero in column 7
    _, d = run_wgmma(emulated(FILE, mma_rounding=rounding), a, b)
    with np.errstate(invalid="ignore"):
        expected = (a[0][:, None, :].astype(np.float32) * b[0][None].astype(np.float32)).sum(2)
    assert np.array_equal(d, expected, equal_nan=True)
    codes8 = np.full((1, 64, 32), 0x38, np.uint8)
    codes8[0, 5, 9] = 0xFF
    _, d = run_wgmma(emulated(FILE), codes8, np.full((1, 8, 32), 0x38, np.uint8))
    assert (bits(d[5]) == 0x7FFFFFFF).all() and (np.delete(d, 5, 0) == 32).all()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("no fence", "order"),
        ("never waits", "exit"),
        ("no proxy fence", "proxy-fence"),
        ("overwrite tile", "overwrite"),
        ("pending tile", "overwrite"),
        ("one warp less", "hang"),
    ],
)
def test_wgmma_faults_are_found(emulated: Emulated, fault: str, kind: str) -> None:
    a, b = random_operand("e4m3", (3, 64, 32), 1), random_operand("e4m3", (3, 64, 32), 2)
    for seed in range(6):
        of = emulated(FILE, check=True, seed=seed)
        run_wgmma(of, a, b, fault=fault)
        assert kinds(of) == {kind}, seed


def test_a_wait_speaks_for_the_warpgroup(emulated: Emulated) -> None:
    """What the other warps read is over as well: a group is the warpgroup's, by an assumption."""
    a, b = random_operand("e4m3", (3, 64, 32), 1), random_operand("e4m3", (3, 64, 32), 2)
    for fault, assumed in (("right", []), ("one waits", ["groups-of-warpgroups"])):
        for seed in range(6):
            of = emulated(FILE, check=True, seed=seed)
            _, right = run_wgmma(of, a, b)
            message, d = run_wgmma(of, a, b, fault=fault)
            assert (message, kinds(of)) == ("", set()), seed
            assert (d == right).all() and of.report()["assumptions"] == assumed, seed


def test_wgmma_registers_hold_poison_until_the_wait(emulated: Emulated) -> None:
    a, b = random_operand("e4m3", (3, 64, 32), 1), random_operand("e4m3", (3, 64, 32), 2)
    _, d = run_wgmma(emulated(FILE, check=True), a, b, fault="no wait")
    assert np.isnan(d).all()
