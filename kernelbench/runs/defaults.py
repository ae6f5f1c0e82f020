"""What a command runs that was given no steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Literal

from kernelbench.base.errors import UsageError
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.runs.runner import StepRun


def lineages_with(context: Context, shapes: Sequence[str]) -> list[str]:
    """Names of the lineages, peers aside, whose problem has these shapes.

    All of them where no shape is named, or none has them all: what is wrong is then said of these.
    """
    chains = context.lineages.chains
    found = []
    for lineage in chains:
        with contextlib.suppress(UsageError):
            context.shapes_for(load_problem(lineage), shapes)
            found.append(lineage.name)
    return found or [lineage.name for lineage in chains]


def comparable(
    plans: Sequence[StepRun],
    metric: Literal["device", "call"],
    *,
    warn: Callable[[str], None],
) -> list[StepRun]:
    """The plans that have such times here; ``warn`` is told of the others.

    All of them where none has: whoever goes on says why.
    """
    kept: list[StepRun] = []
    left_out: list[StepRun] = []
    for plan in plans:
        executor = plan.target.executor
        has_times = executor.device_timed if metric == "device" else executor.timed
        (kept if has_times else left_out).append(plan)
    if not kept:
        return list(plans)
    if left_out:
        names = ", ".join(plan.step.name for plan in left_out)
        warn(f"no {metric} times here, left out: {names}")
    return kept
