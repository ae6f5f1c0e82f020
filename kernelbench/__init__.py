"""kernelbench: check, time and compare the steps of an optimization lineage of GPU kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__version__ = "0.1.0"

__all__ = ["__version__", "load"]


def load(spec: str) -> Callable[[Any], Any]:
    """A step as a callable on its problem's data.

    Args:
        spec: A step's name (``"v00"``), its folder, or a Python file that defines
            ``custom_kernel(data)``.

    Returns:
        The step's ``custom_kernel``; its docstring gives shapes and dtypes of ``data``. What a
        problem's ``make_inputs`` returns has fitting ``data``, see ``kernelbench.problems``.

    Raises:
        KernelbenchError: If there is no such step, it is planned, or it cannot be loaded.
    """
    from kernelbench.context import Context
    from kernelbench.errors import UsageError
    from kernelbench.lineage import require_runnable
    from kernelbench.loader import LoadError, load_callable

    steps = Context.find().lineages.select([spec])
    if len(steps) != 1:
        raise UsageError(f"{spec!r} is {len(steps)} steps", "load one at a time")
    try:
        return load_callable(require_runnable(steps[0]))
    except LoadError as error:
        raise UsageError(f"{steps[0].name}: {error}") from error
