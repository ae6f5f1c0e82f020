"""Calls of functions (PTX ISA 9.1, 9.7.12.5; how parameters are passed: 7.1).

A ``.func`` becomes a C++ function that takes a pointer to each of its results and parameters: to
the caller's ``.param`` variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.model import Symbol, Vector
from kernelbench.ptx.names import block, called

if TYPE_CHECKING:
    from kernelbench.ptx.model import Operand, PtxFunction
    from kernelbench.ptx.writer import Writer


#: Functions that no module defines: what of ``px::`` they are, and the bytes that they are passed.
_PROVIDED = {
    "vprintf": ("px::vprintf", (4, 8, 8)),
    "__assertfail": ("px::assertfail", (8, 8, 4, 8, 8)),
}


def lower_call(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``call{.uni} {(results),} name{, (parameters)}``."""
    rest = list(operands)
    results = _list(rest)
    name = rest.pop(0) if rest else None
    parameters = _list(rest)
    if not isinstance(name, str):
        raise StatementError("no function's name")
    if rest or name in writer.function.registers:
        raise StatementError("an indirect call")
    function = writer.calls.functions.get(name) or _provided(writer, name)
    if function is None:
        raise StatementError(f"{name} is not defined in this module")
    if name in writer.calls.recursive:
        raise StatementError(f"{name} calls itself")
    given = _blocks(writer, function.results, results) + _blocks(
        writer, function.parameters, parameters
    )
    cpp = called(name) if function.defined else _PROVIDED[name][0]
    return f"{cpp}({', '.join(given)});"


def _provided(writer: Writer, name: str) -> PtxFunction | None:
    """The declaration of a function that is provided here."""
    function = writer.calls.declared.get(name)
    if function is None or name not in _PROVIDED:
        return None
    passed = tuple(each.size for each in (*function.results, *function.parameters))
    return function if passed == _PROVIDED[name][1] else None


def _list(rest: list[Operand]) -> Vector:
    """Takes a list in parentheses from the front; an empty one if there is none."""
    first = rest[0] if rest else None
    if not isinstance(first, Vector):
        return Vector(())
    del rest[0]
    return first


def _blocks(writer: Writer, wanted: Sequence[Symbol], given: Vector) -> list[str]:
    """The caller's variables for a function's results or parameters."""
    if len(given.items) != len(wanted):
        raise StatementError(f"{len(given.items)} for {len(wanted)} results or parameters")
    found = []
    for symbol, operand in zip(wanted, given.items, strict=True):
        variable = writer.layout.passed.get(operand) if isinstance(operand, str) else None
        if variable is None or symbol.space != "param":
            raise StatementError(f"{operand} is passed in a register")
        if variable.size != symbol.size:
            raise StatementError(f"{variable.size} bytes for {symbol.name}")
        found.append(block(variable.name))
    return found
