"""One figure for a task's benchmarks, as its ``ranking_by`` has it.

The server (gpu-mode/kernelbot, read in 2026) ranks by the mean time of each benchmark: of the last
one (``last``, the default), their arithmetic mean (``mean``) or their geometric mean (``geom``).
Its time is that of a call between two events on a drained queue with a cold L2: the *call* time
here. Its own protocol differs in the number of calls, so that figures compare with one another
here, not with a leaderboard's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kernelbench.executors.targets import device_timed
from kernelbench.problems.gpumode.task_file import Ranking, Task
from kernelbench.records.run_record import Result

_WORDS: dict[Ranking, str] = {
    "last": "mean of the last benchmark",
    "mean": "mean over the benchmarks",
    "geom": "geometric mean over the benchmarks",
}


@dataclass(frozen=True)
class TaskScore:
    """A step's figure.

    Attributes:
        microseconds: None if a test or benchmark is not right, or a benchmark has no time.
        text: The figure with what it is, or why there is none; one line.
    """

    step: str
    microseconds: float | None
    text: str


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
    means = {row.shape: row.call_us.mean for row in rows if row.call_us is not None}
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
