"""What one step changes in another's source: its own files, and the building blocks that they use.

Both sides are formatted alike first, where there is a clang-format and a style for it, so that a
re-indent is no change. ``kernelbench diff`` prints it.
"""

from __future__ import annotations

import difflib
import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from kernelbench.project.building_blocks import building_blocks
from kernelbench.project.registry import Lineages, Step
from kernelbench.project.source_files import sources_of

_CONTEXT_LINES = 3
_FORMAT_LIMIT_S = 60
_INCLUDE = re.compile(r'^\s*#\s*include\s*"(?P<name>[^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class FileDiff:
    """One file that differs."""

    name: str
    #: ``changed``; ``added`` or ``removed`` if only one of the steps has it.
    change: Literal["changed", "added", "removed"]
    added: int  #: ``added``, ``removed``: Lines.
    removed: int
    changed_lines: int  #: A line that replaces another counted once.
    text: tuple[str, ...]  #: The lines of a unified diff without its two head lines.


@dataclass(frozen=True)
class BlockChange:
    """A building block: its file below ``common``, the folder that has it, its length."""

    name: str
    folder: str
    lines: int


@dataclass(frozen=True)
class SourceDiff:
    """What is different between the sources of two steps."""

    formatted: bool  #: Whether both sides were formatted first; else ``unformatted`` says why not.
    unformatted: str
    files: tuple[FileDiff, ...]  #: Those that differ.
    #: Building blocks that only the second step includes, directly or not.
    blocks_added: tuple[BlockChange, ...]
    #: Those that only the first does. What both include cannot differ.
    blocks_removed: tuple[BlockChange, ...]


def source_diff(base: Step, cand: Step) -> SourceDiff:
    """Compare the sources of two steps."""
    before, after = includes(base), includes(cand)
    unformatted = _unformatted(base, cand)
    return SourceDiff(
        formatted=not unformatted,
        unformatted=unformatted,
        files=changed_files(base, cand),
        blocks_added=_blocks(after.keys() - before.keys(), after),
        blocks_removed=_blocks(before.keys() - after.keys(), before),
    )


def changed_files(base: Step, cand: Step) -> tuple[FileDiff, ...]:
    """The files of two steps that differ, by name."""
    old, new = _sources(base), _sources(cand)
    names = sorted(old.keys() | new.keys())
    return tuple(filter(None, (_file_diff(name, old.get(name), new.get(name)) for name in names)))


def counted(files: Sequence[FileDiff]) -> str:
    """How many lines come and go in which files, in one line."""
    if not files:
        return "no change"
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return f"+{added} −{removed} lines in {', '.join(file.name for file in files)}"


def _sources(step: Step) -> dict[str, Path]:
    if step.submission and step.entry is not None:
        return {"submission.py": step.entry}
    return sources_of(step)


def _file_diff(name: str, old: Path | None, new: Path | None) -> FileDiff | None:
    before, after = (_lines(file) if file else () for file in (old, new))
    if before == after:
        return None
    # Without the rule of thumb that a frequent line ("}") is no anchor.
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    return FileDiff(
        name=name,
        change="added" if old is None else "removed" if new is None else "changed",
        added=sum(j2 - j1 for _, _, _, j1, j2 in edits),
        removed=sum(i2 - i1 for _, i1, i2, _, _ in edits),
        changed_lines=sum(max(i2 - i1, j2 - j1) for _, i1, i2, j1, j2 in edits),
        text=tuple(_unified(matcher, before, after)),
    )


def _unified(
    matcher: difflib.SequenceMatcher[str], before: Sequence[str], after: Sequence[str]
) -> Iterator[str]:
    for group in matcher.get_grouped_opcodes(_CONTEXT_LINES):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield f"@@ -{_span(i1, i2)} +{_span(j1, j2)} @@"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in before[a1:a2])
                continue
            yield from (f"-{line}" for line in before[a1:a2])
            yield from (f"+{line}" for line in after[b1:b2])


def _span(start: int, stop: int) -> str:
    # As `diff -u` has it: lines from 1, but the line before an empty range.
    length = stop - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _lines(file: Path) -> tuple[str, ...]:
    text = file.read_text(encoding="utf-8", errors="replace")
    tool = clang_format() if file.suffix != ".py" else None
    if tool is not None:
        text = _formatted(tool, file, text)
    return tuple(line.rstrip() for line in text.splitlines())


