"""Writing a project of what a dataset holds: a lineage for each definition, a step a solution."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.base.files import write_folder
from kernelbench.base.toml_file import toml_table, toml_value
from kernelbench.problems.flashinfer.axes import python_parameters
from kernelbench.problems.flashinfer.dataset import FoundDefinition, Skipped, find_definitions
from kernelbench.problems.flashinfer.models import Solution
from kernelbench.problems.flashinfer.problem import (
    DEFINITION_FILE,
    ORIGIN_FILE,
    REFERENCE_FILE,
    WORKLOADS_FILE,
    origin_text,
    shape_names,
)

_TRITON = "triton"
_LANGUAGES = frozenset(("python", "pytorch", _TRITON))
_PROBLEM = "kernelbench.problems.flashinfer.problem:DEFINITION"


@dataclass(frozen=True)
class Imported:
    """What was written."""

    target: Path  #: The project's folder.
    #: By name: how many workloads and how many solutions it has.
    definitions: dict[str, tuple[int, int]]
    skipped: tuple[Skipped, ...]  #: What was not taken, and why.
    figures: int  #: How many reported figures the solutions have.


@dataclass(frozen=True)
class _Step:
    name: str
    solution: Solution
    reported: str
    figures: int


def import_project(source: Path, target: Path | None = None) -> Imported:
    """Read ``source`` and write a project of it.

    Args:
        source: A dataset's root, a problem's folder or a definition's file.
        target: The project's folder, which must not exist; the name of the source in the current
            folder if None.

    Raises:
        UsageError: If something there is malformed or missing, or the target exists.
        EnvironmentProblem: If the project cannot be written. Nothing of it is left then.
    """
    source = source.expanduser().resolve()
    found, skipped = find_definitions(source)
    target = target or Path(
        f"{found[0].definition.name if len(found) == 1 else source.name}-project"
    )
    target = target.expanduser().resolve()
    if target.exists():
        raise UsageError(f"{target} exists", "give another folder with -o")
    names = _Names(found)
    steps = {
        each.definition.name: [
            _step(each, solution, names)
            for solution in each.solutions
            if _LANGUAGES.issuperset(solution.languages)
        ]
        for each in found
    }
    for each in found:
        for solution in each.solutions:
            if not _LANGUAGES.issuperset(solution.languages):
                written = ", ".join(solution.languages)
                reason = f"language {written}: only Python and Triton become steps"
                skipped.append(Skipped(solution.name, reason))
    write_folder(target, _files(found, steps, names))
    return Imported(
        target,
        {
            each.definition.name: (len(each.workloads), len(steps[each.definition.name]))
            for each in found
        },
        tuple(skipped),
        sum(step.figures for some in steps.values() for step in some),
    )


class _Names:
    """Names of lineages and steps, unique in the project, near those of the dataset."""

    def __init__(self, found: Sequence[FoundDefinition]) -> None:
        self._taken: set[str] = set()
        self.lineages = {each.definition.name: self.new(each.definition.name) for each in found}
        self.references = {
            each.definition.name: self.new(f"{self.lineages[each.definition.name]}-reference")
            for each in found
        }

    def new(self, wanted: str) -> str:
        """A step name that is not taken yet."""
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", wanted).strip("_-")
        if not name[:1].isalpha():
            name = f"x{name}"
        unique, number = name, 2
        while unique in self._taken:
            unique, number = f"{name}_{number}", number + 1
        self._taken.add(unique)
        return unique


def _step(each: FoundDefinition, solution: Solution, names: _Names) -> _Step:
    shapes = dict(
        zip(
            (workload.uuid for workload in each.workloads),
            shape_names(each.definition.name, len(each.workloads)),
            strict=True,
        )
    )
    mine = [f for f in each.figures if f.solution == solution.name and f.uuid in shapes]
    hardware = Counter(figure.hardware for figure in mine).most_common(1)
    if not hardware:
        return _Step(names.new(solution.name), solution, "", 0)
    values = {shapes[f.uuid]: f.us for f in mine if f.hardware == hardware[0][0]}
    table = {
        "device": hardware[0][0], "metric": "device", "unit": "us",
        "source": "traces of the dataset",
        "note": "by the protocol of the dataset's own evaluation",
    }  # fmt: skip
    rows = "".join(f"{toml_value(name)} = {us:.6g}\n" for name, us in values.items())
    reported = f"\n[reported]\n{toml_table(table)}\n[reported.values]\n{rows}"
    return _Step(names.new(solution.name), solution, reported, len(values))


def _files(
    found: Sequence[FoundDefinition], steps: dict[str, list[_Step]], names: _Names
) -> dict[str, str | Path]:
    """The project's files: texts, or files that are copied."""
    shapes = []
    files: dict[str, str | Path] = {}
    for each in found:
        shapes.append(f"{toml_value(each.definition.name)}:")
        named = shape_names(each.definition.name, len(each.workloads))
        for name, workload in zip(named, each.workloads, strict=True):
            fields = {**workload.axes, "workload": workload.uuid}
            inside = ", ".join(f"{toml_value(k)}: {json.dumps(v)}" for k, v in fields.items())
            shapes.append(f"  {toml_value(name)}: {{{inside}}}")
        files |= _lineage(each, steps[each.definition.name], names)
    lineages = toml_value([*names.lineages.values()])
    return files | {
        "pyproject.toml": f"[tool.kernelbench]\nlineages = {lineages}\n",
        ".gitignore": "results/\n__pycache__/\n",
        "shapes.yaml": "\n".join(shapes) + "\n",
        "README.md": _readme(found, steps, names),
    }


