"""Floating point by exact fractions: an independent model of rounding, for every narrow format."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import NamedTuple


class Real(NamedTuple):
    """A value: a sign and a magnitude, which is a Fraction, ``"inf"`` or ``"nan"``."""

    sign: int
    size: Fraction | str

    @property
    def value(self) -> Fraction:
        assert isinstance(self.size, Fraction)
        return -self.size if self.sign else self.size

    @property
    def finite(self) -> bool:
        return isinstance(self.size, Fraction)


NAN = Real(0, "nan")


@dataclass(frozen=True)
class Format:
    """A binary format: bits in all, of the significand with its hidden one, least exponent."""

    bits: int
    precision: int
    least: int
    nan: int | None

    @property
    def greatest(self) -> Fraction:
        exponent = 1 - self.least
        return (2 - Fraction(1, 1 << self.precision - 1)) * Fraction(2) ** exponent

    def decode(self, bits: int) -> Real:
        return _decoded(self, bits)

    def _decode(self, bits: int) -> Real:
        fraction_bits = self.precision - 1
        sign = bits >> self.bits - 1
        exponent = bits >> fraction_bits & (1 << self.bits - self.precision) - 1
        fraction = bits & (1 << fraction_bits) - 1
        if exponent == (1 << self.bits - self.precision) - 1:
            return Real(sign, "nan" if fraction else "inf")
        if exponent == 0:
            return Real(sign, fraction * Fraction(2) ** (self.least - fraction_bits))
        whole = fraction | 1 << fraction_bits
        return Real(sign, whole * Fraction(2) ** (self.least - fraction_bits + exponent - 1))

    def encode(self, real: Real, mode: str = "rn") -> int:
        """The nearest value that the mode allows; the canonical NaN."""
        top = real.sign << self.bits - 1
        fraction_bits = self.precision - 1
        infinity = (1 << self.bits - self.precision) - 1 << fraction_bits
        size = real.size
        if isinstance(size, str) and size == "nan":
            return self.nan if self.nan is not None else infinity | 1 << fraction_bits - 1
        if isinstance(size, str):
            return top | infinity
        if size == 0:
            return top
        exponent = max(exponent_of(size), self.least)
        whole = scaled(size, fraction_bits - exponent, mode, real.sign)
        if whole == 1 << self.precision:
            whole, exponent = whole >> 1, exponent + 1
        if exponent > 1 - self.least:
            outward = {"rn": True, "rz": False, "rm": bool(real.sign), "rp": not real.sign}[mode]
            return top | (infinity if outward else infinity - 1)
        if whole < 1 << fraction_bits:
            return top | whole
        return top | exponent - self.least + 1 << fraction_bits | whole - (1 << fraction_bits)

    def subnormal(self, real: Real) -> bool:
        return real.finite and 0 < real.size < Fraction(2) ** self.least  # type: ignore[operator]


@cache
def _decoded(form: Format, bits: int) -> Real:
    return form._decode(bits)


F16 = Format(16, 11, -14, 0x7FFF)
BF16 = Format(16, 8, -126, 0x7FFF)
F32 = Format(32, 24, -126, 0x7FFFFFFF)
F64 = Format(64, 53, -1022, None)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def exponent_of(size: Fraction) -> int:
    """Of the highest bit."""
    above, below = size.numerator, size.denominator
    exponent = above.bit_length() - below.bit_length()
    reached = above >= below << exponent if exponent >= 0 else above << -exponent >= below
    return exponent if reached else exponent - 1


def scaled(size: Fraction, shift: int, mode: str, sign: int) -> int:
    """``size * 2 ** shift`` as an integer: the magnitude of what ``rounded`` gives."""
    above, below = size.numerator << max(shift, 0), size.denominator << max(-shift, 0)
    whole, rest = divmod(above, below)
    if mode == "rn":
        return whole + (2 * rest > below or (2 * rest == below and whole % 2 == 1))
    return whole + (rest > 0 and mode == ("rm" if sign else "rp"))


def rounded(value: Fraction, mode: str) -> int:
    """An integer: to the nearest (even), towards zero, down or up."""
    below = value.numerator // value.denominator
    if value == below:
        return below
    if mode in ("rn", "rni"):
        rest = value - below
        return below + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1))
    if mode in ("rz", "rzi"):
        return below if value > 0 else below + 1
    return below + (mode in ("rp", "rpi"))


@cache  # modifiers ask for the same again
def total(terms: tuple[Real, ...], mode: str) -> Real:
    """An exact sum; zero has the sign that the mode says, unless all terms share one."""
    if any(each.size == "nan" for each in terms):
        return NAN
    infinite = {each.sign for each in terms if each.size == "inf"}
    if infinite:
        return NAN if len(infinite) == 2 else Real(infinite.pop(), "inf")
    value = sum((each.value for each in terms), Fraction(0))
    if value == 0:
        signs = {each.sign for each in terms}
        alike = signs.pop() if len(signs) == 1 else int(mode == "rm")
        return Real(alike, Fraction(0))
    return Real(int(value < 0), abs(value))


@cache  # modifiers ask for the same again
def product(a: Real, b: Real) -> Real:
    sign = a.sign ^ b.sign
    sizes = (a.size, b.size)
    if "nan" in sizes or ("inf" in sizes and 0 in sizes):
        return NAN
    if "inf" in sizes:
        return Real(sign, "inf")
    return Real(sign, abs(a.value * b.value))


@cache  # modifiers ask for the same again
def quotient(a: Real, b: Real) -> Real:
    sign = a.sign ^ b.sign
    if "nan" in (a.size, b.size) or (a.size == b.size and a.size in ("inf", 0)):
        return NAN
    if a.size == "inf" or b.size == 0:
        return Real(sign, "inf")
    if b.size == "inf":
        return Real(sign, Fraction(0))
    return Real(sign, abs(a.value / b.value))
