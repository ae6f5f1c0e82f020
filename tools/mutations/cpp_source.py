"""C++ sources as far as mutation needs them: calls, statements, loops, conditions, functions.

Not a parser: it relies on the steps' format (clang-format, no macros with code) and on one blanked
copy of the text in which comments, literals and preprocessor lines are spaces, so that positions
are the same in both.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_BLANKED = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*\#[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_OPEN, _CLOSE = "([{", ")]}"
_KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "static_assert", "alignas"}


class SourceError(ValueError):
    """The text is not as this module expects."""


@dataclass(frozen=True)
class Span:
    """Positions ``start`` up to, not with, ``end``."""

    start: int
    end: int


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        span: From the qualified name to behind the closing parenthesis.
        template: Template arguments with their brackets; empty if there are none.
        arguments: Where each argument is.
        statement: The call with its semicolon, if it is a statement of its own.
    """

    name: str
    span: Span
    template: str
    arguments: tuple[Span, ...]
    statement: Span | None


@dataclass(frozen=True)
class Loop:
    """A ``for`` with three parts; ``body`` is its statement or block."""

    span: Span
    condition: Span
    step: Span
    body: Span


@dataclass(frozen=True)
class Comparison:
    """``left < right`` in the condition of a loop (then ``loop`` is set), an ``if`` or ``?``."""

    left: Span
    operator: Span
    right: Span
    loop: Loop | None


