"""What PTX says that floating-point instructions do (PTX ISA 9.1, 9.7.3 to 9.7.5, 9.7.9)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from exact import (
    F32,
    F64,
    FORMATS,
    NAN,
    Format,
    Real,
    exponent_of,
    product,
    quotient,
    rounded,
    scaled,
    total,
)
from integer_model import clamped, signed

_ROUNDINGS = ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")
_INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")


@dataclass(frozen=True)
class Near:
    """What an approximation may miss: relative to its value, and absolutely."""

    value: float
    bound: float
    absolute: float = 0.0


def float_result(opcode: str, operands: Sequence[int], types: Sequence[str]) -> int | Near:
    """The result's bits, or what an approximation is near to.

    Args:
        operands: Bits.
        types: Of the result and of the operands.
    """
    root, *modifiers = opcode.split(".")
    if types[1] in ("f16x2", "bf16x2", "f32x2"):
        half = types[1].removesuffix("x2")
        bits = FORMATS[half].bits
        parts = [
            float_result(
                opcode, [each >> shift & (1 << bits) - 1 for each in operands], [half] * len(types)
            )
            for shift in (0, bits)
        ]
        assert isinstance(parts[0], int) and isinstance(parts[1], int)
        return parts[1] << bits | parts[0]
    if root == "cvt":
        return _converted(modifiers, operands, types)
    form = FORMATS[types[0]] if types[0] != "pred" else FORMATS[types[1]]
    forms = [FORMATS[each] for each in types[1:]]
    values = [
        _flushed(of.decode(each), of, modifiers) for of, each in zip(forms, operands, strict=True)
    ]
    if root == "testp":
        return _tested(modifiers[0], forms[0], values[0])
    if root in ("neg", "abs", "copysign"):
        return _signed_bits(root, operands, values, form)
    if root in ("min", "max"):
        if "xorsign" in modifiers:
            return _extreme_of_sizes(root, values, modifiers, form)
        return form.encode(_extreme(root, values, modifiers))
    mode = next((each for each in modifiers if each in _ROUNDINGS), "rn")
    if "approx" in modifiers or "full" in modifiers:
        if form is F64:
            return _approximate_upper(root, operands[0], modifiers)
        near = _approximate(root, values, modifiers)
        if form is F32:
            return near
        return form.encode(_real_of(near.value))
    result = {
        "add": lambda: total(tuple(values), mode),
        "sub": lambda: total((values[0], _negated(values[1])), mode),
        "mul": lambda: product(*values),
        "fma": lambda: total((product(*values[:2]), values[2]), mode),
        "div": lambda: quotient(*values),
        "rcp": lambda: quotient(Real(0, Fraction(1)), values[0]),
        "sqrt": lambda: _root(values[0]),
    }[root]()
    return _finished(result, form, mode, modifiers)


def _finished(result: Real, form: Format, mode: str, modifiers: Sequence[str]) -> int:
    if "sat" in modifiers:
        if result.size == "nan" or result.sign:
            return 0
        if result.size == "inf" or result.size > 1:
            result = Real(0, Fraction(1))
    if "relu" in modifiers and result.size != "nan" and (result.sign or result.size == 0):
        return 0
    encoded = form.encode(result, mode)
    if "satfinite" in modifiers and form.decode(encoded).size == "inf":
        return encoded - 1
    if "ftz" in modifiers and _below_normal(result, form, mode):
        return result.sign << form.bits - 1
    flushed = _flushed(form.decode(encoded), form, modifiers)
    return form.encode(flushed) if flushed.size != "nan" else encoded


def _flushed(value: Real, form: Format, modifiers: Sequence[str]) -> Real:
    if "ftz" in modifiers and form.subnormal(value):
        return Real(value.sign, Fraction(0))
    return value


def _below_normal(result: Real, form: Format, mode: str) -> bool:
    """Whether it is less than the least normal number, rounded as if exponents had no limit."""
    if not result.finite or result.size == 0:
        return False
    assert isinstance(result.size, Fraction)
    scale = form.precision - 1 - exponent_of(result.size)
    whole = scaled(result.size, scale, mode, result.sign)
    return Fraction(whole) / Fraction(2) ** scale < Fraction(2) ** form.least


def _negated(value: Real) -> Real:
    return Real(1 - value.sign, value.size)


def _signed_bits(root: str, operands: Sequence[int], values: Sequence[Real], form: Format) -> int:
    top = 1 << form.bits - 1
    if root == "copysign":
        return operands[0] & top | operands[1] & top - 1
    if values[0].size == "nan":
        return form.encode(NAN)
    size = operands[0] & top - 1 if values[0].size != 0 else 0
    sign = 0 if root == "abs" else ~operands[0] & top
    return sign | size


def _tested(what: str, form: Format, value: Real) -> int:
    normal = value.finite and not form.subnormal(value)  # zeros, too
    return int({
        "finite": value.finite, "infinite": value.size == "inf", "number": value.size != "nan",
        "notanumber": value.size == "nan", "normal": normal, "subnormal": form.subnormal(value),
    }[what])  # fmt: skip


def _real_of(value: float) -> Real:
    if math.isnan(value):
        return NAN
    sign = int(math.copysign(1, value) < 0)
    return Real(sign, "inf") if math.isinf(value) else Real(sign, Fraction(abs(value)))


def _extreme_of_sizes(
    root: str, values: Sequence[Real], modifiers: Sequence[str], form: Format
) -> int:
    """``.xorsign.abs``: of magnitudes, with the exclusive or of the signs."""
    found = _extreme(root, [Real(0, each.size) for each in values], modifiers)
    sign = values[0].sign ^ values[1].sign
    return form.encode(found if found.size == "nan" else Real(sign, found.size))


def _extreme(root: str, values: Sequence[Real], modifiers: Sequence[str]) -> Real:
    numbers = [each for each in values if each.size != "nan"]
    if not numbers or (len(numbers) < len(values) and "NaN" in modifiers):
        return NAN

    def order(each: Real) -> tuple[float | Fraction, int]:
        if each.size == "inf":
            return (-math.inf if each.sign else math.inf), 0
        return each.value, -each.sign

    return (min if root == "min" else max)(numbers, key=order)


@cache
def _root(value: Real) -> Real:
    """To many more bits than any format has: never half-way, as no square root is."""
    if value.size == "nan" or (value.sign and value.size != 0):
        return NAN
    if value.size in ("inf", 0):
        return value
    assert isinstance(value.size, Fraction)
    scale = 1 << 1200
    exact = math.isqrt(value.size.numerator * scale * scale // value.size.denominator)
    return Real(0, Fraction(exact, scale))


#: Greatest relative errors that PTX documents, or as many units in the last place.
_BOUNDS = {"ex2": 2**-22, "lg2": 2**-22, "rsqrt": 2**-22.4, "rcp": 2**-23, "sqrt": 2**-22}
_BOUNDS |= {"div": 2**-22, "tanh": 2**-10.9}


def _approximate(root: str, values: Sequence[Real], modifiers: Sequence[str]) -> Near:
    floats = [_as_float(each) for each in values]
    functions: dict[str, Callable[..., float]] = {
        "ex2": lambda x: math.inf if x >= 1024 else 0.0 if x < -2000 else 2.0**x,
        "lg2": lambda x: math.nan if x < 0 else math.log2(x) if x else -math.inf,
        "rsqrt": lambda x: math.nan if x < 0 else 1 / math.sqrt(x) if x else math.inf,
        "sqrt": lambda x: math.nan if x < 0 else math.sqrt(x),
        "tanh": math.tanh,
        "sin": lambda x: math.nan if math.isinf(x) else math.sin(x),
        "cos": lambda x: math.nan if math.isinf(x) else math.cos(x),
    }
    if any(math.isnan(each) for each in floats):
        value = math.nan
    elif root in ("rcp", "div"):
        terms = [Real(0, Fraction(1)), values[0]] if root == "rcp" else list(values)
        value = _as_float(quotient(*terms))
    else:
        value = functions[root](*floats)
        value = (
            math.copysign(value, -1.0)
            if root == "rsqrt" and values[0] == Real(1, Fraction(0))
            else value
        )
    if root in ("sin", "cos"):
        return Near(value, 0.0, 2**-20.5)  # PTX bounds it from -2π to 2π only
    if root == "lg2" and 0.5 < floats[0] < 2:
        return Near(value, 0.0, _BOUNDS[root])
    if root == "div" and "approx" in modifiers and 2.0**126 < abs(floats[1]) < math.inf:
        value = floats[0] * math.copysign(0.0, floats[1])  # 1/b counts as 0
    return Near(value, _BOUNDS[root])


def _approximate_upper(root: str, operand: int, modifiers: Sequence[str]) -> Near:
    """Of f64: with ``.ftz`` from the upper word alone, and to one."""
    ftz = "ftz" in modifiers
    value = F64.decode(operand & ~0xFFFFFFFF if ftz else operand)
    value = _flushed(value, F64, modifiers)
    if root == "rsqrt" and value.size == 0:
        return Near(-math.inf if value.sign else math.inf, 0)
    one = Real(0, Fraction(1))
    exact = quotient(one, value if root == "rcp" else _root(value))
    result = _flushed(exact, F64, modifiers)
    return Near(_as_float(result), 2**-20 if ftz else 2**-51)


def _as_float(real: Real) -> float:
    if real.size == "nan":
        return math.nan
    if real.size == "inf":
        return -math.inf if real.sign else math.inf
    return math.copysign(float(abs(real.value)), -1 if real.sign else 1)


def _converted(modifiers: Sequence[str], operands: Sequence[int], types: Sequence[str]) -> int:
    to, of = types[0], types[1]
    mode = next((each for each in modifiers if each in _ROUNDINGS), "rn")
    if "ue8m0x2" in modifiers:
        halves = [operands[0] >> shift & 255 for shift in (8, 0)]
        bits = [0x7FFF if each == 255 else each << 7 if each else 0x40 for each in halves]
        return bits[0] << 16 | bits[1]
    if of in _INTEGERS:
        value = signed(operands[0], of)
        return FORMATS[to].encode(Real(int(value < 0), Fraction(abs(value))), mode)
    form = FORMATS[of]
    if (of, to) == ("f64", "f32") and form.decode(operands[0]).size == "nan":
        payload = operands[0] >> 63 << 31 | 0x7FC00000 | operands[0] >> 29 & 0x3FFFFF
        return 0 if "sat" in modifiers else payload
    kept = of == "f64" and to in ("f16", "bf16") and "sat" not in modifiers
    if kept and form.decode(operands[0]).size == "nan":
        fraction = FORMATS[to].precision - 1
        upper = operands[0] >> 52 - fraction & 0x7FFF | 1 << fraction - 1
        return operands[0] >> 63 << 15 | upper
    source = _flushed(form.decode(operands[0]), form, modifiers if of == "f32" else ())
    if to in _INTEGERS:
        if source.size == "nan":
            bits = int(to[1:])
            return 1 << bits - 1 if 64 in (bits, form.bits) else 0
        whole = rounded(source.value, mode) if source.finite else (-1) ** source.sign * 2**80
        return clamped(whole, to)
    moved = (of == "bf16" and not {"sat", "ftz"} & {*modifiers}) or modifiers == ["f32", "f32"]
    if source.size == "nan" and to == "f32" and moved:
        return operands[0] << F32.bits - form.bits  # its bits stay
    if mode.endswith("i"):
        if source.finite:
            source = Real(source.sign, Fraction(abs(rounded(source.value, mode))))
        mode = "rn"
    left = [each for each in modifiers if each != "ftz" or to == "f32"]
    return _finished(source, FORMATS[to], mode, left)


def packed(opcode: str, operands: Sequence[int]) -> int:
    """``cvt.….x2.f32``: the first operand is the upper half."""
    _, mode, *modifiers, pair, _ = opcode.split(".")
    form = FORMATS[pair.removesuffix("x2")]
    high, low = (_finished(F32.decode(each), form, mode, modifiers) for each in operands)
    return high << 16 | low


def compared(relation: str, operands: Sequence[int], kind: str, *, flush: bool) -> bool:
    """``setp`` of floats."""
    form = FORMATS[kind]
    a, b = (_flushed(form.decode(each), form, ["ftz"] if flush else []) for each in operands)
    unordered = "nan" in (a.size, b.size)
    if relation in ("num", "nan"):
        return unordered == (relation == "nan")
    if unordered:
        return relation.endswith("u") and relation != "u"
    x, y = _as_float_exactly(a), _as_float_exactly(b)
    return {
        "eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y,
    }[relation.removesuffix("u")]  # fmt: skip


def _as_float_exactly(real: Real) -> float | Fraction:
    if real.size == "inf":
        return -math.inf if real.sign else math.inf
    return real.value
