"""A submission called with what the tests of a GPU MODE task make, and judged by the task."""

from __future__ import annotations

from pathlib import Path

from kernelbench.base.errors import KernelbenchError
from kernelbench.executors.callables import LoadError
from kernelbench.problems.gpumode import trees
from kernelbench.problems.gpumode.task_code import TaskCode
from kernelbench.problems.gpumode.task_file import read_task


def wrong_by_task(submission: Path, folder: Path, seed: int) -> str:
    """Call ``custom_kernel`` once for each test of a task; why a result is wrong, or nothing.

    Args:
        seed: Of the generators that the task does not seed itself.

    Raises:
        KernelbenchError: For a folder that holds no task, a task that fails, and what the
            submission's own loading raises of that kind.
        LoadError: If the submission cannot be loaded otherwise.
    """
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
        given = trees.cloned(data)
        right, message = code.verdict(given, kernel(data))
        if not right:
            return f"{test.name}: {message or 'check_implementation says so, without a message'}"
    return ""