class Source:
    """One file.

    Attributes:
        name: The file's name.
        text: As it is.
        code: The same length, with comments, literals and preprocessor lines blanked.
        guesses: Whether a barrier or buffer of a name that :mod:`objects` does not know is called
            as it is written: of a lineage whose expected objects nobody has written down.
    """

    def __init__(self, name: str, text: str, guesses: bool = False) -> None:
        self.name = name
        self.guesses = guesses
        self.text = text
        self.code = _BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]

    def line(self, position: int) -> int:
        """The line number of a position, from 1."""
        return bisect_right(self._lines, position)

    def line_text(self, position: int) -> str:
        """The line of a position, without its indentation."""
        line = self.line(position)
        return self.text.splitlines()[line - 1].strip()

    def __getitem__(self, span: Span) -> str:
        return self.text[span.start : span.end]

    def find(self, pattern: str) -> Iterator[re.Match[str]]:
        """Matches of a regular expression in the code."""
        return re.finditer(pattern, self.code)

    # -- functions ------------------------------------------------------------------------------

    @cached_property
    def functions(self) -> list[tuple[str, Span]]:
        """Name and body of every function, outermost only."""
        found: list[tuple[str, Span]] = []
        for match in self.find(r"\b(\w+)\("):
            inside = any(body.start < match.start() < body.end for _, body in found)
            if inside or match[1] in _KEYWORDS:
                continue
            end = self.closing(match.end() - 1)
            after = re.match(r"\s*(const\s*)?\{", self.code[end:])
            if after:
                start = end + after.end() - 1
                found.append((match[1], Span(match.start(), self.closing(start))))
        return found

    def function_at(self, position: int) -> str:
        """The function that holds a position; empty outside of any."""
        for name, span in self.functions:
            if span.start <= position < span.end:
                return name
        return ""

    def function_span(self, position: int) -> Span:
        """The function that holds a position; the whole file outside of any."""
        for _, span in self.functions:
            if span.start <= position < span.end:
                return span
        return Span(0, len(self.code))

    # -- calls ----------------------------------------------------------------------------------

    def calls(self, name: str) -> Iterator[Call]:
        """Calls of functions whose name matches a regular expression as a whole."""
        pattern = rf"(?:\b\w+::)*(?<!\w)({name})(<[\w\s,:/*+-]*>)?\("
        for match in self.find(pattern):
            opening = match.end() - 1
            end = self.closing(opening)
            if re.match(r"\s*(const\s*)?\{", self.code[end:]) or self._declares(match.start()):
                continue
            span = Span(match.start(), end)
            yield Call(
                match[1],
                span,
                match[2] or "",
                tuple(self.split(Span(opening + 1, end - 1), ",")),
                self._statement(span),
            )

    def _declares(self, start: int) -> bool:
        before = self.code[:start].rstrip()
        return bool(re.search(r"\b(void|KB_DEVICE|KB_GLOBAL)$", before))

    def _statement(self, span: Span) -> Span | None:
        before = self.code[: span.start].rstrip()
        after = re.match(r"\s*;", self.code[span.end :])
        if after is None or not before or before[-1] not in ";{})":
            return None
        return Span(span.start, span.end + after.end())

    def statement_before(self, start: int) -> Span:
        """The statement of one line, or of several, that ends right before a position."""
        end = len(self.code[:start].rstrip())
        begin = max(self.code.rfind(mark, 0, end - 1) for mark in ";{}") + 1
        return self.trim(Span(begin, end))

    # -- loops and conditions -------------------------------------------------------------------

    @cached_property
    def loops(self) -> list[Loop]:
        """Every ``for`` with three parts."""
        found = []
        for match in self.find(r"\bfor \("):
            opening = match.end() - 1
            end = self.closing(opening)
            parts = list(self.split(Span(opening + 1, end - 1), ";"))
            if len(parts) != 3:
                continue
            found.append(Loop(Span(match.start(), end), parts[1], parts[2], self.body(end)))
        return found

    def body(self, position: int) -> Span:
        """The statement or block that a head which ends at a position belongs to."""
        start = position + len(self.code[position:]) - len(self.code[position:].lstrip())
        if self.code[start] == "{":
            return Span(start, self.closing(start))
        return Span(start, self.code.index(";", start) + 1)

    def loops_around(self, position: int) -> list[Loop]:
        """The loops whose body holds a position, outermost first."""
        return [loop for loop in self.loops if loop.body.start <= position < loop.body.end]

    def comparisons(self) -> Iterator[Comparison]:
        """Every ``<`` in the conditions of loops, ifs and ``?``; ``&&`` separates comparisons."""
        heads: list[tuple[Span, Loop | None]] = [(loop.condition, loop) for loop in self.loops]
        for match in self.find(r"\bif \("):
            heads.append((Span(match.end(), self.closing(match.end() - 1) - 1), None))
        for match in self.find(r"[\w.]+ < [\w.]+ (?=\?)"):
            heads.append((Span(*match.span()), None))
        for head, loop in sorted(heads, key=lambda item: item[0].start):
            for part in self.split(head, "&&"):
                operator = re.search(r" (<) ", self.code[part.start : part.end])
                if operator is None:
                    continue
                at = Span(part.start + operator.start(1), part.start + operator.end(1))
                yield Comparison(
                    self.trim(Span(part.start, at.start)),
                    at,
                    self.trim(Span(at.end, part.end)),
                    loop,
                )

    # -- brackets -------------------------------------------------------------------------------

    def closing(self, opening: int) -> int:
        """The position behind the bracket that closes the one at ``opening``."""
        depth = 0
        for position in range(opening, len(self.code)):
            if self.code[position] in _OPEN:
                depth += 1
            elif self.code[position] in _CLOSE:
                depth -= 1
                if depth == 0:
                    return position + 1
        raise SourceError(f"{self.name}:{self.line(opening)}: a bracket is never closed")

    def split(self, span: Span, separator: str) -> Iterator[Span]:
        """Parts of a span between separators outside brackets, without surrounding space."""
        if not self.code[span.start : span.end].strip():
            return
        depth = 0
        start = position = span.start
        while position < span.end:
            character = self.code[position]
            depth += (character in _OPEN) - (character in _CLOSE)
            if depth == 0 and self.code.startswith(separator, position):
                yield self.trim(Span(start, position))
                position += len(separator)
                start = position
                continue
            position += 1
        yield self.trim(Span(start, span.end))

    def trim(self, span: Span) -> Span:
        """The span without spaces at its ends."""
        text = self.code[span.start : span.end]
        return Span(
            span.start + len(text) - len(text.lstrip()), span.end - len(text) + len(text.rstrip())
        )


@dataclass(frozen=True)
class Edit:
    """Replace a span by a text."""

    span: Span
    text: str


def apply(text: str, edits: Sequence[Edit]) -> str:
    """The text with all edits made; they must not overlap."""
    ordered = sorted(edits, key=lambda edit: edit.span.start)
    for one, other in itertools.pairwise(ordered):
        if one.span.end > other.span.start:
            raise SourceError("edits overlap")
    for edit in reversed(ordered):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text
