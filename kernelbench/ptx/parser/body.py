"""The body of a function: scopes flattened to one list of statements, with their source lines."""

from __future__ import annotations

import dataclasses

from kernelbench.ptx.parser.declarations import read_variable
from kernelbench.ptx.parser.model import (
    SIZES,
    Address,
    Chain,
    Location,
    Module,
    Negated,
    Number,
    Operand,
    Pair,
    PtxFunction,
    Real,
    Statement,
    Sum,
    Vector,
)
from kernelbench.ptx.parser.tokens import Tokens, number_of

_DECLARATIONS = (".local", ".shared", ".param")
_CLOSING = {"{": "}", "(": ")"}
_SKIPPED = (".pragma", ".callprototype", ".calltargets")


def read_body(tokens: Tokens, function: PtxFunction, module: Module) -> None:
    """Read ``{…}`` into ``function``; shared variables go to the module."""
    _Body(tokens, function, module).block()


class _Body:
    def __init__(self, tokens: Tokens, function: PtxFunction, module: Module) -> None:
        self._tokens = tokens
        self._function = function
        self._module = module
        self._scopes: list[dict[str, str]] = []
        self._blocks = 0
        self._chain: Chain = ()
        self._sites: dict[tuple[int, ...], Chain] = {}

    def block(self) -> None:
        """A scope: inline assembly's braces hide its registers and labels."""
        self._tokens.expect("{")
        suffix = f"${self._blocks}" if self._blocks else ""
        self._blocks += 1
        # Labels may be used before they appear.
        self._scopes.append({label: label + suffix for label in self._tokens.labels_of_block()})
        while not self._tokens.accept("}"):
            self._statement(suffix)
        self._scopes.pop()

    def _statement(self, suffix: str) -> None:
        tokens, word = self._tokens, self._tokens.peek()
        if word == "{":
            self.block()
        elif word == ".loc":
            self._loc()
        elif word == ".reg":
            self._registers(suffix)
        elif word == ";":
            tokens.next()
        elif word in _DECLARATIONS:
            self._variable(suffix)
        elif word == ".branchtargets":
            self._targets()
        elif word in _SKIPPED:
            tokens.skip_past(";")
        elif tokens.peek(1) == ":":
            self._function.statements.append(
                Statement(tokens.line, label=self._name(tokens.next()), chain=self._chain)
            )
            tokens.expect(":")
        else:
            self._instruction()

    def _targets(self) -> None:
        tokens = self._tokens
        tokens.next()
        labels = []
        while not tokens.accept(";"):
            labels.append(self._name(tokens.next()))
            tokens.accept(",")
        before = self._function.statements[-1] if self._function.statements else None
        if before is None or not before.label:
            raise tokens.error(".branchtargets without a label")
        self._function.targets[before.label] = tuple(labels)

    def _registers(self, suffix: str) -> None:
        tokens = self._tokens
        tokens.next()
        kind = tokens.next()[1:]
        if kind not in SIZES:
            raise tokens.error(f"registers of type .{kind}")
        while not tokens.accept(";"):
            name = tokens.next()
            names = [name]
            if tokens.accept("<"):
                names = [f"{name}{number}" for number in range(tokens.integer())]
                tokens.expect(">")
            for each in names:
                self._scopes[-1][each] = each + suffix
                self._function.registers[each + suffix] = kind
            tokens.accept(",")

    def _variable(self, suffix: str) -> None:
        symbol = read_variable(self._tokens)
        unique = symbol.name + suffix
        self._scopes[-1][symbol.name] = unique
        symbol = dataclasses.replace(symbol, name=unique)
        table = self._module.symbols if symbol.space == "shared" else self._function.locals
        table[unique] = symbol

    def _loc(self) -> None:
        """PTX ISA 9.1, 11.5.3; the chain above an inlined call is that of the call's own .loc."""
        tokens = self._tokens
        tokens.next()
        here = tuple(tokens.integer() for _ in range(3))
        function = ""
        outer: Chain = ()
        while tokens.accept(","):
            word = tokens.next()
            if word == "function_name":
                function = tokens.next()
                if tokens.accept("+"):
                    tokens.integer()
            elif word == "inlined_at":
                site = tuple(tokens.integer() for _ in range(3))
                outer = self._sites.get(site, (Location(site[0], site[1], ""),))
        if here[1] == 0:  # what a compiler has merged of several lines: near them
            self._chain = outer or self._chain
            return
        self._chain = (Location(here[0], here[1], function), *outer)
        self._sites[here] = self._chain

    def _name(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name

    def _instruction(self) -> None:
        tokens = self._tokens
        statement = Statement(tokens.line, chain=self._chain)
        if tokens.accept("@"):
            statement.negated = tokens.accept("!")
            statement.guard = self._name(tokens.next())
        statement.opcode = tokens.next()
        if not (statement.opcode[0].isalpha() and statement.opcode[0].islower()):
            raise tokens.error(f"{statement.opcode!r} is no instruction")
        while tokens.peek().startswith("."):
            statement.opcode += tokens.next()
        self._function.statements.append(statement)
        operands = []
        while not tokens.accept(";"):
            operands.append(self._operand())
            if not tokens.accept(","):
                tokens.expect(";")
                break
        statement.operands = tuple(operands)

    def _operand(self) -> Operand:
        tokens, word = self._tokens, self._tokens.next()
        if word in _CLOSING:
            items = []
            while not tokens.accept(_CLOSING[word]):
                items.append(self._operand())
                tokens.accept(",")
            return Vector(tuple(items))
        if word == "[":
            return self._address()
        if word == "!":
            return Negated(self._operand())
        if word == "-":
            return self._negative()
        literal = number_of(word)
        if literal is not None:
            return literal
        name = self._name(word)
        if tokens.accept("|"):
            return Pair(name, self._name(tokens.next()))
        if tokens.accept("+"):
            return Sum(name, tokens.integer())
        return name

    def _negative(self) -> Operand:
        found = number_of(self._tokens.next())
        if isinstance(found, Number):
            return Number(-found.value)
        if isinstance(found, Real):
            return Real(found.bits ^ 1 << (8 * found.size - 1), found.size)
        raise self._tokens.error("'-' before something that is no number")

    def _address(self) -> Address:
        tokens = self._tokens
        base, offset = self._operand(), 0
        coordinates: list[Operand] = []
        while not tokens.accept("]"):
            if tokens.accept("+") or tokens.peek() == "-":
                offset += tokens.integer()
            elif tokens.accept(","):
                coordinates.append(self._operand())
            else:
                raise tokens.error(f"{tokens.peek()!r} in an address")
        if isinstance(base, Sum):
            return Address(base.symbol, offset + base.offset, tuple(coordinates))
        return Address(base, offset, tuple(coordinates))
