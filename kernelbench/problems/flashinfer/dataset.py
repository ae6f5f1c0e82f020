"""Finding the files of a dataset, or of a single problem, on disk.

FlashInfer-Trace: ``definitions/**/NAME.json``, ``workloads/**/NAME.jsonl``,
``solutions/**/*.json``, ``traces/**/NAME.jsonl`` below one root, to which paths of safetensors
files are relative.
SOL-ExecBench: one folder a problem with ``definition.json``, ``workload.jsonl`` and
``solution*.json``, to which they are relative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.problems.flashinfer.json_fields import JsonFields, read_lines, read_object
from kernelbench.problems.flashinfer.models import (
    Definition,
    Solution,
    TraceFigure,
    Workload,
    read_definition,
    read_figure,
    read_solution,
    read_workload,
)
from kernelbench.problems.flashinfer.safetensors_file import read_header

_DEFINITIONS, _WORKLOADS, _SOLUTIONS, _TRACES = "definitions", "workloads", "solutions", "traces"
_ONE_DEFINITION = "definition.json"
_ONE_WORKLOADS = ("workload.jsonl", "workloads.jsonl")
#: Judged by how often each result comes up, which no tolerance can say.
_BY_FREQUENCY = "sampling"


@dataclass(frozen=True)
class FoundDefinition:
    """A definition with what belongs to it."""

    file: Path  #: Its file.
    root: Path  #: What paths of safetensors files are relative to.
    definition: Definition
    workloads: tuple[Workload, ...]
    lines: tuple[dict[str, object], ...]  #: The workloads' JSON, in the order of ``workloads``.
    solutions: tuple[Solution, ...]
    figures: tuple[TraceFigure, ...]


@dataclass(frozen=True)
class Skipped:
    """Something that was not taken, and why."""

    name: str
    reason: str


def find_definitions(source: Path) -> tuple[list[FoundDefinition], list[Skipped]]:
    """Read a dataset's root, a problem's folder or a definition's file; UsageError if malformed."""
    if not source.exists():
        raise UsageError(f"{source}: no such file or folder")
    if source.is_file():
        root = next((p.parent for p in source.parents if p.name == _DEFINITIONS), None)
        files = [source]
    elif (source / _DEFINITIONS).is_dir():
        root, files = source, sorted((source / _DEFINITIONS).rglob("*.json"))
    else:
        root, files = None, [source / _ONE_DEFINITION]
    if not files or not files[0].is_file():
        raise UsageError(
            f"{source}: no {_ONE_DEFINITION} and no {_DEFINITIONS} folder",
            "give a FlashInfer-Trace dataset, a SOL-ExecBench problem, or a definition's file",
        )
    solutions = _solutions(root, files[0].parent)
    found: list[FoundDefinition] = []
    skipped: list[Skipped] = []
    for file in files:
        definition = read_definition(read_object(file))
        if definition.op_type == _BY_FREQUENCY:
            reason = "op_type sampling: judged by frequencies, which kernelbench does not do"
            skipped.append(Skipped(definition.name, reason))
            continue
        if any(definition.name == other.definition.name for other in found):
            raise UsageError(f"{file}: another definition is named {definition.name!r}")
        found.append(_with_files(file, root, definition, solutions))
    if not found:
        raise UsageError(f"{source}: {skipped[0].name}: {skipped[0].reason}")
    names = {each.definition.name for each in found}
    if root is None:
        for solution in solutions:
            if solution.definition not in names:
                reason = f"for the definition {solution.definition!r}, which is not here"
                skipped.append(Skipped(solution.name, reason))
    return found, skipped


def _with_files(
    file: Path, root: Path | None, definition: Definition, solutions: Sequence[Solution]
) -> FoundDefinition:
    lines = [line for path in _workload_files(file, root, definition) for line in read_lines(path)]
    workloads = [read_workload(line, definition) for line in lines]
    if not workloads:
        raise UsageError(f"{file}: no workloads of {definition.name}", _where(root))
    seen: set[str] = set()
    for line, workload in zip(lines, workloads, strict=True):
        if workload.uuid in seen:
            raise line.fail("uuid", f"{workload.uuid!r} is there twice")
        seen.add(workload.uuid)
        _require_files(line, workload, root or file.parent)
    return FoundDefinition(
        file,
        root or file.parent,
        definition,
        tuple(workloads),
        tuple(line.values for line in lines),
        tuple(each for each in solutions if each.definition == definition.name),
        tuple(_figures(root, definition)),
    )


def _where(root: Path | None) -> str:
    return f"expected {_WORKLOADS}/**/NAME.jsonl" if root else f"expected {_ONE_WORKLOADS[0]}"


def _workload_files(file: Path, root: Path | None, definition: Definition) -> list[Path]:
    if root is not None:
        return sorted((root / _WORKLOADS).rglob(f"{definition.name}.jsonl"))
    candidates = [file.parent / name for name in (*_ONE_WORKLOADS, f"{definition.name}.jsonl")]
    return [path for path in candidates if path.is_file()][:1]


def _require_files(line: JsonFields, workload: Workload, root: Path) -> None:
    """Refuse a workload whose safetensors files are missing, cut off or lack its tensor."""
    for name, source in workload.inputs.items():
        if source.type == "safetensors":
            try:
                header = read_header(root / source.path)
            except UsageError as error:
                raise line.fail(f"inputs/{name}/path", error.message) from None
            if source.tensor_key not in header:
                raise line.fail(
                    f"inputs/{name}/tensor_key", f"{source.path} has no {source.tensor_key!r}"
                )


def _solutions(root: Path | None, folder: Path) -> list[Solution]:
    if root is not None:
        files = sorted((root / _SOLUTIONS).rglob("*.json"))
    else:
        files = [
            *sorted(folder.glob("solution*.json")),
            *sorted(folder.glob("solutions/**/*.json")),
        ]
    found: dict[str, Solution] = {}
    for file in files:
        fields = read_object(file)
        solution = read_solution(fields)
        if solution.name in found:
            raise fields.fail("name", f"another solution is named {solution.name!r}")
        found[solution.name] = solution
    return list(found.values())


def _figures(root: Path | None, definition: Definition) -> list[TraceFigure]:
    if root is None:
        return []
    files = sorted((root / _TRACES).rglob(f"{definition.name}.jsonl"))
    figures = [read_figure(line) for path in files for line in read_lines(path)]
    return [figure for figure in figures if figure is not None]
