"""What makes a finding the same one when it is found again: in another schedule, after an edit.

An identity is ``<class>-<ten hex digits>``, a hash of the class, the kernel, the object without
indices, and of each place the role, the file below its folder and the *text* of its line. Comments,
blanks and what stands on other lines do not count; nor do line numbers, addresses, CTAs, threads,
counts and bytes. Equal lines of a file are told apart by their order.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

#: Hex digits, as :data:`kernelbench.project.model.IDENTITY` has them.
_DIGITS = 10
_COMMENT = re.compile(r"//.*|/\*.*?\*/")


def identity_of(kind: str, kernel: str, obj: str, places: Iterable[tuple[str, str, str]]) -> str:
    """The identity of a finding.

    Args:
        obj: The barrier or buffer by name; its indices and the offset in it are left out.
        places: Role, file with line, and code of each side. Their order says only which side was
            first in a schedule, and does not count.
    """
    sides = sorted("|".join((role, _file_of(where), code)) for role, where, code in places)
    text = "\n".join((kind, kernel, without_indices(obj), *sides))
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def without_indices(name: str) -> str:
    """``stages[].a`` for ``stages[2].a + 0x40``, ``TMEM`` for ``TMEM column 64``."""
    name = name.partition(" + ")[0].partition(" column ")[0]
    return re.sub(r"\[\d+\]", "[]", name)


def code_at(file: Path, line: int) -> str:
    """A line without comments and extra blanks, ``#2`` behind it if it is the second such one.

    Empty where the file or the line is not there.
    """
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        return ""
    lines = _normalised_lines(file, changed)
    if not 0 < line <= len(lines):
        return ""
    text = lines[line - 1]
    number = lines[:line].count(text)
    return f"{text} #{number}" if number > 1 else text


def shown_code(code: str) -> str:
    """What :func:`code_at` gives, for people: without the number."""
    return re.sub(r" #\d+$", "", code)


@functools.lru_cache(maxsize=64)
def _normalised_lines(file: Path, _changed: int) -> tuple[str, ...]:
    text = file.read_text(encoding="utf-8", errors="replace")
    return tuple(" ".join(_COMMENT.sub(" ", line).split()) for line in text.splitlines())


def _file_of(where: str) -> str:
    """``kernel.cuh`` of ``v07/kernel.cuh:231``: a copy of a step has the same findings."""
    return where.rpartition(":")[0].partition("/")[2]
