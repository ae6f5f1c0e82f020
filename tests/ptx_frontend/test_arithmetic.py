"""Every arithmetic opcode of the table against independent models, on 1,024 operand tuples each.

`make test` compares a third of the floats' tuples: their model is exact, and slow.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest
from conformance import TUPLES, Case, operands_of, pure_cases, results
from exact import F64, FORMATS
from float_model import Near, compared, float_result, packed
from integer_model import integer_result, signed

from kernelbench.ptx.parser.model import SIZES

pytestmark = pytest.mark.usefixtures("emulator_runtime")

_PACKS = [
    f"cvt.{mode}{relu}{limit}.{pair}.f32"
    for mode in ("rn", "rz")
    for relu in ("", ".relu")
    for limit in ("", ".satfinite")
    for pair in ("f16x2", "bf16x2")
]
_INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")


def _mistakes(
    found: dict[Case, list[int]],
    expected: Callable[[Case, list[int]], int | Near],
    every: int = 1,
) -> list[str]:
    """A line for the first operands on which an opcode is wrong."""
    wrong = []
    for case, bits in found.items():
        given = [operands_of(kind, at) for at, kind in enumerate(case.types[1:])]
        for at in range(0, TUPLES, every):
            operands = [each[at] for each in given]
            want = expected(case, operands)
            if not _fits(bits[at], want, case.types[0]):
                shown = ", ".join(map(hex, operands))
                wanted = want if isinstance(want, Near) else hex(want & (1 << 64) - 1)
                wrong.append(f"{case.opcode}({shown}) is {bits[at]:#x}, not {wanted}")
                break
    return wrong


def _fits(bits: int, want: int | Near, kind: str) -> bool:
    if isinstance(want, Near):
        code, least = ("<d", 0.0) if kind == "f64" else ("<f", 2.0**-126)
        got = struct.unpack(code, bits.to_bytes(struct.calcsize(code), "little"))[0]
        if math.isnan(want.value):
            return math.isnan(got)
        if math.isinf(want.value) or (kind == "f32" and abs(want.value) > 3.4028235e38):
            return math.isinf(got) and (got > 0) == (want.value > 0)
        # What is subnormal may be flushed or rounded to few bits.
        return abs(got - want.value) <= want.bound * abs(want.value) + want.absolute + least
    width = max(8 * SIZES[kind], 16) if kind != "pred" else 1
    if kind == "f64" and F64.decode(bits).size == "nan":
        return F64.decode(want).size == "nan"
    if kind[0] in "us" and SIZES[kind] == 1:
        want = signed(want, kind)  # a register of 16 bits holds it, its sign extended
    return bits == want & (1 << width) - 1


def _pure_result(case: Case, operands: list[int]) -> int | Near:
    found = None if _of_floats(case) else integer_result(case.opcode, operands, case.types)
    return float_result(case.opcode, operands, case.types) if found is None else found


def _of_floats(case: Case) -> bool:
    return any(kind.startswith(("f", "bf")) for kind in case.types) or "ue8m0x2" in case.opcode


@pytest.mark.parametrize(
    ("wide", "every"),
    [(False, 1), (True, 3), pytest.param(True, 1, marks=pytest.mark.long)],
    ids=["integers", "floats", "all floats"],
)
def test_pure_instructions(wide, every):
    cases = [case for case in pure_cases() if _of_floats(case) == wide]
    assert len(cases) > 90
    assert _mistakes(results(cases), _pure_result, every) == []


def test_extremes_of_three():
    cases = [
        Case(f"{root}{modifiers}.f32", ("f32",) * 4)
        for root in ("min", "max")
        for modifiers in ("", ".NaN", ".ftz", ".ftz.NaN")
    ]
    assert _mistakes(results(cases), _pure_result) == []


def test_conversions_of_integers_and_packing():
    cases = [
        Case(f"cvt{sat}.{to}.{of}", (to, of))
        for to in _INTEGERS
        for of in _INTEGERS
        for sat in ("", ".sat")
        if not (sat and to == of)
    ]
    cases += [Case(each, ("b32", "f32", "f32")) for each in _PACKS]

    def expected(case: Case, operands: list[int]) -> int:
        if case.types[1] == "f32":
            return packed(case.opcode, operands)
        found = integer_result(case.opcode, operands, case.types)
        assert found is not None
        return signed(found, case.types[0])

    assert _mistakes(results(cases), expected) == []


def test_comparisons_and_selections():
    relations = ["eq", "ne", "lt", "le", "gt", "ge"]
    unordered = [*(f"{each}u" for each in relations), "num", "nan"]
    cases = [
        Case(f"setp.{relation}{flush}.{kind}", ("pred", kind, kind))
        for kind in ("f16", "bf16", "f32", "f64")
        for relation in (*relations, *unordered)
        for flush in ("", ".ftz")
        if not flush or kind in ("f16", "f32")
    ]
    cases += [
        Case(f"setp.{relation}.{kind}", ("pred", kind, kind))
        for kind in ("u16", "u32", "u64", "s16", "s32", "s64")
        for relation in relations
    ]
    cases += [
        Case(f"setp.{relation}.u32", ("pred", "u32", "u32"))
        for relation in ("lo", "ls", "hi", "hs")
    ]
    cases += [
        Case(f"setp.lt.{joined}.s32", ("pred", "s32", "s32", "pred"))
        for joined in ("and", "or", "xor")
    ]
    cases += [
        Case(f"selp.b{bits}", (f"b{bits}", f"b{bits}", f"b{bits}", "pred")) for bits in (16, 32, 64)
    ]

    def expected(case: Case, operands: list[int]) -> int:
        root, relation, *rest = case.opcode.split(".")
        if root == "selp":
            return operands[0] if operands[2] else operands[1]
        kind = case.types[1]
        if kind in FORMATS:
            return compared(relation, operands, kind, flush="ftz" in rest)
        a, b = (signed(each, kind) for each in operands[:2])
        relation = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(relation, relation)
        found = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
        result = int(found[relation])
        if len(operands) == 3:
            c = operands[2]
            return {"and": result & c, "or": result | c, "xor": result ^ c}[rest[0]]
        return result

    assert _mistakes(results(cases), expected) == []
