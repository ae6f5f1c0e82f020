"""PTX text as tokens (PTX ISA 9.1, chapter 4)."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.parser.model import Number, Real

_TOKEN = re.compile(
    r"""[^\S\n]*(\n|//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"
      |\.[\w$]+(?:::[\w$]+)*|[%$A-Za-z_][\w$%]*(?:(?:\.|::)[\w$%]+)*
      |0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)|0[xX][0-9a-fA-F]+U?
      |\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?(?!\w)|[-+*<>{}()\[\],;:@!=|]|.)""",
    re.DOTALL | re.VERBOSE,
)
_SINGLE = frozenset("-+*<>{}()[],;:@!=|")
END = ""


class Tokens:
    """The tokens of a text, read one after another.

    Raises:
        PtxError: From every method, with file and line, for what is not PTX.
    """

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._texts: list[str] = []
        self._lines: list[int] = []
        self._at = 0
        line = 1
        for token in _TOKEN.findall(text.rstrip()):
            first = token[0]
            if first == "\n":
                line += 1
            elif first == "/" and len(token) > 1:
                line += token.count("\n")
            elif len(token) == 1 and not (first.isalnum() or first in _SINGLE or first in "%$_."):
                raise PtxError(f"{name}:{line}: {token!r} is not PTX")
            else:
                self._texts.append(token)
                self._lines.append(line)
        self._texts += [END, END]
        self._lines += [line, line]

    @property
    def line(self) -> int:
        """Of the next token."""
        return self._lines[self._at]

    def peek(self, ahead: int = 0) -> str:
        """A token to come; empty at the end."""
        return self._texts[min(self._at + ahead, len(self._texts) - 1)]

    def next(self) -> str:
        """The next token, which must not be the end."""
        token = self._texts[self._at]
        if token == END:
            raise self.error("the text ends in the middle of a statement")
        self._at += 1
        return token

    def accept(self, token: str) -> bool:
        """Skip the next token if it is this one."""
        if self._texts[self._at] != token:
            return False
        self._at += 1
        return True

    def expect(self, token: str) -> None:
        """Skip the next token, which must be this one."""
        if not self.accept(token):
            raise self.error(f"expected {token!r}, found {self.peek()!r}")

    def skip_past(self, token: str) -> None:
        """Skip everything up to and with the next such token."""
        while self.next() != token:
            pass

    def error(self, text: str) -> PtxError:
        """An error at the next token."""
        return PtxError(f"{self._name}:{self.line}: {text}")

    def integer(self) -> int:
        """An integer literal, possibly negative."""
        sign = -1 if self.accept("-") else 1
        token = self._texts[self._at]
        if token.isdecimal() and token[0] != "0":
            self._at += 1
            return sign * int(token)
        found = number_of(token)
        if not isinstance(found, Number):
            raise self.error(f"expected an integer, found {self.peek()!r}")
        self._at += 1
        return sign * found.value

    def labels_of_block(self) -> Sequence[str]:
        """The labels between the ``{`` just read and its ``}``, without those of inner blocks."""
        depth, labels, texts = 0, [], self._texts
        for at in range(self._at, len(texts)):
            token = texts[at]
            if token == "{":
                depth += 1
            elif token == "}":
                if depth == 0:
                    break
                depth -= 1
            elif token == ":" and depth == 0:
                labels.append(texts[at - 1])
        return labels


def number_of(token: str) -> Number | Real | None:
    """A literal's value; None if the token is none."""
    if not token or not token[0].isdigit():
        return None
    kind = token[:2].lower()
    if kind == "0f" and len(token) == 10:
        return Real(int(token[2:], 16), 4)
    if kind == "0d" and len(token) == 18:
        return Real(int(token[2:], 16), 8)
    if "." in token:
        return Real(int.from_bytes(struct.pack("<d", float(token)), "little"), 8)
    token = token.removesuffix("U")
    octal = len(token) > 1 and token.isdigit() and token[0] == "0"
    try:
        return Number(int(token, 8 if octal else 0))
    except ValueError:
        return None
