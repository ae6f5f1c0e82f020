"""Which strong loads wait for a bit of a word to change: those of a barrier of all CTAs."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.lowering.names import operand_names
from kernelbench.ptx.parser.model import Statement

#: Between the load and the branch back to it; real loops have two or three.
_MOST_STATEMENTS = 12
_PURE = ("mov", "xor", "and", "shr", "bfe", "setp", "selp", "cvt", "not")


def waits_for_change(statements: Sequence[Statement], load: Statement) -> bool:
    """Whether a load is repeated until its value differs in a bit from an earlier one.

    That is ``while (((now ^ before) & mask) == 0)``: the loop has no effect, and what ends it is
    the result of an ``xor`` of what was loaded with a register that the loop leaves as it is. A
    comparison with a value is no such loop: it waits for a count.
    """
    start = next(at for at, each in enumerate(statements) if each is load)
    begin = _label_before(statements, start)
    if begin is None:
        return False
    written = set().union(*map(_targets, statements[begin:start]), _targets(load))
    loaded, changed, earlier = _targets(load), set[str](), set[str]()
    for statement in statements[start + 1 : start + 1 + _MOST_STATEMENTS]:
        root = statement.opcode.partition(".")[0]
        if root == "bra":
            back = statement.operands[0] == statements[begin].label
            return back and statement.guard in changed and not earlier & written
        if statement.label or statement.guard or root not in _PURE:
            return False
        targets = _targets(statement)
        written |= targets
        read = set().union(*map(operand_names, statement.operands[1:]))
        if root == "xor" and read & loaded:
            earlier |= read - loaded
            changed |= targets
        elif read & changed:
            changed |= targets
        elif read & loaded:
            loaded |= targets
    return False


def _targets(statement: Statement) -> set[str]:
    return operand_names(statement.operands[0]) if statement.operands else set()


def _label_before(statements: Sequence[Statement], start: int) -> int | None:
    """Where the nearest label before a load stands, if nothing between has an effect."""
    for at in range(start - 1, -1, -1):
        if statements[at].label:
            return at
        if statements[at].opcode.partition(".")[0] not in _PURE:
            return None
    return None
