"""The source files that a step is made of: its own, and with a base those of that one.

A step with a ``base`` is written as a difference: it has the files of its base, but for those of
which its own folder has one of the same name, and the files that only its own folder has. The base
may be such a difference itself.
"""

from __future__ import annotations

from pathlib import Path

from kernelbench.project.model import Step

_CODE = ("*.py", "*.cu", "*.cuh", "*.h", "*.hpp", "*.cpp", "*.inl", "*.ptx")


def code_in(folder: Path) -> list[Path]:
    """The source files below a folder, hidden ones and caches apart, in order."""
    return sorted(
        file
        for pattern in _CODE
        for file in folder.rglob(pattern)
        if not any(part.startswith((".", "__")) for part in file.relative_to(folder).parts)
    )


def sources_of(step: Step) -> dict[str, Path]:
    """A step's files by the name that they have in its folder, in order; a submission has one."""
    if step.submission and step.entry is not None:
        return {step.entry.name: step.entry}
    found = sources_of(step.base) if step.base else {}
    found |= {file.relative_to(step.path).as_posix(): file for file in code_in(step.path)}
    if step.kind == "ptx" and step.entry:
        launches = step.entry.with_suffix(".toml")
        found |= {launches.name: launches} if launches.is_file() else {}
    return {name: found[name] for name in sorted(found, key=lambda name: Path(name))}


def own_sources(step: Step) -> dict[str, Path]:
    """Those of :func:`sources_of` that are in the step's own folder."""
    return {name: file for name, file in sources_of(step).items() if file.is_relative_to(step.path)}
