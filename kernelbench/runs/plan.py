"""From what the command line names to what runs: steps with problem, shapes, classes and target."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kernelbench.base.errors import PlannedStepError, UsageError
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.executors import targets
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.exported import as_runnable
from kernelbench.executors.targets import Target
from kernelbench.executors.torch_cpu import TORCH
from kernelbench.machine import clocks, devices
from kernelbench.problems.task_folder import task_context
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.registry import Step
from kernelbench.runs.runner import StepRun
from kernelbench.runs.settings import Measuring, MeasuringOptions


def plan(
    context: Context,
    steps: Sequence[str],
    shapes: Sequence[str],
    executor: str,
    inputs: Sequence[str],
    device: int,
    *,
    warn: Callable[[str], None],
    emulation: Emulation = DEFAULT_EMULATION,
    peers: bool = False,
    skip_missing: bool = False,
) -> list[StepRun]:
    """What to run: steps with their problems, shapes, classes and targets.

    A planned step named alone is an error; in a range or lineage it is left out and ``warn`` told.
    With ``peers`` those of the steps' lineages run too. A peer that cannot run here is skipped, and
    with ``skip_missing`` so is a step among others that can.

    Raises:
        KernelbenchError: For whatever in the request does not exist or cannot run here.
    """
    if device and device >= len(devices.gpus()):
        raise clocks.no_such_gpu(device, len(devices.gpus()))
    chosen = [
        as_runnable(step, context.lineages, executor, device, emulation)
        for step in context.lineages.select(steps)
    ]
    if peers:
        chosen += _peers_of(context, chosen)
    runnable = [with_problem(context, s, shapes) for s in chosen if s.status != "planned"]
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
    missing = _missing(context, runnable, executor, device, skip_missing)
    places = {
        step.name: targets.resolve(step, executor, device, emulation)
        for step in runnable
        if step.name not in missing
    }
    # A row needs some target, even if its step does not run.
    any_target = next(iter(places.values()), Target(TORCH, "cpu", None))
    plans = [
        _plan_step(context, step, shapes, inputs, places.get(step.name, any_target))
        for step in runnable
    ]
    return [
        replace(each, skip=dict.fromkeys((shape.name for shape in each.shapes), why))
        if (why := missing.get(each.step.name))
        else each
        for each in plans
    ]


def _peers_of(context: Context, steps: Sequence[Step]) -> list[Step]:
    found = context.lineages.peers_of(steps)
    if not found:
        raise UsageError(
            f"no peers of {', '.join(step.name for step in steps)} here",
            "a lineage's peers are a lineage with peers_of in its lineage.toml",
        )
    return found


def _missing(
    context: Context, steps: Sequence[Step], executor: str, device: int, any_step: bool
) -> dict[str, str]:
    """Why steps cannot run here, by name: of peers; with ``any_step`` among others that can."""
    found = {
        step.name: reason for step in steps if (reason := _unavailable(step, executor, device))
    }
    if any_step and len(found) < len(steps):
        return found
    peers = [step.name for step in steps if context.lineage_for(step).peers_of]
    return {name: reason for name, reason in found.items() if name in peers}


def _unavailable(step: Step, executor: str, device: int) -> str:
    """Why a step cannot run here as asked; empty if it can."""
    verdicts = targets.executors_for(step, device)
    meant = [verdict for verdict in verdicts if executor in ("auto", verdict[0])]
    if not meant or any(works for _, works, _ in meant):
        return ""
    return f"not available: {meant[0][2]}"


def plan_check(
    context: Context,
    steps: Sequence[str],
    shapes: Sequence[str],
    inputs: Sequence[str],
    emulation: Emulation,
    *,
    warn: Callable[[str], None],
) -> list[StepRun]:
    """What ``kernelbench check`` runs: steps that the emulator takes.

    Small shapes of the problem's choice if none is named, its first input class if none is.
    Planned steps and those of other kinds, of a range or lineage, are left out and ``warn`` told.

    Raises:
        KernelbenchError: For whatever in the request does not exist or cannot be checked.
    """
    chosen = [
        as_runnable(step, context.lineages, EMULATOR.name, 0, emulation)
        for step in context.lineages.select(steps)
    ]
    taken = [step for step in chosen if not EMULATOR.refusal(step)]
    written = [step for step in taken if step.status != "planned"]
    if taken and not written:
        raise PlannedStepError(
            f"{', '.join(step.name for step in chosen)}: no kernel yet",
            "`kernelbench list` shows the steps that run",
        )
    others = [step for step in chosen if step not in written]
    if not written:
        python = all(step.kind == "python" for step in others)
        named = "; ".join(step.in_words for step in others)
        raise UsageError(
            f"{named}: check emulates compiled, PTX, Triton and CUDA steps",
            f"`kernelbench run` {'' if python else '(on a GPU) '}checks the results of any step",
        )
    if others:
        words = [f"{s.name} is planned" if s.status == "planned" else s.in_words for s in others]
        warn("left out: " + ", ".join(words))
    found = []
    for step in written:
        problem = load_problem(context.lineage_for(step))
        where = targets.resolve(step, EMULATOR.name, 0, emulation)
        wanted = shapes or context.check_shapes(problem) or ["all"]
        left = [name for name in context.shapes_here(problem) if name not in wanted]
        if not (shapes or getattr(problem, "check_shapes", ())) and left:
            warn(f"left out: shapes {', '.join(left)}, much work for the emulator (--shape NAME)")
        classes = inputs or problem.input_classes[:1]
        found.append(_plan_step(context, step, wanted, classes, where))
    return found


def with_problem(context: Context, step: Step, shapes: Sequence[str]) -> Step:
    """A submission names no problem: the shapes asked for do; failing that, the first lineage."""
    if not step.submission or step.problem:
        return step
    problems = list(context.problems.values())
    for problem in problems if shapes else []:
        with contextlib.suppress(UsageError):
            context.shapes_for(problem, shapes)
            return replace(step, problem=problem.name)
    return replace(step, problem=problems[0].name)


def _plan_step(
    context: Context, step: Step, shapes: Sequence[str], inputs: Sequence[str], where: Target
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
        step, lineage, problem, chosen, context.classes_for(problem, inputs), where, skip
    )


def resolve_context(
    task: str | Path | None, measuring: MeasuringOptions
) -> tuple[Context, Measuring]:
    """The context, and how to measure: a task says how long a call may take, if nobody else does.

    Args:
        task: Folder of a GPU MODE task; None for the project of the current folder.

    Raises:
        UsageError: If there is none, or something is out of range.
        EnvironmentProblem: If the task cannot run on this machine.
    """
    if task is None:
        return Context.find(), Measuring.of(measuring)
    context = task_context(task)
    limit = max(context.task.test_timeout_s, context.task.benchmark_timeout_s)
    given: MeasuringOptions = {**measuring, "timeout_s": measuring.get("timeout_s") or limit}
    return context, Measuring.of(given)
