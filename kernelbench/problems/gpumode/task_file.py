"""A GPU MODE task folder as it is on disk: ``task.yml`` and the files that it names.

Nothing of a task runs here, and nothing here imports torch: what can be seen of a task without
running it is said before a worker starts. The fields are those that the server reads
(gpu-mode/kernelbot, ``task.py``, read in 2026); what it does not know is noted, not refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import yaml

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.base.yaml_file import yaml_nodes

Ranking = Literal["last", "mean", "geom"]

TASK_FILES = ("task.yml", "task.yaml")
SUBMISSION = "@SUBMISSION@"
#: What the server takes for a stage if the task does not say; seconds.
_TIMEOUT_S = 180.0
_KNOWN = frozenset(
    (
        "files", "lang", "description", "config", "templates", "tests", "benchmarks",
        "test_timeout", "benchmark_timeout", "ranked_timeout", "ranking_by", "gpus", "seed",
        "multi_gpu", "libraries", "name",
    )
)  # fmt: skip
_OWN_MODULES = ("reference", "task", "utils")
_STAGES = ("test", "bench")
_MOST_SHOWN = 8


@dataclass(frozen=True)
class TaskShape:
    """One test or benchmark of a task; see :class:`kernelbench.project.problem.Shape`."""

    name: str  #: ``test0``, ``bench0``, ... in the order of the file, or an ad-hoc specification.
    #: The arguments of ``generate_input``, by name; lists as tuples, so that it is a value.
    args: tuple[tuple[str, Any], ...]
    #: Whether a run times it once it is right: a test is only checked, unless asked for.
    timed: bool = True

    def describe(self) -> str:
        """The arguments, e.g. ``size=5120 seed=9991``."""
        return " ".join(f"{key}={_text(value)}" for key, value in self.args)

    def arguments(self) -> dict[str, Any]:
        """What ``generate_input`` is called with."""
        return {key: _thawed(value) for key, value in self.args}


@dataclass(frozen=True)
class Task:
    """A task folder."""

    folder: Path  #: Absolute.
    name: str  #: The folder's name.
    #: Python files by the name that they are imported by (``task``, ``utils``, ``reference``, ...),
    #: wherever the folder says that they come from.
    modules: tuple[tuple[str, Path], ...]
    #: ``tests``, ``benchmarks``: In the order of the file.
    tests: tuple[TaskShape, ...]
    benchmarks: tuple[TaskShape, ...]
    #: ``test_timeout_s``, ``benchmark_timeout_s``: Seconds that the server gives each of the two
    #: stages.
    test_timeout_s: float
    benchmark_timeout_s: float
    ranking_by: Ranking  #: How the server makes one figure of the benchmarks.
    gpus: tuple[str, ...]  #: The GPUs that its leaderboard is for; may be empty.
    description: str
    notes: tuple[str, ...]  #: What a user should know of how it was read.

    @property
    def shapes(self) -> tuple[TaskShape, ...]:
        """Tests, then benchmarks."""
        return (*self.tests, *self.benchmarks)

    @property
    def seeded(self) -> bool:
        """Whether every test and benchmark gives ``generate_input`` a seed."""
        return all("seed" in dict(shape.args) for shape in self.shapes)

    def module(self, name: str) -> Path | None:
        """The file that ``import name`` means in this task; None if it is none of its own."""
        return dict(self.modules).get(name)


def find_task_file(folder: Path) -> Path:
    """The ``task.yml`` of a task's folder; the file itself if that is what is given.

    Raises:
        UsageError: If there is none; for a folder or a list of several tasks, with their names.
    """
    if folder.is_file():
        if folder.name in TASK_FILES:
            return folder.resolve()
        raise UsageError(f"{folder}: is not a task.yml", _one_of(_directories(folder)))
    for name in TASK_FILES:
        if (folder / name).is_file():
            return (folder / name).resolve()
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", _one_of([]))
    inside = {file.parent.name for name in TASK_FILES for file in folder.glob(f"*/{name}")}
    raise UsageError(f"{folder}: has no task.yml", _one_of(sorted(inside)))


def _one_of(tasks: list[str]) -> str:
    """What to give in place of a folder that is no task."""
    if not tasks:
        return "--task takes the folder of a GPU MODE task"
    shown = ", ".join(tasks[:_MOST_SHOWN]) + (", ..." if len(tasks) > _MOST_SHOWN else "")
    return f"--task takes the folder of one task: {shown}"


def _directories(file: Path) -> list[str]:
    """The folders in a list of tasks, as the collection has one for each group; else none."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError):
        return []
    entries = values.get("problems") if isinstance(values, dict) else None
    found = [entry.get("directory") for entry in entries or () if isinstance(entry, dict)]
    return [name for name in found if isinstance(name, str)]


