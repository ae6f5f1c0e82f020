"""Several PTX texts as one: relocatable device code (``-rdc=true``), which a driver would link.

Names that are not visible outside a text are unique already, since nvcc gives them the file's hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HEAD = (".version", ".target", ".address_size")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STOPS = re.compile(r'"[^"]*"|[{};]')
#: What is declared: after ``.func`` the value that is returned comes first.
_NAME = re.compile(
    r"\.(?:entry|func\s*(?:\([^)]*\))?)\s*([\w$]+)"
    r"|\.(?:global|const|shared)\b[^=;{]*?([\w$]+)\s*(?:\[[^;=]*)?(?:=|;|$)"
)
_FILE = re.compile(r"(\.file\s+|\.loc\s+|\binlined_at\s+)(\d+)")
_STRING = "$L__info_string"
_FILES_APART = 1_000


@dataclass(frozen=True)
class _Statement:
    """What stands in a text by itself: a directive, a variable, a function."""

    text: str

    @property
    def name(self) -> str:
        """What it declares; empty if it is a directive."""
        found = _NAME.search(self.text.partition("{")[0])
        return (found[1] or found[2]) if found else ""

    @property
    def extern(self) -> bool:
        return self.text.startswith(".extern")

    @property
    def defines(self) -> bool:
        """Whether it is no declaration of what stands elsewhere."""
        function = re.search(r"\.func\b", self.text.partition("{")[0])
        return not self.extern and (not function or "{" in self.text)


def linked_ptx(texts: Sequence[str]) -> str:
    """One text that has what each of several has, and each name once.

    Args:
        texts: At least one; the directives at the head of the first stand for all.
    """
    if len(texts) == 1:
        return texts[0]
    parts = [
        [*_statements(_apart(_COMMENT.sub("", text), number))] for number, text in enumerate(texts)
    ]
    defined = {each.name for part in parts for each in part if each.name and each.defines}
    known: set[str] = set()
    kept: list[str] = []
    for number, part in enumerate(parts):
        for each in part:
            if number and each.text.startswith(_HEAD):
                continue
            name = each.name
            if name and not each.defines and name in defined:
                continue
            if name and name in known:
                continue  # .weak in several, as templates are
            known.add(name)
            kept.append(each.text)
    return "\n".join(kept) + "\n"


def _apart(text: str, number: int) -> str:
    """A text whose files have numbers, and whose strings have names, of their own."""
    shift = number * _FILES_APART
    text = _FILE.sub(lambda found: f"{found[1]}{int(found[2]) + shift}", text)
    return text.replace(_STRING, f"$L{number}__info_string")


def _statements(text: str) -> Iterator[_Statement]:
    depth = begin = 0
    for found in _STOPS.finditer(text):
        stop = found[0]
        depth += (stop == "{") - (stop == "}")
        if depth == 0 and stop in "};":
            # An initialiser's brace is followed by a semicolon.
            rest = text[found.end() :].lstrip()
            if stop == "}" and rest.startswith(";"):
                continue
            yield from _without_directives(text[begin : found.end()])
            begin = found.end()
    yield from _without_directives(text[begin:])


def _without_directives(text: str) -> Iterator[_Statement]:
    """What of directives of one line stands before a statement, and the statement."""
    lines = text.strip().splitlines()
    while lines and lines[0].strip().startswith((*_HEAD, ".file")):
        yield _Statement(lines.pop(0).strip())
        while lines and not lines[0].strip():
            lines.pop(0)
    if rest := "\n".join(lines).strip():
        yield _Statement(rest)
