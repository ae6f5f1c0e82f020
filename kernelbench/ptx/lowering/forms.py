"""The table's rows: which spellings of an instruction there are, and how each becomes C++.

A *spelling* is an opcode with alternatives in braces, ``shr.{b32|u32|s32}``; an empty alternative,
``add{.sat|}.s32``, makes a modifier optional. What no row spells is unsupported: no modifier is
ever ignored silently.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Operand

#: Returns statements of C++. Its arguments: the function being written, the chosen alternatives of
#: the spelling without their dots, and the operands.
Lower = Callable[["Writer", Sequence[str], Sequence["Operand"]], str]

_CHOICE = re.compile(r"\{([^}]*)\}")


def scope_of(word: str) -> str:
    """C++ of a scope; without one it is that of the GPU."""
    names = {"cta": "kCta", "cluster": "kCluster", "sys": "kSystem"}
    return "px::Scope::" + names.get(word, "kGpu")


@dataclass(frozen=True)
class Form:
    """Spellings that are translated alike.

    Attributes:
        test: Which test proves it: a file of ``tests/ptx_frontend``, without ``test_``.
    """

    spelling: str
    lower: Lower
    test: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches an opcode; a group for each choice."""
        parts = _CHOICE.split(self.spelling)
        for at, part in enumerate(parts):
            if at % 2:
                choices = sorted(part.split("|"), key=len, reverse=True)
                parts[at] = f"({'|'.join(map(re.escape, choices))})"
            else:
                parts[at] = re.escape(part)
        return re.compile("".join(parts))

    @property
    def roots(self) -> Sequence[str]:
        """The first parts of its opcodes."""
        if self.spelling.startswith("{"):
            return self.spelling[1 : self.spelling.index("}")].split("|")
        return [re.split(r"[.{]", self.spelling, maxsplit=1)[0]]

    def opcodes(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Every opcode that it spells, with the choices that make it."""
        parts = _CHOICE.split(self.spelling)
        for chosen in itertools.product(*(part.split("|") for part in parts[1::2])):
            made = list(parts)
            made[1::2] = chosen
            yield "".join(made), tuple(choice.removeprefix(".") for choice in chosen)


@dataclass(frozen=True)
class Pure(Form):
    """A function of its operands alone: ``d = px::name(a, b, …)``.

    Attributes:
        types: PTX types of the result and of the operands; ``$0`` is the first choice, ``$w`` the
            type of twice its width.
        function: Its name in ``backend/emu/ptx_frontend``, with template arguments where it has
            some; ``$0`` and so on as in ``types``.
        plain: An expression of unsigned operands ``{0}``, ``{1}``, … that is the same in 32 and 64
            bits. g++ reads it several times as fast as a call.
    """

    types: str
    function: str
    plain: str

    def signature(self, chosen: Sequence[str]) -> tuple[str, ...]:
        """The types of one opcode."""
        return tuple(_filled(self.types, chosen).split())

    def call(self, chosen: Sequence[str]) -> str:
        """The function of one opcode."""
        return "px::" + _filled(self.function, chosen)


def _filled(text: str, chosen: Sequence[str]) -> str:
    text = re.sub(r"\$@(\d)", lambda match: scope_of(chosen[int(match[1])]), text)
    text = re.sub(r"\$\?(\d)", lambda match: str(bool(chosen[int(match[1])])).lower(), text)
    text = re.sub(r"\$(\d)", lambda match: chosen[int(match[1])], text)
    return re.sub(r"\$w", lambda _: doubled(next(c for c in chosen if c[-1:].isdigit())), text)


def doubled(kind: str) -> str:
    """``u64`` for ``u32``."""
    return f"{kind[0]}{2 * int(kind[1:])}"


def _lower_pure(form: list[Pure]) -> Lower:
    def lower(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
        result, *types = form[0].signature(chosen)
        writer.expect(operands, 1 + len(types))
        given = list(zip(operands[1:], types, strict=True))
        if form[0].plain and result[0] in "bus" and result[1:] in ("32", "64"):
            bits = [writer.value(each, int(kind[1:]) // 8) for each, kind in given]
            return writer.assign(operands[0], result, form[0].plain.format(*bits))
        values = [writer.typed(*each) for each in given]
        return writer.assign(operands[0], result, f"{form[0].call(chosen)}({', '.join(values)})")

    return lower


def pure(
    spelling: str, types: str, function: str, test: str = "arithmetic", *, plain: str = ""
) -> Pure:
    """A row for a pure instruction."""
    made: list[Pure] = []
    made.append(Pure(spelling, _lower_pure(made), test, types, function, plain))
    return made[0]


def call(spelling: str, given: str, function: str, test: str, *, result: str = "") -> Form:
    """A row for one call of ``px::``.

    Args:
        given: What each operand is: a PTX type; ``shared``, ``generic``, ``in:SPACE``, an address;
            ``barrier:SPACE``, that of an mbarrier; ``-``, nothing that the call takes. Behind it
            ``?`` if it may be missing, ``?0`` if it is there with the first choice only.
        function: Its name, or all of the call with ``{0}``, ``{1}``, … for what it takes; ``$0``
            is the first choice, ``$?0`` whether it was made, ``$@0`` the scope that it says.
        result: PTX type of what the call gives, for the operand before all others.
    """

    def lower(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
        split = [each.partition("?") for each in _filled(given, chosen).split()]
        kinds = [kind for kind, _, choice in split if not choice or chosen[int(choice)]]
        most = len(kinds) + bool(result)
        writer.expect(operands, *range(most - given.endswith("?"), most + 1))
        pairs = zip(operands[bool(result) :], kinds, strict=False)
        values = [_argument(writer, each, kind) for each, kind in pairs if kind != "-"]
        code = "px::" + _filled(function, chosen)
        whole = "{0}" in code or code.endswith(")")
        code = code.format(*values) if whole else f"{code}({', '.join(values)})"
        if not result:
            return f"{code};"
        return writer.assign(operands[0], _filled(result, chosen), code)

    return Form(spelling, lower, test)


def _argument(writer: Writer, operand: Operand, kind: str) -> str:
    """An operand as C++; see :func:`call`."""
    what, _, space = kind.partition(":")
    if what == "barrier":
        return writer.barrier(operand, space)
    if what == "in":
        return writer.pointer(operand, space)
    if kind in ("shared", "generic"):
        return writer.shared(operand) if kind == "shared" else writer.generic(operand)
    return writer.typed(operand, kind)
