"""A new step from an old one: a folder that runs at once, to be changed from there."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.errors import EnvironmentProblem, UnknownNameError, UsageError
from kernelbench.lineage import Lineage, Lineages, Status, Step, require_runnable
from kernelbench.lineage_files import NAME, read_step
from kernelbench.step_sources import own_sources, sources_of

#: Where variants go, below their lineage's folder.
VARIANTS = "variants"

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
class Words:
    """What a step says of itself, one line each; empty where it is still to be written."""

    title: str = ""
    technique: str = ""
    hypothesis: str = ""


_NONE = Words()


def new_step(lineages: Lineages, name: str, source: Step, words: Words = _NONE) -> Step:
    """A step of the source's lineage with a copy of all its code, the source being its parent.

    Raises:
        UsageError: For a name that is taken or malformed, or a source without code or lineage.
        EnvironmentProblem: If the folder cannot be written.
    """
    lineage = _lineage_for(lineages, name, source)
    head = {"arch": source.arch, "status": _status(source), "kind": source.kind}
    if source.kind == "cuda":
        del head["kind"]
    if source.entry and source.entry.name not in ("launch.cu", "submission.py"):
        head["entry"] = source.entry.name
    needs = {"needs": list(source.needs)} if source.needs else {}
    tables: list[tuple[str, Mapping[str, Any]]] = [("config", source.config)]
    tables += [("limits", source.limits)]
    allowances = [{"what": each.what, "reason": each.reason} for each in source.allowances]
    flags = {"gpu_flags": list(source.gpu_flags)} if source.gpu_flags else {}
    text = _toml(name, source, words, head | needs | flags, tables, allowances)
    return _write(lineage, lineage.path / name, text, sources_of(source), source, words)


def new_variant(
    lineages: Lineages,
    name: str,
    source: Step,
    files: Sequence[str] = (),
    words: Words = _NONE,
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
    # A base has all of its code: a variant of a variant starts from what that one changes.
    base = source.base.name if source.base else source.name
    kept = own_sources(source) if source.base else {}
    copied = kept | {file: having[file] for file in files}
    head: dict[str, Any] = {"status": _status(source), "base": base}
    tables: list[tuple[str, Mapping[str, Any]]] = []
    if source.base:
        tables = [("config", source.config), ("limits", source.limits)]
        # None at all is a choice too, where the base has some.
        head |= {"gpu_flags": list(source.gpu_flags)} if source.kind == "cuda" else {}
    text = _toml(name, source, words, head, tables, [])
    return _write(lineage, lineage.path / VARIANTS / name, text, copied, source, words)


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
    require_runnable(source)
    for step in lineages.steps:
        if step.name == name:
            raise UsageError(f"{name} exists: {step.path}", "choose another name")
    for other in lineages.lineages:
        if other.name == name:
            raise UsageError(f"{name} is the name of a lineage", "choose another name")
        if other != lineage and _stem(name) in _stems(lineages.steps_of(other.name)):
            hint = f"steps of {lineage.name} are not, and ranges go by name"
            raise UsageError(f"{name} is named as the steps of {other.name} are", hint)
    return lineage


def _stems(steps: Iterable[Step]) -> set[str]:
    return {stem for step in steps if not step.experiment and (stem := _stem(step.name))}


def _stem(name: str) -> str:
    """``v`` of ``v07``; nothing for a name of another form."""
    match = re.fullmatch(r"([A-Za-z]+)\d+", name)
    return match[1] if match else ""


def _status(source: Step) -> Status:
    """The code is the source's, and so far it works, or fails, as that does."""
    return "failed" if source.status == "failed" else "works"


def _toml(
    name: str,
    source: Step,
    words: Words,
    head: Mapping[str, Any],
    tables: Iterable[tuple[str, Mapping[str, Any]]],
    allowances: Iterable[Mapping[str, Any]],
) -> str:
    filled = _filled(words, source)
    first = {"name": name, "parent": source.name, "title": filled.title}
    first |= {"technique": filled.technique, "hypothesis": filled.hypothesis}
    lines = [*_fields({**first, **head})]
    for table, values in tables:
        if values:
            lines += ["", f"[{table}]", *_fields(values)]
    for allowance in allowances:
        lines += ["", "[[allowance]]", *_fields(allowance)]
    return "\n".join(lines) + "\n"


def _filled(words: Words, source: Step) -> Words:
    return Words(
        words.title or f"A copy of {source.name}",
        words.technique or f"Nothing yet: the code is that of {source.name}",
        words.hypothesis or "To be written: what should get faster, and why.",
    )


def _fields(values: Mapping[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        # JSON's strings, numbers, booleans and flat lists are TOML's; so are its quoted keys.
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", key)
        shown = key if bare else json.dumps(key, ensure_ascii=False)
        yield f"{shown} = {json.dumps(value, ensure_ascii=False)}"


def _write(
    lineage: Lineage,
    folder: Path,
    toml: str,
    files: Mapping[str, Path],
    source: Step,
    words: Words,
) -> Step:
    """Make the folder, whole or not at all."""
    if folder.exists():
        raise UsageError(f"{folder} exists, but is no step", "remove it, or choose another name")
    filled = _filled(words, source)
    up = "../" * len(folder.relative_to(lineage.path).parts)
    readme = _README.format(
        name=folder.name,
        title=filled.title,
        hypothesis=filled.hypothesis,
        technique=filled.technique.rstrip("."),
        parent=source.name,
        parent_folder=up + source.path.relative_to(lineage.path).as_posix(),
    )
    try:
        folder.parent.mkdir(exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        try:
            temporary.chmod(0o755)
            for name, file in files.items():
                copy = temporary / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
            (temporary / "step.toml").write_text(toml, encoding="utf-8")
            (temporary / "README.md").write_text(readme, encoding="utf-8")
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {folder}: {error.strerror or error}") from error
    return read_step(folder, lineage)
