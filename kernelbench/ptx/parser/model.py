"""A PTX module as data: symbols, functions, statements and their operands.

Names follow PTX ISA 9.1: chapter 4 (syntax), 5 (state spaces and types), 11 (directives).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: Bytes of the fundamental types.
SIZES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4,
    "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8,
    "f32x2": 8, "b128": 16, "pred": 1,
}  # fmt: skip


class Number(NamedTuple):
    """An integer literal."""

    value: int


class Real(NamedTuple):
    """A floating-point literal by its bits, of ``size`` bytes."""

    bits: int
    size: int


class Sum(NamedTuple):
    """A symbol's address with an offset."""

    symbol: str
    offset: int


class Address(NamedTuple):
    """``[base + offset, {coordinates}]``; the base is a name or a number."""

    base: Operand
    offset: int
    coordinates: tuple[Operand, ...]


class Vector(NamedTuple):
    """``{a, b, …}``; of a call ``(a, b, …)``."""

    items: tuple[Operand, ...]


class Pair(NamedTuple):
    """``d|p``."""

    first: Operand
    second: Operand


class Negated(NamedTuple):
    """``!p``."""

    operand: Operand


#: A plain string is the name of a register, a symbol or a label.
Operand = str | Number | Real | Sum | Address | Vector | Pair | Negated


class Location(NamedTuple):
    """A line of the source that the compiler was given."""

    file: int  #: Number of its ``.file`` directive.
    line: int
    function: str  #: Label of the inlined function's name in ``.debug_str``; empty for the kernel.


#: Innermost first.
Chain = tuple[Location, ...]


@dataclass(frozen=True)
class Symbol:
    """A variable or a parameter."""

    name: str
    space: str  #: ``global``, ``const``, ``shared``, ``local`` or ``param``.
    type: str
    align: int
    size: int  #: In bytes; 0 for one of unknown extent.
    line: int
    initial: bytes = b""  #: Its first bytes, little-endian; the rest is zero.
    #: Which of them are the address of a symbol plus a number, by offset.
    addresses: tuple[tuple[int, Sum], ...] = ()


@dataclass(slots=True)
class Statement:
    """An instruction, or a label where there is no opcode."""

    line: int  #: Of the PTX text, from 1.
    opcode: str = ""
    operands: tuple[Operand, ...] = ()
    guard: str = ""  #: Register of the predicate; empty without one.
    negated: bool = False
    label: str = ""
    chain: Chain = ()


@dataclass
class PtxFunction:
    """A kernel (``.entry``) or a ``.func``; its scopes are flattened."""

    name: str
    line: int
    kernel: bool
    defined: bool = False  #: Whether it has a body; without one it is declared only.
    parameters: list[Symbol] = field(default_factory=list)
    results: list[Symbol] = field(default_factory=list)  #: Of a ``.func``: what a call gets back.
    #: ``maxntid`` and so on, with their numbers.
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Type of each register; those of inner scopes have a suffix.
    registers: dict[str, str] = field(default_factory=dict)
    locals: dict[str, Symbol] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    #: Labels of each ``.branchtargets``, by its own label.
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class Module:
    """A file."""

    name: str
    version: str = ""
    target: str = ""
    files: dict[int, str] = field(default_factory=dict)  #: Of ``.file``, by number.
    strings: dict[str, str] = field(default_factory=dict)  #: Of ``.debug_str``, by label.
    symbols: dict[str, Symbol] = field(default_factory=dict)
    functions: dict[str, PtxFunction] = field(default_factory=dict)

    @property
    def kernels(self) -> dict[str, PtxFunction]:
        """The functions that can be launched."""
        return {name: each for name, each in self.functions.items() if each.kernel}
