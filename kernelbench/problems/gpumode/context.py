"""What a command works with that was given ``--task DIR``: the task in place of the project's own.

The lineage is the task, its shapes are the task's tests and benchmarks, its steps are
``reference`` (the task's own ``ref_kernel``) and the folder's files with a ``custom_kernel``.
Results go below the project's, in a folder of the task's.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from kernelbench.base.errors import UnknownNameError
from kernelbench.problems.gpumode.problem import TaskProblem
from kernelbench.problems.gpumode.static_check import require_sound
from kernelbench.problems.gpumode.task_file import Task, find_task_file
from kernelbench.project.context import Context
from kernelbench.project.model import Lineage, Step
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import Lineages
from kernelbench.project.shapes import ShapeTable, resolve_shape
from kernelbench.project.step_files import is_submission, read_submission

REFERENCE = "reference"
#: Below the project's results; then the group and the task, as names recur in other groups.
RESULTS = "gpu-mode"
_PROBLEM = "kernelbench.problems.gpumode.problem:TASK"


@dataclass(frozen=True)
class TaskContext(Context):
    """The context of one task; make it with :func:`task_context`."""

    lineage: Lineage

    @property
    def task(self) -> Task:
        """The task that takes the place of a project."""
        return cast(TaskProblem, load_problem(self.lineage)).task

    @functools.cached_property
    def lineages(self) -> Lineages:
        """The task as a lineage, with what can be run of its folder."""
        return Lineages((self.lineage,), tuple(_steps(self.task, self.lineage)))

    @functools.cached_property
    def shapes(self) -> ShapeTable:
        """The task's tests and benchmarks."""
        table = ShapeTable()
        for shape in self.task.shapes:
            table.add(self.task.name, shape.name, shape)
        return table

    def shapes_for(self, problem: Problem, specs: Sequence[str]) -> tuple[Any, ...]:
        """As a project does it; ``tests`` is all tests, ``every`` tests and benchmarks.

        A test that is named is timed like a benchmark.

        Raises:
            UsageError: For an unknown name or a malformed ad-hoc shape.
        """
        chosen: list[Any] = []
        for spec in specs or ("all",):
            if spec == "tests":
                chosen += self.task.tests
            elif spec == "all":
                chosen += self.task.benchmarks or self.task.tests
            elif spec == "every":
                chosen += self.task.shapes
            else:
                found = resolve_shape(spec, problem, self.shapes)
                chosen.append(replace(found, timed=True))  # type: ignore[type-var]
        by_name = {shape.name: shape for shape in chosen}
        if not by_name:
            raise UnknownNameError("shape", ",".join(specs), self.shapes)
        return tuple(by_name.values())


def task_context(folder: str | Path) -> TaskContext:
    """The context of the task in ``folder``; UsageError or EnvironmentProblem without one."""
    path = find_task_file(Path(folder).expanduser()).parent
    lineage = Lineage(
        name=path.name, title=f"GPU MODE task {path.name}", problem=_PROBLEM, source="",
        reference=REFERENCE, path=path,
    )  # fmt: skip
    project = find_project()
    results = project.results / RESULTS / path.parent.name / path.name
    context = TaskContext(replace(project, results=results), lineage)
    require_sound(context.task)
    return context


def _steps(task: Task, lineage: Lineage) -> list[Step]:
    """The reference, then the folder's submissions by name."""
    reference = task.module(REFERENCE)
    assert reference is not None
    found = [
        Step(
            name=REFERENCE, lineage=lineage.name, problem=lineage.problem, parent=None,
            title="the task's own ref_kernel", technique="the task's own ref_kernel", hypothesis="",
            arch="any", status="works", kind="python", path=task.folder, entry=reference,
            submission=True,
        )
    ]  # fmt: skip
    own = {path for _, path in task.modules}
    for file in sorted(task.folder.glob("*.py")):
        if file not in own and is_submission(file):
            step = read_submission(file)
            found.append(replace(step, lineage=lineage.name, problem=lineage.problem))
    return found
