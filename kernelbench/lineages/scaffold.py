"""What is new and runs at once, to be changed from there: a step from an old one, a project.

A project is a copy of a template that ships with kernelbench: a folder of
``kernelbench/lineages/templates``, laid over ``common``; ``dot_`` at the start of a name stands for
a dot. Nothing is filled in: its files are what the project has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UnknownNameError, UsageError
from kernelbench.base.files import write_folder
from kernelbench.base.toml_file import toml_table
from kernelbench.project.building_blocks import building_blocks
from kernelbench.project.registry import Lineage, Lineages, Step, StepStatus, require_runnable
from kernelbench.project.source_files import own_sources, sources_of
from kernelbench.project.step_files import ENTRY_FILES, NAME, read_step

#: Where variants go, below their lineage's folder.
VARIANTS = "variants"

_TEMPLATES = Path(__file__).parent / "templates"
_COMMON = "common"

_UNCHANGED = "Nothing yet: the code is that of"
_NUMBERED = re.compile(r"(?P<stem>[A-Za-z]+)(?P<number>\d+)")
_README = """\
# {name} · {title}

**Hypothesis.** {hypothesis}

**Change** (from [{parent}]({parent_folder}/)). {technique}.

<!-- results:begin -->
Nothing measured yet.
<!-- results:end -->

**Why.** To be written when it has been measured.
"""


@dataclass(frozen=True)
class StepWords:
    """What a step says of itself; empty where it is still to be written. Line breaks go."""

    title: str = ""
    technique: str = ""
    hypothesis: str = ""


_NONE = StepWords()


def new_step(lineages: Lineages, name: str, source: Step, words: StepWords = _NONE) -> Step:
    """A step of the source's lineage with a copy of all its code, the source being its parent.

    It joins the main line; what is made from a failed experiment stays beside that.

    Raises:
        UsageError: For a name that is taken or malformed, or a source without code or lineage.
        EnvironmentProblem: If the folder cannot be written.
    """
    lineage = _lineage_for(lineages, name, source)
    status = _status(source)
    place = lineage.path / source.subfolder if status == "failed" else lineage.path
    fields = {key: value for key, value in _fields_of(source).items() if value}
    head = {**fields, "status": status}
    tables = {"config": source.config, "limits": source.limits}
    # What the host path of another step launches has nothing else of that one's.
    copied = own_sources(source) if source.host else sources_of(source)
    return _write(lineage, place / name, source, _filled(words, source), head, tables, copied)


def new_variant(
    lineages: Lineages, name: str, source: Step, files: Sequence[str] = (), words: StepWords = _NONE
) -> Step:
    """A variant of a step: only what differs from it is in the new folder.

    Args:
        files: Names of the source's files to start from; the others stay those of the base.

    Raises:
        UsageError: As :func:`new_step`, and for a file that the source does not have.
        EnvironmentProblem: If the folder cannot be written.
    """
    lineage = _lineage_for(lineages, name, source)
    having = sources_of(source)
    for file in files:
        if file not in having:
            raise UnknownNameError("file", file, having, f" of {source.name}")
    # A variant of a variant starts from what that one changes, and does not change when it does.
    base = source.base or source
    kept = own_sources(source) if source.base else {}
    copied = kept | {file: having[file] for file in files}
    head = {"status": _status(source), "base": base.name}
    head |= _changed(_fields_of(source), _fields_of(base))
    tables = {"config": _changed(source.config, base.config)}
    tables["limits"] = _changed(source.limits, base.limits)
    folder = lineage.path / VARIANTS / name
    return _write(lineage, folder, source, _filled(words, source), head, tables, copied)


def still_a_copy(step: Step) -> bool:
    """Whether a step's words are still those that it was made with: nothing has changed yet."""
    return step.technique.startswith(_UNCHANGED)


def sorts_before_parent(lineages: Lineages, step: Step) -> bool:
    """Whether a step of the main line comes before its parent, since their order is by name."""
    main = [other.name for other in lineages.steps_of(step.lineage) if not other.experiment]
    if step.name not in main or step.parent not in main:
        return False
    return main.index(step.name) < main.index(step.parent)


def _fields_of(step: Step) -> dict[str, Any]:
    """What a ``step.toml`` says of how a step is built; an empty list is none."""
    usual = ENTRY_FILES[step.kind]
    entry = step.entry.name if step.entry else usual
    return {
        "arch": step.arch,
        "kind": "" if step.compiled else step.kind,
        "base": step.base.name if step.host and step.base else "",
        "entry": "" if entry == usual else entry,
        "function": step.function,
        "arguments": None if step.arguments is None else list(step.arguments),
        "needs": list(step.needs),
        "gpu_flags": list(step.gpu_flags),
    }


def _changed(values: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if base.get(key) != value}


