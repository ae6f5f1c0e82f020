"""``set``: a relation as a value, of single values and of halves in pairs."""

from __future__ import annotations

import operator

from conformance import TUPLES, Case, operands_of, results
from exact import FORMATS
from float_model import compared
from integer_model import signed

RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")
ORDERED = (*RELATIONS, *(f"{each}u" for each in RELATIONS), "num", "nan")
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
JOINED = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
TRUE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}


def _bits(kind: str) -> int:
    return 16 if "16" in kind and "x2" not in kind else 32


def _holds(relation: str, operands: list[int], kind: str, *, flush: bool) -> bool:
    if kind in FORMATS:
        return compared(relation, operands, kind, flush=flush)
    a, b = (signed(each, kind) for each in operands)
    return {
        "eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b,
    }[UNSIGNED.get(relation, relation)]  # fmt: skip


def _true(kind: str) -> int:
    return TRUE.get(kind, (1 << _bits(kind)) - 1)


def _expected(case: Case, operands: list[int]) -> int:
    _, relation, *more, result, kind = case.opcode.split(".")
    flush = "ftz" in more
    if not kind.endswith("x2"):
        return _true(result) if _holds(relation, operands, kind, flush=flush) else 0
    half, one = kind.removesuffix("x2"), _true(result.removesuffix("x2")) & 0xFFFF
    return sum(
        one << shift
        for shift in (0, 16)
        if _holds(relation, [each >> shift & 0xFFFF for each in operands], half, flush=flush)
    )


def _cases() -> list[Case]:
    spelled = [
        f"set.{relation}{flush}.{result}.{kind}"
        for relation in ORDERED
        for kind in ("f32", "f64")
        for result, flush in (("u32", ""), ("f32", ".ftz" if kind == "f32" else ""))
    ]
    for half in ("f16", "bf16"):
        spelled += [f"set.{r}.{to}.{half}" for r in ORDERED for to in (half, "u16", "s32")]
        spelled += [f"set.{r}.{to}.{half}x2" for r in ORDERED for to in (f"{half}x2", "u32")]
    spelled += ["set.lt.ftz.u32.f16", "set.eq.ftz.f16x2.f16x2", "set.geu.bf16.f64"]
    spelled += [f"set.{r}.s32.{kind}" for r in RELATIONS for kind in ("s16", "u32", "s64", "u64")]
    spelled += [f"set.{r}.f32.u32" for r in UNSIGNED]
    return [
        Case(each, (f"b{_bits(each.split('.')[-2])}", *[each.split(".")[-1]] * 2))
        for each in spelled
    ]


def test_relations_as_values():
    wrong = []
    for case, found in results(_cases()).items():
        given = [operands_of(kind, at) for at, kind in enumerate(case.types[1:])]
        for at in range(TUPLES):
            operands = [each[at] for each in given]
            if found[at] != _expected(case, operands):
                wrong.append(f"{case.opcode}({operands}) is {found[at]:#x}")
                break
    assert wrong == []


def test_relations_joined_with_a_predicate():
    cases = [Case(f"set.gt.{joined}.s32.f32", ("b32", "f32", "f32", "pred")) for joined in JOINED]
    for case, found in results(cases).items():
        joined = JOINED[case.opcode.split(".")[2]]
        given = [operands_of(kind, at) for at, kind in enumerate(case.types[1:])]
        for at in range(TUPLES):
            a, b, third = (each[at] for each in given)
            assert found[at] == _true("s32") * joined(
                compared("gt", [a, b], "f32", flush=False), third
            )
