"""Writing a project of what a dataset holds: a lineage for each definition, a step a solution.

The project is written beside its place and moved there when it is whole.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem, UsageError
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
    """What was written.

    Attributes:
        target: The project's folder.
        definitions: By name: how many workloads and how many solutions it has.
        skipped: What was not taken, and why.
        figures: How many reported figures the solutions have.
    """

    target: Path
    definitions: dict[str, tuple[int, int]]
    skipped: tuple[Skipped, ...]
    figures: int


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
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            whole = Path(folder) / target.name
            _write(whole, found, steps, names)
            whole.rename(target)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write {target}: {error.strerror or error}", "nothing was half-written"
        ) from error
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
    lines = [
        "", "[reported]", f"device = {_quoted(hardware[0][0])}", 'metric = "device"', 'unit = "us"',
        'source = "traces of the dataset"',
        'note = "by the protocol of the dataset\'s own evaluation"',
        "", "[reported.values]",
        *(f"{_quoted(name)} = {us:.6g}" for name, us in values.items()),
    ]  # fmt: skip
    return _Step(names.new(solution.name), solution, "\n".join(lines) + "\n", len(values))


def _write(
    root: Path, found: Sequence[FoundDefinition], steps: dict[str, list[_Step]], names: _Names
) -> None:
    root.mkdir()
    lineages = ", ".join(_quoted(name) for name in names.lineages.values())
    _text(root / "pyproject.toml", f"[tool.kernelbench]\nlineages = [{lineages}]\n")
    _text(root / ".gitignore", "results/\n__pycache__/\n")
    shapes = []
    for each in found:
        shapes.append(f"{_quoted(each.definition.name)}:")
        named = shape_names(each.definition.name, len(each.workloads))
        for name, workload in zip(named, each.workloads, strict=True):
            fields = {**workload.axes, "workload": workload.uuid}
            inside = ", ".join(f"{_quoted(k)}: {json.dumps(v)}" for k, v in fields.items())
            shapes.append(f"  {_quoted(name)}: {{{inside}}}")
        _lineage(root, each, steps[each.definition.name], names)
    _text(root / "shapes.yaml", "\n".join(shapes) + "\n")
    _text(root / "README.md", _readme(found, steps, names))


def _lineage(root: Path, each: FoundDefinition, steps: list[_Step], names: _Names) -> None:
    definition = each.definition
    folder = root / names.lineages[definition.name]
    reference = names.references[definition.name]
    folder.mkdir()
    title = _line(definition.description) or definition.op_type or definition.name
    toml = {
        "name": names.lineages[definition.name], "title": title, "problem": _PROBLEM,
        "reference": reference,
    }  # fmt: skip
    _text(folder / "lineage.toml", _table(toml))
    shutil.copyfile(each.file, folder / DEFINITION_FILE)
    lines = "".join(json.dumps(line) + "\n" for line in each.lines)
    _text(folder / WORKLOADS_FILE, lines)
    _text(folder / ORIGIN_FILE, origin_text(each.root))
    _text(folder / REFERENCE_FILE, _ended(definition.reference))
    _write_step(
        folder / reference,
        {
            "name": reference, "title": "the definition's run", "technique": "plain PyTorch",
            "hypothesis": "none: it is what the others are judged by", "arch": "any",
            "kind": "python", "status": "works", "entry": "adapter.py",
        },
        {REFERENCE_FILE: definition.reference},
        _adapter(REFERENCE_FILE, "run", "*inputs.values()", destinations=False),
    )  # fmt: skip
    for step in steps:
        solution = step.solution
        adapter = "adapter.py" if "adapter.py" not in solution.sources else "kernelbench_adapter.py"
        table: dict[str, str | list[str]] = {
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
        _write_step(folder / step.name, table, solution.sources, text, step.reported)


def _write_step(
    folder: Path,
    table: dict[str, str | list[str]] | dict[str, str],
    sources: dict[str, str],
    adapter: str,
    more: str = "",
) -> None:
    folder.mkdir()
    for name, content in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _text(folder / name, _ended(content))
    _text(folder / str(table["entry"]), adapter)
    _text(folder / "step.toml", _table(table) + more)


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

_FILE = Path(__file__).resolve().parent / {_quoted(file)}
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


def _table(values: dict[str, str | list[str]] | dict[str, str]) -> str:
    rows = []
    for key, value in values.items():
        items = [_quoted(item) for item in value] if isinstance(value, list) else []
        rows.append(f"{key} = [{', '.join(items)}]" if items else f"{key} = {_quoted(str(value))}")
    return "\n".join(rows) + "\n"


def _quoted(text: str) -> str:
    """A basic string of TOML, which is also one of YAML and Python."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _line(text: str) -> str:
    return " ".join(text.split())[:120]


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
