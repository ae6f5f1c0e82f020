"""What a measuring function works in: the project of the current folder, or a task's folder."""

from __future__ import annotations

from pathlib import Path

from kernelbench.problems.gpumode import task_context
from kernelbench.project.context import Context
from kernelbench.runs.settings import Measuring, MeasuringOptions


def working_in(task: str | Path | None, measuring: MeasuringOptions) -> tuple[Context, Measuring]:
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
    given: MeasuringOptions = {"timeout_s": limit, **measuring}
    return context, Measuring.of(given)
