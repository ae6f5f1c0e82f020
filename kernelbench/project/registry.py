"""Lineages and their steps: the only registry, read from ``lineage.toml`` and ``step.toml``.

A *lineage* is a folder with a ``lineage.toml`` and one sub-folder per step; steps beside the main
line may be one level further down (``variants``, ``failed``). A *step* is a folder with a
``step.toml``; its name is the folder's. Nothing here imports torch: listing must stay fast.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelbench.base.errors import PlannedStepError, UnknownNameError, UsageError
from kernelbench.project.installed import installed_peers
from kernelbench.project.model import STATUSES, Kind, Lineage, Reported, Step, StepStatus
from kernelbench.project.project_file import Project, shipped_project
from kernelbench.project.shipped import shipped_root
from kernelbench.project.step_files import (
    folder_without_step,
    lineage_folder,
    read_lineage,
    read_step,
    read_submission,
    step_folders,
)

__all__ = [
    "STATUSES", "Kind", "Lineage", "Lineages", "Reported", "Step", "StepStatus", "load_lineages",
    "require_runnable",
]  # fmt: skip


@dataclass(frozen=True)
class Lineages:
    """All lineages of a project. ``steps`` has the main line of each, then its experiments.

    A name that the project has no step or lineage of is looked up among those that ship, if
    ``with_shipped``; a lineage of the project hides the shipped one of its name. A step whose file
    is malformed is an error for who asks for it, for its lineage or for all steps.
    """

    lineages: tuple[Lineage, ...]
    readable: tuple[Step, ...]
    with_shipped: bool = False
    nowhere: bool = False
    #: Of each step that is not readable: its lineage, and what is wrong, by name.
    broken: Mapping[str, tuple[str, UsageError]] = field(default_factory=dict)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The project's steps; UsageError for what is wrong with one of them."""
        for _, error in self.broken.values():
            raise error
        return self.readable

    @functools.cached_property
    def shipped(self) -> Lineages:
        """The lineages that ship and that are not the project's own; read when first asked for."""
        if not self.with_shipped:
            return Lineages((), ())
        found = load_lineages(shipped_project())
        mine = {lineage.name for lineage in self.lineages}
        return Lineages(
            tuple(lineage for lineage in found.lineages if lineage.name not in mine),
            tuple(step for step in found.steps if step.lineage not in mine),
        )

    @property
    def all_lineages(self) -> tuple[Lineage, ...]:
        """The project's lineages, then those that ship."""
        return self.lineages + self.shipped.lineages

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The project's readable steps, then those that ship."""
        return self.readable + self.shipped.readable

    def get(self, name: str) -> Step:
        """The step of that name; UsageError, with the nearest name, if there is none."""
        if name in self.broken:
            raise self.broken[name][1]
        found = self._find(name)
        if found is None:
            raise self._unknown(name)
        return found

    def _find(self, name: str) -> Step | None:
        found = next((step for step in self.readable if step.name == name), None)
        return found or (self.shipped._find(name) if self.with_shipped else None)

    def _unknown(self, name: str, *others: str) -> UsageError:
        """What is wrong with a name that is no step's; ``others`` could stand there, too."""
        for lineage in self.lineages:
            if folder := folder_without_step(lineage.path, name):
                return UsageError(
                    f"unknown step {name!r}: {folder} has no step.toml",
                    f"write one, or move the folder away and `kernelbench new {name} --from STEP`",
                )
        where = " (this folder is in no project)" if self.nowhere else ""
        known = [*(step.name for step in self.all_steps), *others]
        return UnknownNameError("step", name, known, where)

    def peers_of(self, steps: Sequence[Step]) -> list[Step]:
        """The peers of the lineages that any of these steps is of, without the steps themselves."""
        names = {step.lineage for step in steps}
        return [
            step
            for lineage in self.all_lineages
            if lineage.peers_of in names - {""}
            for step in self.steps_of(lineage.name)
            if step not in steps
        ]

    @property
    def chains(self) -> tuple[Lineage, ...]:
        """The lineages but for those of peers."""
        return tuple(lineage for lineage in self.lineages if not lineage.peers_of)

    def lineage(self, name: str) -> Lineage:
        """The lineage of that name; UnknownNameError, with the nearest, if there is none."""
        for lineage in self.all_lineages:
            if lineage.name == name:
                return lineage
        raise UnknownNameError("lineage", name, [lineage.name for lineage in self.all_lineages])

    def lineage_of(self, step: Step) -> Lineage | None:
        """The lineage that a step belongs to, from outside the project too; None if it has none."""
        for lineage in self.lineages if step in self.readable else self.all_lineages:
            if lineage.name == step.lineage:
                return lineage
        return read_lineage(step.lineage_path) if step.lineage else None

    def steps_of(self, lineage: str) -> tuple[Step, ...]:
        """The steps of one lineage, in order; UsageError for what is wrong with one of them."""
        for of, error in self.broken.values():
            if of == lineage:
                raise error
        own = any(each.name == lineage for each in self.lineages)
        steps = self.readable if own else self.shipped.steps
        return tuple(step for step in steps if step.lineage == lineage)

    def parent_of(self, step: Step) -> Step | None:
        """The step that ``step`` changes; None for a root."""
        for other in self.readable if step in self.readable else self.shipped.steps:
            if (other.name, other.lineage) == (step.parent, step.lineage):
                return other
        return self.get(step.parent) if step.parent else None

    def select(self, specs: Sequence[str]) -> list[Step]:
        """The steps that a command line means, in its order, each once.

        A specification is a step's name, a range ``v01..v07`` along one lineage's main line, a
        lineage's name (its main line) or that and ``-best``, a step's folder, a folder of steps
        (``moe/variants``), or a ``.py`` file with ``custom_kernel``.

        Raises:
            UsageError: For an unknown name (with the nearest one), a range over two lineages or
                backwards, or a path that is neither a step nor a submission.
        """
        chosen: list[Step] = []
        for spec in specs:
            chosen += [step for step in self._expand(spec) if step not in chosen]
        return chosen

    def select_one(self, spec: str, advice: str) -> Step:
        """The only step that ``spec`` means; UsageError, with the advice, for none or several."""
        try:
            chosen = self.select([spec])
        except UnknownNameError:
            raise self._unknown(spec) from None
        if len(chosen) != 1:
            raise UsageError(f"{spec!r} is {len(chosen)} steps", advice)
        return chosen[0]

    def _expand(self, spec: str) -> Sequence[Step]:
        if "/" in spec or "\\" in spec or spec.endswith(".py") or spec in (".", ".."):
            return self._from_path(Path(spec))
        first, dots, last = spec.partition("..")
        if dots:
            if not (first and last):
                raise UsageError(f"range {spec!r} has one end only", "write FIRST..LAST")
            return self._range(spec, self.get(first), self.get(last))
        if spec in self.broken or any(step.name == spec for step in self.readable):
            return [self.get(spec)]
        if any(lineage.name == spec for lineage in self.all_lineages):
            steps = self.steps_of(spec)
            return [step for step in steps if not step.experiment] or steps
        best = {f"{each.name}-best": each.best for each in self.all_lineages if each.best}
        name = best.get(spec, spec)
        if all(step.name != name for step in self.all_steps):
            if Path(spec).is_file():
                return self._from_path(Path(spec))
            raise self._unknown(spec, *(lineage.name for lineage in self.all_lineages), *best)
        return [self.get(name)]

    def _range(self, spec: str, first: Step, last: Step) -> Sequence[Step]:
        if first.lineage != last.lineage:
            raise UsageError(
                f"range {spec!r}: {first.name} is of lineage {first.lineage}, "
                f"{last.name} of {last.lineage}",
                "give one range per lineage",
            )
        steps = self.steps_of(first.lineage)
        start, stop = steps.index(first), steps.index(last)
        if start > stop:
            raise UsageError(
                f"range {spec!r}: {last.name} comes before {first.name}",
                f"write {last.name}..{first.name}",
            )
        return steps[start : stop + 1]

    def _from_path(self, path: Path) -> Sequence[Step]:
        path = path.expanduser().resolve()
        if path.is_dir():
            meant = [
                step
                for step in self.all_steps
                if path == step.path or (step.subfolder and path == step.path.parent)
            ]
            if meant:
                for file in path.glob("*/step.toml"):
                    if file.parent.name in self.broken:
                        raise self.broken[file.parent.name][1]
                return meant
            if not (path / "step.toml").is_file():
                raise UsageError(
                    f"{path}: not a step: no step.toml there",
                    "give a step's folder, its name, or a .py file with custom_kernel",
                )
            folder = lineage_folder(path)
            return [read_step(path, read_lineage(folder) if folder else None)]
        if not path.is_file():
            raise UsageError(f"{path}: no such file or folder")
        if path.suffix != ".py":
            raise UsageError(
                f"{path}: neither a step nor a submission",
                "expected a .py file with custom_kernel(data); `check` also takes .cu and .ptx",
            )
        for step in self.all_steps:
            if step.entry == path:
                return [step]
        return [read_submission(path)]


