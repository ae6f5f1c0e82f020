"""What changed between the sources of two steps, in lines."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelbench.project.registry import Step
from kernelbench.project.source_files import sources_of


@dataclass(frozen=True)
class SourceDelta:
    """Lines added and removed, and the files that differ."""

    added: int
    removed: int
    files: tuple[str, ...]

    def __str__(self) -> str:
        if not self.files:
            return "no change"
        return f"+{self.added} −{self.removed} lines in {', '.join(self.files)}"


def paired_sources(base: Step, cand: Step) -> Iterator[tuple[str, Path | None, Path | None]]:
    """Every file of two steps by name, with its path in each; None where a step lacks it."""
    old, new = _sources(base), _sources(cand)
    for name in sorted(old.keys() | new.keys()):
        yield name, old.get(name), new.get(name)


def _sources(step: Step) -> dict[str, Path]:
    if step.submission and step.entry is not None:
        return {"submission.py": step.entry}
    return sources_of(step)


def source_delta(base: Step, cand: Step) -> SourceDelta:
    """Compare two steps file by file, ignoring white space at line ends."""
    added = removed = 0
    changed = []
    for name, old, new in paired_sources(base, cand):
        before, after = _lines(old), _lines(new)
        if before == after:
            continue
        changed.append(name)
        for line in difflib.ndiff(before, after):
            added += line.startswith("+ ")
            removed += line.startswith("- ")
    return SourceDelta(added, removed, tuple(changed))


def _lines(path: Path | None) -> list[str]:
    if path is None:
        return []
    return [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
