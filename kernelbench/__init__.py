"""kernelbench: check, time and compare the steps of an optimization lineage of GPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelbench.base.version import __version__

__all__ = ["__version__", "load"]


def load(spec: str) -> Callable[[Any], Any]:
    """A step as a callable on its problem's data.

    Args:
        spec: A step's name (``"v00"``), its folder, or a Python file that defines
            ``custom_kernel(data)``.

    Returns:
        The step's ``custom_kernel``; what a problem's ``make_inputs`` returns has fitting ``data``,
        see ``kernelbench.problems``. A compiled step is built for the best executor of this
        machine: it takes CUDA tensors on a GPU, CPU tensors on the emulator.

    Raises:
        KernelbenchError: If there is no such step, it is planned, or it cannot be loaded.
    """
    from kernelbench.base.errors import UsageError
    from kernelbench.executors import targets
    from kernelbench.executors.callables import LoadError, load_callable
    from kernelbench.project.context import Context
    from kernelbench.project.registry import load_problem, require_runnable

    context = Context.find()
    steps = context.lineages.select([spec])
    if len(steps) != 1:
        raise UsageError(f"{spec!r} is {len(steps)} steps", "load one at a time")
    step = steps[0]
    entry = require_runnable(step)
    try:
        if not step.compiled:
            # It runs wherever the tensors are that it is called with.
            return load_callable(entry)
        problem = load_problem(context.lineage_for(step))
        target = targets.resolve(step)
        return target.executor.load(step, problem, target, 0.0)
    except LoadError as error:
        raise UsageError(f"{step.name}: {error}") from error
