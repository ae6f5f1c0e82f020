"""Declarations of variables and parameters (PTX ISA 9.1, 5.4 and 11.4)."""

from __future__ import annotations

import dataclasses

from kernelbench.ptx.parser.model import SIZES, Number, Real, Sum, Symbol
from kernelbench.ptx.parser.tokens import Tokens, number_of

_ADDRESS_BYTES = 8
SPACES = (".global", ".const", ".shared", ".local", ".param")


def read_variable(tokens: Tokens) -> Symbol:
    """``.space .align n .type name[count] = {…};``"""
    line, space = tokens.line, tokens.next()[1:]
    symbol = _read_declarator(tokens, space, line)
    if tokens.accept("="):
        values = _initial(tokens, symbol.type)
        size = SIZES[symbol.type]
        symbol = dataclasses.replace(
            symbol,
            initial=b"".join(bytes(size) if isinstance(each, Sum) else each for each in values),
            addresses=tuple(
                (size * at, each) for at, each in enumerate(values) if isinstance(each, Sum)
            ),
        )
    tokens.expect(";")
    return symbol


def _read_declarator(tokens: Tokens, space: str, line: int) -> Symbol:
    align, kind, lanes, pointer = 0, "b8", 1, False
    while tokens.peek().startswith("."):
        word = tokens.next()
        if word == ".align":
            # Behind .ptr it is what the parameter points to that is aligned.
            value = tokens.integer()
            align = align if pointer else value
        elif word == ".ptr":
            pointer = True
        elif word[1:] in SIZES:
            kind = word[1:]
        elif word in (".v2", ".v4"):
            lanes = int(word[2:])
        elif word == ".attribute":
            tokens.skip_past(")")
        elif word not in (*SPACES, ".reg"):
            raise tokens.error(f"{word!r} in a declaration")
    name, count = tokens.next(), lanes
    while tokens.accept("["):
        if tokens.accept("]"):
            count = 0
        else:
            count *= tokens.integer()
            tokens.expect("]")
    element = SIZES[kind]
    return Symbol(name, space, kind, align or element * lanes, count * element, line)


def _initial(tokens: Tokens, kind: str) -> list[bytes | Sum]:
    if tokens.accept("{"):
        values: list[bytes | Sum] = []
        while not tokens.accept("}"):
            values += _initial(tokens, kind)
            tokens.accept(",")
        return values
    size = SIZES[kind]
    sign = -1 if tokens.accept("-") else 1
    word = tokens.next()
    found = number_of(word)
    if isinstance(found, Number):
        return [(sign * found.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")]
    if isinstance(found, Real) and found.size == size and sign == 1:
        return [found.bits.to_bytes(size, "little")]
    if found is None and sign == 1 and size == _ADDRESS_BYTES:
        return [_address(tokens, word)]
    raise tokens.error("an initializer that is no number, nor an address of 64 bits")


def _address(tokens: Tokens, word: str) -> Sum:
    """``name``, ``name + 4``, ``generic(name) + 4``, behind the first word."""
    name = word
    if word == "generic":
        tokens.expect("(")
        name = tokens.next()
        tokens.expect(")")
    return Sum(name, tokens.integer() if tokens.accept("+") else 0)


def read_parameters(tokens: Tokens) -> list[Symbol]:
    """``(.param .type name, …)``; nothing if there is no parenthesis."""
    found: list[Symbol] = []
    if not tokens.accept("("):
        return found
    while not tokens.accept(")"):
        line, word = tokens.line, tokens.next()
        if word == ",":
            continue
        if word not in (".param", ".reg"):
            raise tokens.error(f"{word!r} among parameters")
        found.append(_read_declarator(tokens, word[1:], line))
    return found
