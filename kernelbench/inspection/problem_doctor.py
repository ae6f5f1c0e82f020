"""``kernelbench doctor --problem``: every hook of a problem, tried without a step."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kernelbench.base.errors import KernelbenchError, UnknownNameError, UsageError
from kernelbench.machine import devices
from kernelbench.project.context import Context
from kernelbench.project.error_attribution import HOOKS
from kernelbench.project.installed import installed_problems
from kernelbench.project.model import Lineage
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.shapes import ShapeTable, load_shapes, resolve_shape

if TYPE_CHECKING:
    from kernelbench.inspection.problem_trials import Trials

#: Shapes after the smallest are tried while they promise to end within this many seconds.
BUDGET_S = 20.0
_LAUNCHES_S = 0.2
#: Less than this may be what a process does once: a GPU's context and libraries take seconds.
_ONCE_S = 5.0


@dataclass(frozen=True)
class HookRow:
    """How one hook did."""

    hook: str
    #: ``fault``: it does not do what it has to; ``warn``: it does, and something is odd; ``not
    #: tried``: a fault of another hook was in the way.
    state: Literal["ok", "warn", "fault", "not tried"]
    detail: str


@dataclass(frozen=True)
class ProblemDiagnosis:
    """The JSON contract of ``kernelbench doctor --problem NAME --json``."""

    problem: str
    usable: bool  #: Whether no hook is at fault.
    device: str
    shapes: tuple[str, ...]  #: Those that were tried.
    left_out: tuple[str, ...]  #: Those that would have taken too long.
    rows: tuple[HookRow, ...]
    schema: Literal["kernelbench.problem-doctor/1"] = "kernelbench.problem-doctor/1"


def examine_problem(name: str, specs: Sequence[str] = ()) -> ProblemDiagnosis:
    """Try every hook of a problem on its shapes, the smallest first, and each class of inputs.

    Args:
        name: A problem of the project or of one of its lineages, one that a package brings, or
            ``file.py:NAME`` and ``package.module:NAME``.
        specs: Shapes, by name or ad hoc; those of the project's shapes file if empty.

    Raises:
        UsageError: If there is no such problem or shape, or a part of the problem is missing.
        EnvironmentProblem: If torch is missing.
    """
    devices.require_torch("trying a problem's hooks")
    context = Context.find()
    problem = _problem(name, context)
    shapes = sorted(_shapes(problem, specs, context), key=_size)
    import torch

    from kernelbench.inspection.problem_trials import Trials

    torch.set_grad_enabled(False)
    trials = Trials(problem, "cuda:0" if torch.cuda.is_available() else "cpu")
    trials.parse_shape([shape.name for shape in shapes])
    began = time.monotonic()
    tried: list[str] = []
    seconds = 0.0
    for before, shape in zip([None, *shapes], shapes, strict=False):
        if before is not None:
            # A GPU takes its launches' time for what is small.
            launches = _LAUNCHES_S if trials.device != "cpu" else 0.0
            seconds = max(0.0, seconds - launches) * _size(shape) / _size(before)
            if time.monotonic() - began + seconds > BUDGET_S:
                break
        seconds = trials.shape(shape)
        if before is None and seconds < _ONCE_S:
            # What is done once in a process says nothing of larger shapes.
            seconds = Trials(problem, trials.device).shape(shape)
        tried.append(shape.name)
    hooks = [*HOOKS, *sorted(trials.faults.keys() - {*HOOKS})]
    return ProblemDiagnosis(
        problem=problem.name,
        usable=not trials.faults,
        device=trials.device,
        shapes=tuple(tried),
        left_out=tuple(shape.name for shape in shapes if shape.name not in tried),
        rows=tuple(_row(hook, trials) for hook in hooks),
    )


def _row(hook: str, trials: Trials) -> HookRow:
    if hook in trials.faults:
        return HookRow(hook, "fault", trials.faults[hook])
    seen = trials.found.get(hook, "")
    if hook in trials.warnings:
        return HookRow(hook, "warn", trials.warnings[hook] + (f"; {seen}" if seen else ""))
    if seen:
        return HookRow(hook, "ok", seen)
    return HookRow(hook, "not tried", "a fault of another hook was in the way")


def _problem(name: str, context: Context) -> Problem:
    if ":" in name:
        return load_problem(_nameless(name))
    known: list[str] = []
    for lineage in context.lineages.all_lineages:
        try:
            problem = load_problem(lineage)
        except KernelbenchError:
            if lineage.name == name:
                raise
            continue
        if name in (lineage.name, problem.name):
            return problem
        known += [lineage.name, problem.name]
    installed = installed_problems()
    if name in installed:
        return load_problem(_nameless(name))
    raise UnknownNameError("problem", name, dict.fromkeys([*known, *installed]))


def _nameless(problem: str) -> Lineage:
    """A lineage of no steps with this problem, relative to the current folder."""
    return Lineage("trial", "trial", problem, "", "", Path.cwd())


def _shapes(problem: Problem, specs: Sequence[str], context: Context) -> list[Any]:
    table = ShapeTable()
    if problem in context.problems.values():
        table = context.shapes
    elif not context.project.nowhere:
        problems = {**context.problems, problem.name: problem}
        if context.project.shapes_file.is_file():
            table = load_shapes(context.project.shapes_file, problems)
    names = specs or [*table.of(problem.name)]
    if not names:
        raise UsageError(
            f"no shape of {problem.name} to try its hooks on",
            "add one to shapes.yaml, or give --shape FIELD=VALUE:FIELD=VALUE",
        )
    return [resolve_shape(spec, problem, table) for spec in names]


def _size(shape: Any) -> float:
    """How large a shape is, by the numbers in its description."""
    return math.prod(int(number) or 1 for number in re.findall(r"\d+", shape.describe()))
