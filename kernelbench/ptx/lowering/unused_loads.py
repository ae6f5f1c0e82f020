"""Loads whose value a thread makes nothing of.

Where a tile has fewer elements than a CTA has threads, Triton gives an element to several threads.
All of them load it, and one stores what comes of it, under a predicate of ``%tid.x``. In a kernel
that works in place the loads of the others race with that store, and what they read goes nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final

from kernelbench.ptx.lowering.names import operand_names
from kernelbench.ptx.lowering.table import row_of
from kernelbench.ptx.parser.model import Address, Negated, Number, Operand, PtxFunction, Statement

_COMPARED: Final[dict[str, Callable[[int, int], bool]]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_COMPUTED: Final[dict[str, Callable[[int, int], int]]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "add": lambda a, b: a + b, "shl": lambda a, b: a << b if b < 32 else 0,
    "shr": lambda a, b: a >> b if b < 32 else 0,
}  # fmt: skip
_OPERATION = re.compile(r"(and|or|xor|add|shl|shr)\.(?:(?:b|u|s)32|pred)|setp\.(\w\w)\.(?:b|u|s)32")
_WORD = 0xFFFFFFFF
#: Of bits; comparisons of signed numbers are right below it.
_SIGN = 1 << 31


def unused_by(function: PtxFunction, load: Statement, threads: Collection[int]) -> bool:
    """Whether what a statement loads reaches nothing that any of these threads does.

    Args:
        threads: By ``%tid.x``, of a CTA that extends along x only.
    """
    return bool(threads) and all(_unused(function, load, _Thread(function, at)) for at in threads)


def _unused(function: PtxFunction, load: Statement, thread: _Thread) -> bool:
    if not load.opcode.startswith("ld.global") or not load.operands:
        return False
    loaded = operand_names(load.operands[0])
    grown = True
    while grown:
        before = len(loaded)
        for each in function.statements:
            if each is load or not each.opcode or thread.skips(each):
                continue
            if each.guard in loaded or loaded.intersection(sources(each)):
                if not is_pure(each) or each.guard in loaded:
                    return False
                loaded |= operand_names(each.operands[0])
        grown = len(loaded) > before
    return True


def sources(statement: Statement) -> Iterator[str]:
    """The names that a statement reads; of a store and the like all that it names."""
    operands = statement.operands[1:] if is_pure(statement) else statement.operands
    for each in operands:
        yield from operand_names(each)


def is_pure(statement: Statement) -> bool:
    """Whether all that it does is to give its first operand a value made of the others."""
    found = row_of(statement.opcode)
    return found is not None and found[0].test == "arithmetic" and not any(
        isinstance(each, Address) for each in statement.operands
    )  # fmt: skip


class _Thread:
    """What is known of a thread's registers by its number alone."""

    def __init__(self, function: PtxFunction, number: int) -> None:
        self._number = number
        self._writers: dict[str, list[Statement]] = {}
        for each in function.statements:
            for name in operand_names(each.operands[0]) if each.operands else ():
                self._writers.setdefault(name, []).append(each)
        self._known: dict[str, int | None] = {}

    def skips(self, statement: Statement) -> bool:
        """Whether it never executes it, for its predicate."""
        if not statement.guard:
            return False
        value = self._value(statement.guard)
        return value is not None and bool(value) == statement.negated

    def _value(self, operand: Operand) -> int | None:
        if isinstance(operand, Number):
            return operand.value & _WORD
        if isinstance(operand, Negated):
            value = self._value(operand.operand)
            return None if value is None else int(not value)
        if not isinstance(operand, str):
            return None
        if operand == "%tid.x":
            return self._number
        if operand not in self._known:
            self._known[operand] = None  # of a register that depends on itself
            writers = self._writers.get(operand, [])
            if len(writers) == 1 and not writers[0].guard:
                self._known[operand] = self._result(writers[0])
        return self._known[operand]

    def _result(self, statement: Statement) -> int | None:
        if statement.opcode in ("mov.u32", "mov.b32", "mov.pred"):
            return self._value(statement.operands[1])
        if statement.opcode == "bfe.u32":
            value, first, bits = map(self._value, statement.operands[1:])
            if value is None or first is None or bits is None:
                return None
            return value >> first & (1 << bits) - 1
        match = _OPERATION.fullmatch(statement.opcode)
        if match is None or len(statement.operands) != 3:
            return None
        a, b = (self._value(each) for each in statement.operands[1:])
        if match[1] == "and" and 0 in (a, b):
            return 0
        if a is None or b is None:
            return None
        if match[1]:
            return int(_COMPUTED[match[1]](a, b)) & _WORD
        compare = _COMPARED.get(match[2])
        return None if compare is None or max(a, b) >= _SIGN else int(compare(a, b))