def _lineage_for(lineages: Lineages, name: str, source: Step) -> Lineage:
    """The lineage of the source, if a step of this name can be added to it."""
    if name == "common":
        raise UsageError("common is the folder of the building blocks", "choose another name")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a step", "a letter, then letters, digits, '_' and '-'"
        )
    lineage = lineages.lineage_of(source)
    if lineage is None:
        raise UsageError(f"{source.name} belongs to no lineage", "name a step of one after --from")
    if source in lineages.shipped.steps:
        lineage = _own_lineage(lineages, lineage)
    elif all(source.path != step.path for step in lineages.steps):
        # Its lineage may have a name that this project has, too; its parents may not.
        raise UsageError(
            f"{source.path} is no step of this project",
            "name one of this project's after --from, or call `kernelbench new` in the other's",
        )
    require_runnable(source)
    hint = _another_name(lineages, lineage, name, source)
    for step in lineages.steps:
        # Where case does not count in file names, two names that differ in it are one folder.
        if step.name.casefold() == name.casefold():
            raise UsageError(f"{step.name} exists: {step.path}", hint)
    for other in lineages.lineages:
        if other.name == name:
            raise UsageError(f"{name} is the name of a lineage", hint)
        theirs = {_stem(s.name) for s in lineages.steps_of(other.name) if not s.experiment}
        if other != lineage and _stem(name) in theirs - {""}:
            what = f"{name} is named as the steps of {other.name} are"
            raise UsageError(what, f"this is one of {lineage.name}: {hint}")
    return lineage


def _own_lineage(lineages: Lineages, shipped: Lineage) -> Lineage:
    """The project's lineage that a copy of a shipped step goes to: the one of its problem."""
    own = [lineage for lineage in lineages.chains if lineage.problem == shipped.problem]
    if len(own) != 1:
        named = ", ".join(lineage.name for lineage in own) or "none"
        raise UsageError(
            f"a copy of a step of {shipped.name} goes to this project's lineage of the same "
            f"problem, and there is {named}",
            f'give one lineage.toml the line problem = "{shipped.problem}"',
        )
    needed = shipped.path / "common"
    if needed.is_dir() and needed not in building_blocks(own[0].path):
        raise UsageError(
            f"steps of {shipped.name} are made of the building blocks in {needed}",
            f'add building_blocks = "{shipped.name}" to {own[0].path / "lineage.toml"}',
        )
    return own[0]


def _another_name(lineages: Lineages, lineage: Lineage, name: str, source: Step) -> str:
    """What to do about a name, with the next free number where the name asked for has one."""
    names = [step.name for step in lineages.steps_of(lineage.name) if not step.experiment]
    numbered = [match for each in names if (match := _NUMBERED.fullmatch(each))]
    if not (numbered and _stem(name)):
        return "choose another name"
    alike = [match for match in numbered if match["stem"] == _stem(source.name)]
    last = max(alike or numbered, key=lambda match: int(match["number"]))
    number = f"{int(last['number']) + 1:0{len(last['number'])}}"
    return f"choose another name, such as {last['stem']}{number}"


def _stem(name: str) -> str:
    """``v`` of ``v07``; nothing for a name of another form."""
    match = _NUMBERED.fullmatch(name)
    return match["stem"] if match else ""


def _status(source: Step) -> StepStatus:
    """The code is the source's, and so far it works, or fails, as that does."""
    return "failed" if source.status == "failed" else "works"


def _filled(words: StepWords, source: Step) -> StepWords:
    title, technique, hypothesis = (" ".join(each.split()) for each in astuple(words))
    return StepWords(
        title or f"A copy of {source.name}",
        technique or f"{_UNCHANGED} {source.name}",
        hypothesis or "To be written: what should get faster, and why.",
    )


def _write(
    lineage: Lineage,
    folder: Path,
    source: Step,
    words: StepWords,
    head: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
    files: Mapping[str, Path],
) -> Step:
    """Make the folder, whole or not at all."""
    if folder.exists():
        raise UsageError(f"{folder} exists, but is no step", "remove it, or choose another name")
    toml = toml_table({"name": folder.name, "parent": source.name, **asdict(words), **head})
    for table, values in tables.items():
        if values:
            toml += f"\n[{table}]\n{toml_table(values)}"
    for allowance in source.allowances:
        toml += f"\n[[allowance]]\n{toml_table(asdict(allowance))}"
    words = replace(words, technique=words.technique.rstrip("."))
    parent_folder = Path(os.path.relpath(source.path, folder)).as_posix()
    readme = _README.format(
        name=folder.name, parent=source.name, parent_folder=parent_folder, **asdict(words)
    )
    write_folder(folder, {**files, "step.toml": toml, "README.md": readme})
    return read_step(folder, lineage)


def template_names() -> list[str]:
    """Names of the templates of ``kernelbench init``."""
    return sorted(
        path.name for path in _TEMPLATES.iterdir() if path.is_dir() and path.name != _COMMON
    )


def files_of(template: str) -> dict[Path, Path]:
    """A template's files by their place in a project."""
    found = {}
    for folder in (_TEMPLATES / _COMMON, _TEMPLATES / template):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                parts = path.relative_to(folder).parts
                found[Path(*(re.sub("^dot_", ".", part) for part in parts))] = path
    return found


def new_project(folder: Path, template: str) -> list[Path]:
    """Make a project of a template in ``folder``, whole or not at all; returns its files, relative.

    Raises:
        UsageError: If something is in the way; nothing is overwritten.
        EnvironmentProblem: If it cannot be written.
    """
    files = files_of(template)
    top = sorted({path.parts[0] for path in files})
    for name in top:
        if (folder / name).exists() or (folder / name).is_symlink():
            raise UsageError(
                f"{folder / name} exists: nothing is overwritten",
                "give another folder: kernelbench init DIR",
            )
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "give a folder: kernelbench init DIR")
    write_folder(folder, {str(place): source for place, source in files.items()})
    return sorted(files)
