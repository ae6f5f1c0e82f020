"""From what the command line names to what runs: steps with problem, shapes, classes and target."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from kernelbench import clocks, target
from kernelbench.context import Context
from kernelbench.errors import PlannedStepError, UsageError
from kernelbench.lineage import Step, load_problem
from kernelbench.runner import StepRun


def plan(
    context: Context,
    steps: Sequence[str],
    shapes: Sequence[str],
    executor: str,
    inputs: Sequence[str],
    device: int,
    *,
    warn: Callable[[str], None],
) -> list[StepRun]:
    """What to run: steps with their problems, shapes, classes and targets.

    A planned step named alone is an error; in a range or lineage it is left out and ``warn`` told.

    Raises:
        KernelbenchError: For whatever in the request does not exist or cannot run here.
    """
    if device and device >= len(target.gpus()):
        raise clocks.no_such_gpu(device, len(target.gpus()))
    chosen = context.lineages.select(steps)
    runnable = [_with_problem(context, s, shapes) for s in chosen if s.status != "planned"]
    planned = [step for step in chosen if step.status == "planned"]
    if planned and not runnable:
        names = ", ".join(step.name for step in planned)
        verb = "is" if len(planned) == 1 else "are"
        raise PlannedStepError(
            f"{names} {verb} planned: no kernel yet", "`kernelbench list` shows the steps that run"
        )
    if planned:
        warn("planned, left out: " + ", ".join(step.name for step in planned))
    problems = {load_problem(context.lineage_for(step)).name for step in runnable}
    if len(problems) > 1 and (shapes or inputs) and set(shapes) | set(inputs) != {"all"}:
        raise UsageError(
            f"steps of different problems ({', '.join(sorted(problems))}) share no shapes",
            "name the steps of one problem, or drop --shape and --inputs",
        )
    return [_plan_step(context, step, shapes, executor, inputs, device) for step in runnable]


def _with_problem(context: Context, step: Step, shapes: Sequence[str]) -> Step:
    """A submission names no problem: the shapes asked for do; failing that, the first lineage."""
    if not step.submission:
        return step
    problems = list(context.problems.values())
    for problem in problems if shapes else []:
        with contextlib.suppress(UsageError):
            context.shapes_for(problem, shapes)
            return replace(step, problem=problem.name)
    return replace(step, problem=problems[0].name)


def _plan_step(
    context: Context,
    step: Step,
    shapes: Sequence[str],
    executor: str,
    inputs: Sequence[str],
    device: int,
) -> StepRun:
    lineage = context.lineage_for(step)
    problem = load_problem(lineage)
    chosen = context.shapes_for(problem, shapes)
    skip = {}
    for shape in chosen:
        broken = problem.broken_limit(shape, step.limits)
        if broken:
            skip[shape.name] = broken
    return StepRun(
        step,
        lineage,
        problem,
        chosen,
        context.classes_for(problem, inputs),
        target.resolve(step, executor, device),
        skip,
    )
