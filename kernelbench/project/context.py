"""What every command starts from: project, lineages, problems, shapes; loaded when asked for.

The shapes' parser is, too: ``list`` needs none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import UnknownNameError, UsageError
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.project_file import Project, find_project, shipped_project
from kernelbench.project.registry import Lineage, Lineages, Step, load_lineages

if TYPE_CHECKING:
    from kernelbench.project.shapes import ShapeTable

#: What a schedule of the emulator does in seconds.
_EMULATED_FLOPS, _EMULATED_BYTES = 2e8, 3.2e7


@dataclass(frozen=True)
class Context:
    """The project that a command works in."""

    project: Project

    @classmethod
    def find(cls) -> Context:
        """The context of the current folder; UsageError if there is no project here."""
        return cls(find_project())

    @functools.cached_property
    def lineages(self) -> Lineages:
        """Every lineage and step, those that ship behind those of the project."""
        return load_lineages(self.project, with_shipped=True)

    @functools.cached_property
    def problems(self) -> dict[str, Problem]:
        """Problems by name, one per lineage that has its own; those that ship come last."""
        return _problems_of(self.lineages.all_lineages)

    @functools.cached_property
    def _shipped_problems(self) -> dict[str, Problem]:
        shipped = load_lineages(shipped_project()) if self.lineages.with_shipped else None
        return _problems_of(shipped.lineages) if shipped else {}

    @functools.cached_property
    def _own_problems(self) -> dict[str, Problem]:
        return _problems_of(self.lineages.lineages)

    @functools.cached_property
    def shapes(self) -> ShapeTable:
        """The shapes of the project's shapes file, and those that ship for the problems that ship.

        A project that has only problems that ship needs no shapes file.
        """
        from kernelbench.project.shapes import ShapeTable, load_shapes

        table = ShapeTable()
        for name, shapes in self._own_shapes.by_problem.items():
            for shape in shapes.values():
                table.add(name, shape.name, shape)
        if not self.lineages.with_shipped:
            return table
        shipped = shipped_project()
        theirs = self._shipped_problems
        for name, shapes in load_shapes(shipped.shapes_file, theirs).by_problem.items():
            # The project may have a problem of its own by that name.
            if self.problems[name] is theirs[name]:
                for shape in shapes.values():
                    table.add(name, shape.name, shape)
        return table

    @functools.cached_property
    def _own_shapes(self) -> ShapeTable:
        from kernelbench.project.shapes import ShapeTable, load_shapes

        needed = self._own_problems.keys() - self._shipped_problems.keys()
        if self.project.shapes_file.is_file() or needed or not self.lineages.with_shipped:
            return load_shapes(self.project.shapes_file, self.problems)
        return ShapeTable()

    def shapes_here(self, problem: Problem) -> dict[str, Any]:
        """A problem's shapes by name: those of the project, or those that ship if it has none."""
        return self._own_shapes.of(problem.name) or self.shapes.of(problem.name)

    def lineage_for(self, step: Step) -> Lineage:
        """The lineage whose problem a step solves, a submission's the first; UsageError if none."""
        lineage = self.lineages.lineage_of(step)
        if lineage is not None:
            return lineage
        for candidate in self.lineages.all_lineages:
            if step.problem in (candidate.name, load_problem(candidate).name):
                return candidate
        raise UsageError(f"{step.name}: no lineage here has the problem {step.problem!r}")

    def shapes_for(self, problem: Problem, specs: Sequence[str]) -> tuple[Any, ...]:
        """The shapes that ``--shape`` means for a problem; its benchmark shapes for none.

        ``all`` is those of the problem's benchmark shapes that the file has, or all of its shapes
        if it has none of them; ``every`` is every shape of the file. What ships is found by name,
        and stands for a file that has no shape of the problem.

        Raises:
            UsageError: For an unknown name, a malformed ad-hoc shape, or no shape at all.
        """
        from kernelbench.project.shapes import resolve_shape

        chosen: list[Any] = []
        named = self.shapes_here(problem)
        for spec in specs or ("all",):
            if spec == "all":
                present = [name for name in problem.benchmark_shapes if name in named]
                chosen += [named[name] for name in present or named]
            elif spec == "every":
                chosen += named.values()
            else:
                chosen.append(resolve_shape(spec, problem, self.shapes))
        if not chosen:
            raise UsageError(
                f"{self.project.shapes_file} has no shapes of {problem.name}",
                "add some, or give one ad hoc: --shape m=40,76:n=512:k=768",
            )
        return tuple(dict.fromkeys(chosen))

    def check_shapes(self, problem: Problem) -> list[str]:
        """Names of small shapes for checking, of those that the shapes file has.

        The problem's choice; without one, those whose work the emulator does in seconds, at least
        that with the least.
        """
        known = self.shapes_here(problem)
        named = [name for name in getattr(problem, "check_shapes", ()) if name in known]
        if named or not known:
            return named
        work = {name: problem.work(shape) for name, shape in known.items()}
        share = {
            name: max(each.flops / _EMULATED_FLOPS, each.bytes_total / _EMULATED_BYTES)
            for name, each in work.items()
        }
        return [name for name in known if share[name] <= max(1, min(share.values()))]

    def trial_shape(self, step: Step) -> str:
        """The small shape that gives a step most to do; empty if there is none that it takes."""
        problem = load_problem(self.lineage_for(step))
        known = self.shapes_here(problem)
        small = [known[name] for name in self.check_shapes(problem)]
        taken = [shape for shape in small if not problem.broken_limit(shape, step.limits)]
        most = max(taken, key=lambda shape: problem.work(shape).flops, default=None)
        return most.name if most else ""

    def classes_for(self, problem: Problem, specs: Sequence[str]) -> tuple[str, ...]:
        """The input classes that ``--inputs`` means, by default all; or UnknownNameError."""
        if not specs or "all" in specs:
            return problem.input_classes
        for spec in specs:
            if spec not in problem.input_classes:
                raise UnknownNameError("input class", spec, problem.input_classes)
        return tuple(dict.fromkeys(specs))


def _problems_of(lineages: Iterable[Lineage]) -> dict[str, Problem]:
    found: dict[str, Problem] = {}
    for lineage in lineages:
        problem = load_problem(lineage)
        found.setdefault(problem.name, problem)
    return found


def parse_results(folder: str | Path | None, project: Project) -> Path:
    """The results folder: ``--results``, else the project's."""
    return Path(folder).expanduser().resolve() if folder else project.results
