"""GPU MODE's task folders as problems, without conversion.

A folder with a ``task.yml`` is read (:func:`read_task`) and stands in for a project
(:func:`task_context`): ``kernelbench run submission.py --task DIR``. A project of its own is made
of one by :func:`task_project`. torch is imported only where something of a task runs.
"""

from kernelbench.problems.gpumode.context import TaskContext, task_context
from kernelbench.problems.gpumode.problem import TASK, TaskProblem
from kernelbench.problems.gpumode.ranking import TaskScore, task_scores
from kernelbench.problems.gpumode.task_file import Task, TaskShape, read_task
from kernelbench.problems.gpumode.task_project import task_project

__all__ = [
    "TASK", "Task", "TaskContext", "TaskProblem", "TaskScore", "TaskShape", "read_task",
    "task_context", "task_project", "task_scores",
]  # fmt: skip
