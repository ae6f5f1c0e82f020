"""``kernelbench.load``: a step as a callable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.executors import targets
from kernelbench.executors.exported import as_runnable
from kernelbench.kinds.callables import LoadError, load_callable
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.registry import require_runnable


def load(step: str | Path) -> Callable[[Any], Any]:
    """A step as a callable on its problem's data.

    Args:
        step: A step's name (``"v00"``), its folder, or a Python file that defines
            ``custom_kernel(data)``.

    Returns:
        The step's ``custom_kernel``; what a problem's ``make_inputs`` returns has fitting ``data``,
        see ``kernelbench.problems``. A compiled step is built for the best executor of this
        machine: it takes CUDA tensors on a GPU, CPU tensors on the emulator. A CUDA step takes
        CUDA tensors.

    Raises:
        UsageError: If there is no such step, it is planned, or its Python file cannot be loaded.
        EnvironmentProblem: If no executor of this machine runs it, or it cannot be built.
    """
    context = Context.find()
    found = context.lineages.select_one(str(step), "load one at a time")
    chosen = as_runnable(found, context.lineages, "auto", 0)
    entry = require_runnable(chosen)
    try:
        if not chosen.built:
            # It runs wherever the tensors are that it is called with.
            return load_callable(entry)
        problem = load_problem(context.lineage_for(chosen))
        target = targets.resolve(chosen)
        return target.executor.load(chosen, problem, target, 0.0)
    except LoadError as error:
        raise UsageError(f"{chosen.name}: {error}") from error