@functools.cache
def _formatted(tool: Path, file: Path, text: str) -> str:
    """The text in the style of the nearest ``.clang-format``; as it is without one."""
    try:
        done = subprocess.run(
            [str(tool), "--fallback-style=none", "--assume-filename", str(file)],
            input=text, capture_output=True, text=True, timeout=_FORMAT_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return text
    return done.stdout if done.returncode == 0 else text


def _unformatted(*steps: Step) -> str:
    """Why sources are compared as they are; empty where they are formatted first."""
    if clang_format() is None:
        return "no clang-format here (`pip install clang-format` has one)"
    bare = [
        step.name for step in steps
        if not any((above / ".clang-format").is_file() for above in (step.path, *step.path.parents))
    ]  # fmt: skip
    return f"no .clang-format above {' and '.join(bare)}" if bare else ""


@functools.cache
def clang_format() -> Path | None:
    """The ``clang-format`` beside this Python, else the one on ``PATH``; None if there is none."""
    beside = shutil.which("clang-format", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("clang-format")
    return Path(found) if found else None


def includes(step: Step) -> dict[tuple[str, str], Path]:
    """The building blocks that a step includes, directly or not, by folder and name.

    What a backend puts behind them is not followed.
    """
    own = sources_of(step)
    commons = building_blocks(step.lineage_path)
    found: dict[tuple[str, str], Path] = {}
    left = [*own.values()]
    while left:
        for name in _INCLUDE.findall(left.pop().read_text(encoding="utf-8", errors="replace")):
            folder = next((folder for folder in commons if (folder / name).is_file()), None)
            if name in own or folder is None:
                continue
            key = (f"{folder.parent.name}/{folder.name}", name)
            if key not in found:
                found[key] = folder / name
                left.append(folder / name)
    return found


def _blocks(keys: set[tuple[str, str]], of: dict[tuple[str, str], Path]) -> tuple[BlockChange, ...]:
    return tuple(
        BlockChange(name, folder, len(_lines(of[folder, name]))) for folder, name in sorted(keys)
    )


@dataclass(frozen=True)
class DeltaRow:
    """One step against its parent, in lines."""

    step: str
    parent: str
    #: ``added``, ``removed``, ``changed``: Of the step's own files, as in :class:`FileDiff`.
    added: int
    removed: int
    changed: int
    #: Building blocks that no step before it in the lineage includes.
    blocks: tuple[BlockChange, ...]
    block_lines: int  #: Their length.


@dataclass(frozen=True)
class DeltaTable:
    """All steps of a lineage against their parents, and the medians over its main line."""

    lineage: str
    rows: tuple[DeltaRow, ...]
    median_added: float | None
    median_removed: float | None
    median_changed: float | None


def count_deltas(lineages: Lineages, lineage: str) -> DeltaTable:
    """Every compiled step of a lineage whose parent is one, in order.

    A Python step is no yardstick for a compiled one: they share no line.
    """
    rows, main = [], []
    seen: set[tuple[str, str]] = set()
    for step in lineages.steps_of(lineage):
        if not _compiled(step):
            continue
        parent = lineages.parent_of(step)
        now = includes(step)
        if parent is not None and _compiled(parent):
            rows.append(_delta_row(step, parent, _blocks(now.keys() - seen, now)))
            if not step.experiment:
                main.append(rows[-1])
        seen |= now.keys()
    added, removed, changed = (
        median(counts) if (counts := [getattr(row, name) for row in main]) else None
        for name in ("added", "removed", "changed")
    )
    return DeltaTable(lineage, tuple(rows), added, removed, changed)


def _delta_row(step: Step, parent: Step, blocks: tuple[BlockChange, ...]) -> DeltaRow:
    files = changed_files(parent, step)
    return DeltaRow(
        step=step.name,
        parent=parent.name,
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        changed=sum(file.changed_lines for file in files),
        blocks=blocks,
        block_lines=sum(block.lines for block in blocks),
    )


def _compiled(step: Step) -> bool:
    return step.compiled and step.status != "planned"