def read_task(folder: str | Path) -> Task:
    """Read a task folder and run nothing; UsageError, or EnvironmentProblem for several GPUs."""
    file = find_task_file(Path(folder).expanduser())
    table = _Table(file)
    lang = str(table.values.get("lang", "py")).lower()
    if lang not in ("py", "python"):
        raise table.fail("lang", f"is {lang!r}: only Python tasks can be run here")
    tests = _shapes(table, "tests", "test", timed=False)
    benchmarks = _shapes(table, "benchmarks", "bench", timed=True)
    if not tests and not benchmarks:
        raise table.fail("tests", "neither tests nor benchmarks are given")
    _refuse_several_gpus(table, (*tests, *benchmarks))
    ranking = table.values.get("ranking_by", "last")
    if ranking not in get_args(Ranking):
        known = ", ".join(get_args(Ranking))
        raise table.fail("ranking_by", f"expected one of {known}, found {ranking!r}")
    gpus = table.values.get("gpus", []) or []
    if not isinstance(gpus, list):
        raise table.fail("gpus", f"expected a list of names, found {gpus!r}")
    unknown = sorted(set(table.values) - _KNOWN)
    return Task(
        folder=file.parent,
        name=file.parent.name,
        modules=_modules(table),
        tests=tests,
        benchmarks=benchmarks,
        test_timeout_s=_seconds(table, "test_timeout"),
        benchmark_timeout_s=_seconds(table, "benchmark_timeout"),
        ranking_by=cast(Ranking, ranking),
        gpus=tuple(str(gpu) for gpu in gpus),
        description=str(table.values.get("description", "") or "").strip(),
        notes=(f"task.yml: not used here: {', '.join(unknown)}",) if unknown else (),
    )


def shape_of(name: str, fields: dict[str, Any]) -> TaskShape:
    """The shape of these arguments, not timed if its name is a test's; ValueError without any."""
    if not fields:
        raise ValueError("expected the arguments of generate_input, such as size=128:seed=1")
    args = tuple((str(key), _frozen(value)) for key, value in fields.items())
    return TaskShape(name, args, timed=not name.startswith(_STAGES[0]))


class _Table:
    """The top level of a ``task.yml``."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with yaml_nodes(file) as (node, loader):
            values = loader.construct_document(node) if node is not None else None
        if not isinstance(values, dict) or not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{file}:1: expected the fields of a task (files, tests, ...)")
        self.values: dict[Any, Any] = values
        self._lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}

    def fail(self, field: str, reason: str) -> UsageError:
        """The error for a field, with its line."""
        return UsageError(f"{self.file}:{self._lines.get(field, 1)}: field {field!r}: {reason}")


def _shapes(table: _Table, field: str, stage: str, timed: bool) -> tuple[TaskShape, ...]:
    entries = table.values.get(field, []) or []
    if not isinstance(entries, list):
        raise table.fail(field, f"expected a list of arguments, found {type(entries).__name__}")
    found = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not all(isinstance(key, str) for key in entry):
            raise table.fail(field, f"entry {index}: expected arguments by name, found {entry!r}")
        args = tuple((key, _frozen(value)) for key, value in entry.items())
        found.append(TaskShape(f"{stage}{index}", args, timed))
    return tuple(found)


def _refuse_several_gpus(table: _Table, shapes: tuple[TaskShape, ...]) -> None:
    sizes = [dict(shape.args).get("world_size", 1) for shape in shapes]
    most = max((size for size in sizes if isinstance(size, int)), default=1)
    if most > 1 or table.values.get("multi_gpu", False):
        raise EnvironmentProblem(
            f"{table.file}: a task for {most if most > 1 else 'several'} GPUs (multi_gpu)",
            "tasks for one GPU or a CPU can be run",
        )


def _seconds(table: _Table, field: str) -> float:
    value = table.values.get(field, _TIMEOUT_S)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise table.fail(field, f"expected a number of seconds, found {value!r}")
    return float(value)


def _modules(table: _Table) -> tuple[tuple[str, Path], ...]:
    """The Python files by module name: those of ``files``, and the usual ones of the folder."""
    folder = table.file.parent
    entries = table.values.get("files")
    usual = {name: folder / f"{name}.py" for name in _OWN_MODULES}
    found = {name: file for name, file in usual.items() if file.is_file()}
    if entries is not None:
        if not isinstance(entries, list):
            raise table.fail("files", "expected a list of {name: ..., source: ...}")
        found |= dict(_listed(table, entries))
    if "reference" not in found:
        raise UsageError(
            f"{folder}: no reference.py", "a task's reference.py defines generate_input and a check"
        )
    for name in ("submission", "eval"):
        found.pop(name, None)
    return tuple(sorted(found.items()))


def _listed(table: _Table, entries: list[Any]) -> list[tuple[str, Path]]:
    folder = table.file.parent
    found = []
    for index, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        source = entry.get("source") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not isinstance(source, str):
            raise table.fail("files", f"entry {index}: expected name and source, found {entry!r}")
        if source == SUBMISSION or not name.endswith(".py"):
            continue
        path = (folder / source).resolve()
        if not path.is_file():
            if Path(name).stem == "eval":  # never run: this program evaluates
                continue
            raise table.fail("files", f"entry {index}: {name}: no file {source} from {folder}")
        found.append((Path(name).stem, path))
    return found


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    return [_thawed(item) for item in value] if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return ",".join(map(_text, value)) if isinstance(value, tuple) else str(value)
