"""Who is told what happens while something takes its time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Told what is going on, in one line.
OnProgress = Callable[[str], None]


class Observer:
    """Told what happens, method by method; a subclass overrides those that it wants to know of.

    By itself it knows nothing and shows only warnings, as Python's.
    """

    def planned(self, plan: Any) -> None:
        """What is about to run: the plan of a run or check, or the sessions that a power takes."""

    def progress(self, text: str) -> None:
        """What is going on, in one line; an empty text: the same, while a program prints."""

    def row(self, row: Any) -> None:
        """A row, when it is there: a :class:`Result`, the sessions of a comparison's shape (their
        verdict waits for the other shapes), or a shape of a check when its step is done."""

    def reported(self, step: str, shape: str, inputs: str, report: Any) -> None:
        """A finding of the emulator, for a step, shape and input class.

        Args:
            step: Name of the step.
            shape: Name of the shape.
            inputs: The input class.
            report: What the emulator found.
        """

    def saved(self, path: Path) -> None:
        """A record was saved at this path."""

    def warning(self, text: str) -> None:
        """What a user must know, in one line."""
        warnings.warn(text, stacklevel=4)
