"""Problems that come as a folder in place of a project: ``--task DIR``.

GPU MODE's is the one format so far; what is outside this package knows it by this module only.

A task's benchmarks become one figure as its ``ranking_by`` has it. The server (gpu-mode/kernelbot,
read in 2026) ranks by the mean time of each benchmark: of the last one (``last``, the default),
their arithmetic mean (``mean``) or their geometric mean (``geom``). Its time is that of a call
between two events on a drained queue with a cold L2: the *call* time here. Its own protocol differs
in the number of calls, so that figures compare with one another here, not with a leaderboard's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.errors import KernelbenchError
from kernelbench.executors.targets import device_timed
from kernelbench.kinds.callables import LoadError
from kernelbench.problems.gpumode.context import TaskContext, task_context
from kernelbench.problems.gpumode.task_file import Ranking, Task, read_task
from kernelbench.problems.gpumode.task_project import task_project
from kernelbench.records.run_record import Result

__all__ = [
    "TaskContext", "TaskScore", "ranked", "read_task", "task_context", "task_project",
    "task_scores", "wrong_by_task",
]  # fmt: skip

_WORDS: dict[Ranking, str] = {
    "last": "mean of the last benchmark",
    "mean": "mean over the benchmarks",
    "geom": "geometric mean over the benchmarks",
}


@dataclass(frozen=True)
class TaskScore:
    """A step's figure."""

    step: str
    #: None if a test or benchmark is not right, or a benchmark has no time.
    microseconds: float | None
    text: str  #: The figure with what it is, or why there is none; one line.


def task_scores(task: Task, rows: Sequence[Result]) -> list[TaskScore]:
    """The scores of the steps that have rows of every benchmark, in their order."""
    found = []
    wanted = [shape.name for shape in task.benchmarks]
    for step in dict.fromkeys(row.step for row in rows):
        mine = [row for row in rows if row.step == step]
        if wanted and set(wanted) <= {row.shape for row in mine}:
            found.append(_score(task, step, mine, wanted))
    return found


def _score(task: Task, step: str, rows: Sequence[Result], wanted: Sequence[str]) -> TaskScore:
    failed = [row for row in rows if row.status != "pass"]
    if failed:
        return TaskScore(step, None, f"no score: {failed[0].shape} is {failed[0].status}")
    calls = {row.shape: row.metrics["call"] for row in rows if "call" in row.metrics}
    means = {shape: call.mean for shape, call in calls.items() if call.mean is not None}
    untimed = [name for name in wanted if name not in means]
    if untimed:
        return TaskScore(step, None, f"no score: {untimed[0]} was not timed")
    value = ranked(task.ranking_by, [means[name] for name in wanted])
    on = "" if device_timed(rows[0].executor) else ", of this CPU: no leaderboard knows it"
    text = f"{value:.2f} µs, {_WORDS[task.ranking_by]} (ranking_by {task.ranking_by}){on}"
    return TaskScore(step, value, text)


def ranked(ranking: Ranking, means: Sequence[float]) -> float:
    """The one figure of several mean times, in their unit."""
    if ranking == "last":
        return means[-1]
    return statistics.geometric_mean(means) if ranking == "geom" else statistics.fmean(means)


def wrong_by_task(submission: Path, folder: Path, seed: int) -> str:
    """Call ``custom_kernel`` once for each test of a task; why a result is wrong, or nothing.

    Args:
        seed: Of the generators that the task does not seed itself.

    Raises:
        KernelbenchError: For a folder that holds no task, a task that fails, and what the
            submission's own loading raises of that kind.
        LoadError: If the submission cannot be loaded otherwise.
    """
    from kernelbench.problems import pytree
    from kernelbench.problems.gpumode.task_code import TaskCode  # imports torch

    task = read_task(folder)
    code = TaskCode(task, "cpu")
    try:
        kernel = code.load(submission)
    except LoadError as error:
        if isinstance(error.__cause__, KernelbenchError):
            raise error.__cause__ from error
        raise
    for test in task.tests:
        data = code.generate(test, seed, fresh=False)
        given = pytree.cloned(data)
        right, message = code.verdict(given, kernel(data))
        if not right:
            return f"{test.name}: {message or 'check_implementation says so, without a message'}"
    return ""