def load_lineages(
    project: Project, *, with_shipped: bool = False, former: bool = False
) -> Lineages:
    """Read every lineage of a project.

    Args:
        with_shipped: Whether names are also looked up among what ships.
        former: Whether its files may be from when kinds of steps had other names.

    Raises:
        UsageError: For a missing or malformed ``lineage.toml``, with file and field; for a name
            that two steps share, a parent that does not exist, or a cycle of parents.
    """
    lineages: list[Lineage] = []
    broken: dict[str, tuple[str, UsageError]] = {}
    steps: list[Step] = []
    brought = [folder for folder in installed_peers() if folder not in project.lineages]
    own = {read_lineage(folder).name for folder in project.lineages} if brought else set()
    for folder in (*project.lineages, *brought):
        lineage = read_lineage(folder)
        if folder in brought and lineage.peers_of not in own:
            continue
        if any(lineage.name == other.name for other in lineages):
            raise UsageError(f"{folder / 'lineage.toml'}: another lineage is named {lineage.name}")
        lineages.append(lineage)
        known: dict[str, Step | None] = {}
        found = []
        for each in step_folders(folder):
            try:
                found.append(read_step(each, lineage, known, former=former))
            except UsageError as error:
                broken[each.name] = (lineage.name, error)
                known.pop(each.name, None)  # what has it as its base says the same
        _check_parents(lineage, found, broken)
        steps += sorted(found, key=lambda step: _order(step, lineage))
    seen: dict[str, Step] = {}
    names = {lineage.name for lineage in lineages}
    aliases = {f"{lineage.name}-best" for lineage in lineages if lineage.best}
    for lineage in lineages:
        if lineage.peers_of and lineage.peers_of not in names:
            where = f" (field 'peers_of') in {lineage.path / 'lineage.toml'}"
            raise UnknownNameError("lineage", lineage.peers_of, sorted(names), where)
    for step in steps:
        if step.name in seen:
            raise UsageError(f"{step.path} and {seen[step.name].path}: two steps named {step.name}")
        if step.name in names:
            raise UsageError(f"{step.path}: a lineage is named {step.name} too", "rename the step")
        if step.name in aliases:
            raise UsageError(
                f"{step.path}: {step.name} stands for a lineage's best step", "rename the step"
            )
        seen[step.name] = step
    beyond = with_shipped and project.root != shipped_root()
    return Lineages(tuple(lineages), tuple(steps), beyond, project.nowhere, broken)


