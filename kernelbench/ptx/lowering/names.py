"""Names: those that an operand holds, and the C++ names of PTX names."""

from __future__ import annotations

import functools
import re

from kernelbench.ptx.parser.model import Address, Negated, Operand, Pair, Sum, Vector


@functools.lru_cache(maxsize=1 << 16)
def identifier(name: str) -> str:
    """A C++ name for a PTX name; different ones for different ones."""
    return "r_" + re.sub(r"\W|_", lambda match: f"_{ord(match[0]):x}_", name.removeprefix("%"))


def variable(name: str) -> str:
    """The C++ variable of a module's global or constant memory."""
    return "g" + identifier(name)


def block(name: str) -> str:
    """The C++ variable of a parameter of a call."""
    return "p" + identifier(name)


def called(name: str) -> str:
    """The C++ function of a ``.func``."""
    return "f" + identifier(name)


def registers_in(operand: Operand) -> tuple[str, ...]:
    """The registers of a vector, or the one."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return tuple(each for each in items if isinstance(each, str))


def operand_names(operand: Operand) -> set[str]:
    """All names in an operand."""
    if isinstance(operand, str):
        return {operand}
    if isinstance(operand, Sum):
        return {operand.symbol}
    inner: tuple[Operand, ...] = ()
    if isinstance(operand, Address):
        inner = (operand.base, *operand.coordinates)
    elif isinstance(operand, Vector):
        inner = operand.items
    elif isinstance(operand, Pair):
        inner = (operand.first, operand.second)
    elif isinstance(operand, Negated):
        inner = (operand.operand,)
    return set().union(*map(operand_names, inner))
