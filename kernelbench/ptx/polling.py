"""Which waits stand in a loop that does nothing but poll."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from kernelbench.ptx.model import Negated, Number, Operand, Statement
from kernelbench.ptx.names import operand_names

#: Between a failed poll and the next one, on all ways together; real loops have fewer than thirty.
_MOST_STATEMENTS = 320
#: Without effect but on their result.
_HARMLESS = (
    "mov", "selp", "setp", "xor", "and", "or", "not", "add", "sub", "mul", "shl", "shr", "cvt",
    "cvta", "mad", "lop3", "nanosleep",
)  # fmt: skip


def only_polls(statements: Sequence[Statement], wait: Statement) -> bool:
    """Whether a wait that fails comes back to itself, unchanged and without doing anything else.

    The statements behind it are followed with the result known to be false, on both sides of a
    branch that depends on anything else, a time say. An effect, an end, or a change of what the
    wait names ends the search: then the wait is a poll like any other.
    """
    return _Walk(statements, wait).returns()


class _Walk:
    def __init__(self, statements: Sequence[Statement], wait: Statement) -> None:
        self._statements = statements
        self._wait = wait
        self._labels = {each.label: at for at, each in enumerate(statements) if each.label}
        self._known: dict[str, int] = {str(wait.operands[0]): 0}
        self._fixed = set().union(*map(operand_names, wait.operands[1:]))

        self._start = next(at for at, each in enumerate(statements) if each is wait)
        self._left = _MOST_STATEMENTS

    def returns(self) -> bool:
        return self._from(self._start + 1)

    def _from(self, at: int) -> bool:
        """Whether every way from a statement on comes back to the wait."""
        while at < len(self._statements) and self._left > 0:
            if at == self._start:
                return True
            statement = self._statements[at]
            at += 1
            self._left -= 1
            if statement.label:
                continue
            holds = self._known.get(statement.guard) if statement.guard else 1
            if holds is not None and bool(holds) == (bool(statement.guard) and statement.negated):
                continue
            root = statement.opcode.partition(".")[0]
            if root == "bra":
                target = self._labels.get(str(statement.operands[0]), len(self._statements))
                if holds is None and not self._copy()._from(at):
                    return False
                at = target
            elif holds is None or root not in _HARMLESS or not self._step(root, statement):
                return False
        return False

    def _copy(self) -> _Walk:
        """The other side of a branch."""
        other = copy.copy(self)
        other._known = dict(self._known)
        other._left = self._left = self._left // 2
        return other

    def _step(self, root: str, statement: Statement) -> bool:
        """Follow one statement; False if what the wait names may change."""
        if root == "nanosleep":
            return True
        target = statement.operands[0]
        if not isinstance(target, str):
            return False
        value = self._result(root, statement)
        if target in self._fixed and not self._same(root, statement):
            return False
        self._known.pop(target, None)
        if value is not None:
            self._known[target] = value
        return True

    def _same(self, root: str, statement: Statement) -> bool:
        """Whether it gives its target the value that it had: computed from what does not change."""
        sources = set().union(*map(operand_names, statement.operands[1:]))
        return str(statement.operands[0]) not in sources and sources <= self._fixed | {
            name for name in sources if name not in self._known and self._written_once(name)
        }

    def _written_once(self, name: str) -> bool:
        writers = [
            each
            for each in self._statements
            if each.operands and not each.label and name in operand_names(each.operands[0])
        ]
        return len(writers) <= 1

    def _result(self, root: str, statement: Statement) -> int | None:
        values = [self._constant(each) for each in statement.operands[1:]]
        if root == "mov":
            return values[0]
        if root == "selp" and values[2] is not None:
            return values[0] if values[2] else values[1]
        if root == "not" and statement.opcode.endswith("pred") and values[0] is not None:
            return int(not values[0])
        if None in values or len(values) != 2:
            return None
        a, b = (value or 0 for value in values)
        if root == "setp":
            relation = statement.opcode.split(".")[1]
            return {"eq": int(a == b), "ne": int(a != b)}.get(relation)
        return {"and": a & b, "or": a | b, "xor": a ^ b}.get(root)

    def _constant(self, operand: Operand) -> int | None:
        if isinstance(operand, Number):
            return operand.value
        if isinstance(operand, Negated):
            value = self._constant(operand.operand)
            return None if value is None else int(not value)
        return self._known.get(operand) if isinstance(operand, str) else None
