"""What changed between the sources of two steps, in lines."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from kernelbench.lineage import Step

_CODE = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp")


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


def _sources(step: Step) -> dict[str, Path]:
    if step.submission and step.entry is not None:
        return {"submission.py": step.entry}
    return {
        file.relative_to(step.path).as_posix(): file
        for file in sorted(step.path.rglob("*"))
        if file.suffix in _CODE and file.is_file()
    }


def source_delta(base: Step, cand: Step) -> SourceDelta:
    """Compare two steps file by file, ignoring white space at line ends."""
    old, new = _sources(base), _sources(cand)
    added = removed = 0
    changed = []
    for name in sorted(old.keys() | new.keys()):
        before = _lines(old.get(name))
        after = _lines(new.get(name))
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
