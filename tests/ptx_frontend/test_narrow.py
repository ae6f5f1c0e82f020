"""Conversions to and from floats of 8 bits and fewer, tf32, ue8m0, and packed integers: models."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from conformance import TUPLES, Case, operands_of, results
from exact import F16, F32, FORMATS, NAN, Real
from integer_model import clamped, signed

pytestmark = pytest.mark.usefixtures("emulator_runtime")

#: Bits of the exponent and of the fraction; whether the last code is a NaN, and the one before the
#: fractions an infinity.
KINDS = {
    "e4m3x2": (4, 3, "nan"), "e5m2x2": (5, 2, "ieee"), "e2m3x2": (2, 3, ""), "e3m2x2": (3, 2, ""),
    "e2m1x2": (2, 1, ""),
}  # fmt: skip


def value_of(kind: str, code: int) -> Real:
    """What a code stands for."""
    exponent_bits, fraction_bits, special = KINDS[kind]
    bias = (1 << exponent_bits - 1) - 1
    sign = code >> exponent_bits + fraction_bits & 1
    exponent = code >> fraction_bits & (1 << exponent_bits) - 1
    fraction = code & (1 << fraction_bits) - 1
    if special == "ieee" and exponent == (1 << exponent_bits) - 1:
        return Real(sign, "nan" if fraction else "inf")
    if special == "nan" and code & 127 == 127:
        return NAN
    whole = fraction | (1 << fraction_bits if exponent else 0)
    return Real(sign, whole * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits))


def code_of(kind: str, value: Real) -> int:
    """The nearest of all finite codes, ties to the even one; what is beyond them is the largest."""
    exponent_bits, fraction_bits, special = KINDS[kind]
    magnitudes = range(1 << exponent_bits + fraction_bits)
    finite = [each for each in magnitudes if value_of(kind, each).finite]
    if value.size == "nan":
        return 127 if special else finite[-1]
    top = value.sign << exponent_bits + fraction_bits
    if value.size == "inf":
        return top | finite[-1]
    return top | min(
        finite,
        key=lambda code: (abs(value_of(kind, code).size - value.size), code & 1),  # type: ignore[operator]
    )


def _positive(value: Real, opcode: str) -> Real:
    negative = value.sign and value.size != "nan"
    return Real(0, Fraction(0)) if ".relu" in opcode and negative else value


def _joined(kind: str, high: int, low: int) -> int:
    return high << (4 if kind == "e2m1x2" else 8) | low


def _wrong(cases: Sequence[Case], expected) -> list[str]:
    found = results(cases)
    wrong = []
    for case in cases:
        given = [operands_of(kind, at) for at, kind in enumerate(case.types[1:])]
        for at in range(TUPLES):
            operands = [each[at] for each in given]
            want = expected(case, operands)
            if found[case][at] != want:
                wrong.append(f"{case.opcode}({operands}) is {found[case][at]:#x}, not {want:#x}")
                break
    return wrong


RELU = ("", ".relu")
#: An H200 has those of 8 bits.
EIGHT, FEWER = ("e4m3x2", "e5m2x2"), ("e2m3x2", "e3m2x2", "e2m1x2")


@pytest.mark.parametrize(
    "kinds",
    [pytest.param(EIGHT, id="8 bits", marks=pytest.mark.long), pytest.param(FEWER, id="fewer")],
)
def test_to_narrow_floats(kinds):
    cases = [
        Case(f"cvt.rn.satfinite{relu}.{kind}.f32", (_held(kind), "f32", "f32"))
        for kind in kinds
        for relu in RELU
    ]
    cases += [
        Case(f"cvt.rn.satfinite{relu}.{kind}.f16x2", ("b16", "f16x2"))
        for kind in sorted(set(kinds) & set(EIGHT))
        for relu in RELU
    ]

    def expected(case: Case, operands: list[int]) -> int:
        kind = next(each for each in case.opcode.split(".") if each in KINDS)
        if case.types[1] == "f32":
            high, low = (F32.decode(each) for each in operands)
        else:
            high, low = F16.decode(operands[0] >> 16), F16.decode(operands[0] & 0xFFFF)
        return _joined(kind, *(code_of(kind, _positive(each, case.opcode)) for each in (high, low)))

    assert _wrong(cases, expected) == []


def _held(kind: str) -> str:
    return "b8" if kind == "e2m1x2" else "b16"


@pytest.mark.parametrize("kinds", [EIGHT, FEWER], ids=["8 bits", "fewer"])
def test_from_narrow_floats(kinds):
    cases = [
        Case(f"cvt.rn{relu}.f16x2.{kind}", ("b32", _held(kind))) for kind in kinds for relu in RELU
    ]

    def expected(case: Case, operands: list[int]) -> int:
        kind = case.opcode.split(".")[-1]
        shift = 4 if kind == "e2m1x2" else 8
        codes = [operands[0] >> at & (1 << shift) - 1 for at in (shift, 0)]
        high, low = (_positive(value_of(kind, each), case.opcode) for each in codes)
        return F16.encode(high) << 16 | F16.encode(low)

    assert _wrong(cases, expected) == []


def test_with_relu_and_tf32():
    cases = [
        Case(f"cvt.{mode}{relu}.tf32.f32", ("b32", "f32"))
        for mode in ("rn", "rz", "rna")
        for relu in RELU
        if not (mode == "rna" and relu)
    ]
    cases += [Case("cvt.f16.f16", ("b16", "f16"))]

    def expected(case: Case, operands: list[int]) -> int:
        mode = case.opcode.split(".")[1]
        if case.opcode == "cvt.f16.f16":
            return FORMATS["f16"].encode(FORMATS["f16"].decode(operands[0]))
        if mode == "rna" and F32.decode(operands[0]).size == "nan":
            return operands[0] & ~0x1FFF
        return _tf32(_positive(F32.decode(operands[0]), case.opcode), mode)

    assert _wrong(cases, expected) == []


def test_conversions_between_halves():
    cases = [
        Case(f"cvt{mode}.{to}.{of}", ("b16", of))
        for to, of in (("f16", "bf16"), ("bf16", "f16"))
        for mode in (".rn", ".rz", "")
    ]

    def expected(case: Case, operands: list[int]) -> int:
        _, *mode, to, of = case.opcode.split(".")
        return FORMATS[to].encode(FORMATS[of].decode(operands[0]), *mode)

    assert _wrong(cases, expected) == []


def _tf32(value: Real, mode: str) -> int:
    """11 bits of significand in an f32; ``rna``: half-way cases away from zero."""
    if not value.finite:
        return F32.encode(value) & ~0x1FFF
    bits = F32.encode(value)
    low, kept = bits & 0x1FFF, bits & ~0x1FFF
    up = {"rz": False, "rna": low >= 0x1000}.get(
        mode, low > 0x1000 or (low == 0x1000 and bool(kept & 0x2000))
    )
    return kept + (0x2000 if up else 0)


def test_scales_of_powers_of_two():
    cases = [
        Case(f"cvt.{mode}{sat}.ue8m0x2.f32", ("b16", "f32", "f32"))
        for mode in ("rz", "rp")
        for sat in ("", ".satfinite")
    ]

    def expected(case: Case, operands: list[int]) -> int:
        up = ".rp" in case.opcode
        codes = []
        for each in operands:
            size = F32.decode(each).size
            if isinstance(size, str):
                codes.append(255 if size == "nan" else 254)
                continue
            powers = [Fraction(2) ** (code - 127) for code in range(255)]
            at = sum(each < size if up else each <= size for each in powers)
            codes.append(min(at, 254) if up else max(at - 1, 0))
        return codes[0] << 8 | codes[1]

    assert _wrong(cases, expected) == []


def test_packed_integers():
    cases = [Case(f"cvt.pack.sat.{kind}.s32", ("b32", "s32", "s32")) for kind in ("u16", "s16")] + [
        Case(f"cvt.pack.sat.{kind}.s32.b32", ("b32", "s32", "s32", "b32")) for kind in ("u8", "s8")
    ]

    def expected(case: Case, operands: list[int]) -> int:
        kind = case.opcode.split(".")[3]
        bits = int(kind[1:])
        a, b = (clamped(signed(each, "s32"), kind) & (1 << bits) - 1 for each in operands[:2])
        found = a << bits | b
        return (operands[2] << 16 | found) & 0xFFFFFFFF if bits == 8 else found

    assert _wrong(cases, expected) == []