def require_runnable(step: Step) -> Path:
    """The step's entry file; PlannedStepError if it is planned, UsageError if it is missing."""
    if step.status == "planned" or step.entry is None:
        raise PlannedStepError(
            f"{step.name} is planned: its kernel is not written yet",
            "`kernelbench list` shows the steps that run",
        )
    if not step.entry.is_file():
        raise UsageError(f"{step.name}: status {step.status!r}, but {step.entry} is missing")
    return step.entry


def _check_parents(lineage: Lineage, steps: Sequence[Step], broken: Collection[str]) -> None:
    parents = {step.name: step.parent for step in steps} | dict.fromkeys(broken)
    for step in steps:
        file = step.path / "step.toml"
        seen = [step.name]
        while (parent := parents[seen[-1]]) is not None:
            if parent not in parents and _ships(parent):
                break
            if parent not in parents:
                child = next(other for other in steps if other.name == seen[-1])
                raise UnknownNameError("parent", parent, parents, f" in {child.path / 'step.toml'}")
            if parent in seen:
                raise UsageError(f"{file}: parents form a cycle: {' -> '.join([*seen, parent])}")
            seen.append(parent)
    for key, name in (("reference", lineage.reference), ("best", lineage.best)):
        if name and name not in parents:
            where = f" (field {key!r}) in {lineage.path / 'lineage.toml'}"
            raise UnknownNameError("step", name, parents, where)


def _ships(name: str) -> bool:
    """Whether a step of this name ships: a project's first step may have such a parent."""
    return any(
        folder.name == name
        for lineage in shipped_project().lineages
        for folder in step_folders(lineage)
    )


def _order(step: Step, lineage: Lineage) -> tuple[Any, ...]:
    """Main line before experiments, the reference first, numbers inside names by value."""
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.findall(r"\d+|\D+", step.name)
    )
    return (step.name != lineage.reference, step.experiment, parts, step.name)
