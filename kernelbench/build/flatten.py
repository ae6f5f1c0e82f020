"""A source and all files of ours that it includes as one file, and the same for another backend.

Each file's text stands where it is included first. Comments keep whose text it is::

    // >>> common/rt.cuh            the text of this file begins
    // <<< common/rt.cuh            and ends
    // === common/ptx/types.cuh     included here, but its text stands above

so that nothing of the includes is lost: :func:`with_backend` puts the files in order again for
another backend, whose files include others.

A label is the name of a folder (:class:`Folders`) and the path below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.build.includes import find_included, without_comment_texts

#: The folder whose files :func:`with_backend` exchanges.
BACKEND = "backend"
_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*"([^"]+)"[ \t]*$')
_ANGLED = re.compile(r"[ \t]*#[ \t]*include[ \t]*<([^>]+)>[ \t]*$")
_ANY_INCLUDE = re.compile(r"[ \t]*(?:#|%:)[ \t]*(?:include(?:_next)?|import|embed)\b")
_ONCE = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+once[ \t]*$")
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|endif)\b")
_MARK = re.compile(r"// (>>>|<<<|===) (\S+)$")


@dataclass(frozen=True)
class _Included:
    """A file of ours, where it is included."""

    label: str


_Parts = Sequence[str | _Included]


@dataclass(frozen=True)
class Folders:
    """Where files of ours are, by the name that labels give the folder, searched in order.

    Among them ``backend``; a file belongs to the deepest folder that has it.
    """

    paths: Mapping[str, Path]

    def label(self, path: Path) -> str:
        """What a file is called."""
        within = [name for name, folder in self.paths.items() if path.is_relative_to(folder)]
        if not within:
            first, folder = next(iter(self.paths.items()))
            return f"{first}/{os.path.relpath(path, folder)}"
        name = max(within, key=lambda name: len(self.paths[name].parts))
        return f"{name}/{path.relative_to(self.paths[name]).as_posix()}"

    def path(self, label: str) -> Path:
        """The file that a label of an include stands for."""
        name, _, below = label.partition("/")
        return self.paths[name] / below


def flatten(source: Path, folders: Folders) -> str:
    """A source with the text of every file that it includes from ``folders``, each once.

    Includes of other files are left where they are: they are the compiler's. ``#pragma once`` goes.

    Args:
        source: The file to compile, in the first of the folders.

    Raises:
        UsageError: If a file is no UTF-8 text, or an include cannot be followed: ``#include
            MACRO``, or one inside ``#if``.
    """
    return _Writer(folders, {}).text(folders.label(source))


def with_backend(flat: str, folders: Folders) -> str:
    """A flat file with the files of another backend in place of its own.

    Args:
        folders: The new backend, and those in which files are that only it includes.

    Raises:
        UsageError: If the text is no flat file, or as :func:`flatten`.
    """
    parts = parse_flat(flat)
    main = next(iter(parts))
    # With the backend go the files that it shares with others.
    kept = {
        label: part
        for label, part in parts.items()
        if label.split("/")[0] != BACKEND and f"/{BACKEND}/" not in label
    }
    return _Writer(folders, kept).text(main)


def parse_flat(flat: str) -> dict[str, _Parts]:
    """The files that a flat file is made of, by label, the source first.

    Raises:
        UsageError: If its marks do not fit each other.
    """
    found: dict[str, list[str | _Included]] = {}
    inside: list[str] = []
    for number, line in enumerate(flat.splitlines(), 1):
        mark = _MARK.match(line)
        kind, label = (mark[1], mark[2]) if mark else ("", "")
        if kind == "<<<":
            if not inside or inside.pop() != label:
                raise UsageError(f"line {number} of a flat source ends {label}, which is not open")
            continue
        if kind and inside:
            found[inside[-1]].append(_Included(label))
        if kind == ">>>":
            if label in found or (not inside and found):
                raise UsageError(f"line {number} of a flat source begins {label} again or outside")
            inside.append(label)
            found[label] = []
        elif not kind and inside:
            found[inside[-1]].append(line)
    if inside or not found:
        raise UsageError(f"a flat source ends within {inside[-1] if inside else 'nothing'}")
    return dict(found)


@dataclass
class _Writer:
    """Writes files one into the other.

    Attributes:
        parts: Texts that are known; files of other labels are read.
    """

    folders: Folders
    parts: Mapping[str, _Parts]
    lines: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def text(self, label: str) -> str:
        self._write(label)
        return "\n".join(self.lines) + "\n"

    def _write(self, label: str) -> None:
        self.seen.add(label)
        self.lines.append(f"// >>> {label}")
        for part in self.parts[label] if label in self.parts else self._read(label):
            if isinstance(part, str):
                self.lines.append(part)
            elif part.label in self.seen:
                self.lines.append(f"// === {part.label}")
            else:
                self._write(part.label)
        self.lines.append(f"// <<< {label}")

    def _read(self, label: str) -> _Parts:
        path = self.folders.path(label)
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not UTF-8 text, which a flat source must be") from None
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
        found: list[str | _Included] = []
        depth, guarded = 0, _has_guard(text)
        plain = without_comment_texts(text).split("\n")
        for number, (line, code) in enumerate(zip(text.split("\n"), plain, strict=True), 1):
            if condition := _CONDITION.match(code):
                depth += -1 if condition[1] == "endif" else 1
            if _ONCE.match(code):
                continue
            where = f"{path}:{number}"
            if _MARK.match(line):
                raise UsageError(f"{where}: reads as a mark of a flat source")
            if not _ANY_INCLUDE.match(code) or (_ANGLED.match(code) and not self._ours(code)):
                found.append(line)
                continue
            if depth > guarded:
                raise UsageError(f"{where}: an include inside #if cannot be made part of one file")
            found.append(self._included(path, code, where) or line)
        while found and found[-1] == "":
            found.pop()
        return found

    def _ours(self, code: str) -> bool:
        name = _ANGLED.match(code)
        return name is not None and self._find(name[1], []) is not None

    def _included(self, path: Path, code: str, where: str) -> _Included | None:
        """The file of ours that a line includes; None if it is the compiler's."""
        quoted, angled = _INCLUDE.match(code), _ANGLED.match(code)
        if quoted is None and angled is None:
            raise UsageError(f"{where}: cannot tell what this includes")
        name = quoted[1] if quoted else angled[1] if angled else ""
        label = self._find(name, [path.parent] if quoted else [])
        return _Included(label) if label else None

    def _find(self, name: str, beside: Sequence[Path]) -> str | None:
        found = find_included(name, beside)
        if found is None:
            for folder in self.folders.paths:
                if f"{folder}/{name}" in self.parts:
                    return f"{folder}/{name}"
            found = find_included(name, [*self.folders.paths.values()][1:])
        return self.folders.label(found) if found else None


def _has_guard(text: str) -> bool:
    """Whether a file is guarded by a macro of its own, as ``#pragma once`` would."""
    code = [line.strip() for line in without_comment_texts(text).split("\n") if line.strip()]
    if len(code) < 3 or not code[-1].startswith("#endif"):
        return False
    first, second = code[0].split(), code[1].split()
    return first[:1] == ["#ifndef"] and second[:2] == ["#define", *first[1:2]]