def _lineage(each: FoundDefinition, steps: list[_Step], names: _Names) -> dict[str, str | Path]:
    definition = each.definition
    folder = names.lineages[definition.name]
    reference = names.references[definition.name]
    title = _line(definition.description) or definition.op_type or definition.name
    toml = {
        "name": names.lineages[definition.name], "title": title, "problem": _PROBLEM,
        "reference": reference,
    }  # fmt: skip
    files: dict[str, str | Path] = {
        f"{folder}/lineage.toml": toml_table(toml),
        f"{folder}/{DEFINITION_FILE}": each.file,
        f"{folder}/{WORKLOADS_FILE}": "".join(json.dumps(line) + "\n" for line in each.lines),
        f"{folder}/{ORIGIN_FILE}": origin_text(each.root),
        f"{folder}/{REFERENCE_FILE}": _ended(definition.reference),
    }
    table: dict[str, Any] = {
        "name": reference, "title": "the definition's run", "technique": "plain PyTorch",
        "hypothesis": "none: it is what the others are judged by", "arch": "any",
        "kind": "python", "status": "works", "entry": "adapter.py",
    }  # fmt: skip
    adapter = _adapter(REFERENCE_FILE, "run", "*inputs.values()", destinations=False)
    files |= _step_files(folder, table, {REFERENCE_FILE: definition.reference}, adapter)
    for step in steps:
        solution = step.solution
        adapter = "adapter.py" if "adapter.py" not in solution.sources else "kernelbench_adapter.py"
        table = {
            "name": step.name, "parent": reference,
            "title": _line(solution.description) or solution.name,
            "technique": f"{', '.join(solution.languages)}, by {_line(solution.author)}",
            "hypothesis": "none stated", "arch": "any", "kind": "python", "status": "works",
            "entry": adapter,
        }  # fmt: skip
        if _TRITON in solution.languages:
            table["needs"] = ["gpu", "triton"]
        call, destinations = _call(each, solution)
        text = _adapter(solution.entry_file, solution.entry_function, call, destinations)
        files |= _step_files(folder, table, solution.sources, text, step.reported)
    return files


def _step_files(
    lineage: str, table: dict[str, Any], sources: dict[str, str], adapter: str, more: str = ""
) -> dict[str, str]:
    texts = {name: _ended(content) for name, content in sources.items()}
    texts |= {table["entry"]: adapter, "step.toml": toml_table(table) + more}
    return {f"{lineage}/{table['name']}/{name}": text for name, text in texts.items()}


def _call(each: FoundDefinition, solution: Solution) -> tuple[str, bool]:
    """The arguments of the entry function, and whether it is given its outputs.

    A file that does not say so is asked for its parameters: older datasets, whose solutions return
    their outputs, have no such field. Where the parameters do not tell it is given them, as the
    schemas say.
    """
    inputs, outputs = list(each.definition.inputs), list(each.definition.outputs)
    source = solution.sources[solution.entry_file]
    parameters = python_parameters(source, solution.entry_function)
    destinations = solution.destinations
    if destinations is None:
        named = parameters is not None and bool(set(outputs) & set(parameters))
        every = len(inputs) + len(outputs)
        destinations = named or parameters is None or len(parameters) >= every
    wanted = [*inputs, *outputs] if destinations else inputs
    by_name = parameters is not None and set(wanted) <= set(parameters)
    if by_name and parameters is not None and parameters[: len(wanted)] != wanted:
        return "**inputs, **outputs" if destinations else "**inputs", destinations
    return (
        "*inputs.values(), *outputs.values()" if destinations else "*inputs.values()"
    ), destinations


def _adapter(file: str, function: str, call: str, destinations: bool) -> str:
    """The step's entry file: self-contained, so that it can be read and changed."""
    body = (
        f"    _MODULE.{function}({call})\n    return tuple(outputs.values())\n"
        if destinations
        else f"    return _MODULE.{function}({call})\n"
    )
    unpacked = "inputs, outputs" if "outputs" in body else "inputs, _"
    return f'''"""Calls {function} of {file} on the definition's inputs."""

import importlib.util
import sys
from pathlib import Path

_FILE = Path(__file__).resolve().parent / {toml_value(file)}
sys.path.append(str(_FILE.parent))
_SPEC = importlib.util.spec_from_file_location("solution_" + _FILE.parent.name, _FILE)
_MODULE = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _MODULE
_SPEC.loader.exec_module(_MODULE)


def custom_kernel(data):
    {unpacked} = data
{body}'''


def _readme(found: Sequence[FoundDefinition], steps: dict[str, list[_Step]], names: _Names) -> str:
    first = found[0].definition.name
    reference = names.references[first]
    lines = [
        "# Imported kernels", "",
        "Definitions, workloads and solutions of a FlashInfer-Trace dataset or SOL-ExecBench",
        "problem. A definition is a lineage, a workload a shape, a solution a step. Figures in",
        "`step.toml` are reported by the dataset's traces, not measured here.", "",
        "```", "kernelbench list", f"kernelbench run {reference} --shape {first}.0",
    ]  # fmt: skip
    if steps[first]:
        lines.append(f"kernelbench ab {reference} {steps[first][0].name} --shape {first}.0")
    return "\n".join([*lines, "```", ""])


def _line(text: str) -> str:
    return " ".join(text.split())[:120]


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
