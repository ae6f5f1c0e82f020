"""Which of the steps that were named a command can look at, and why not the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelbench.base.errors import PlannedStepError, UsageError
from kernelbench.project.model import Step


def choose_steps(
    steps: Sequence[Step], usable: Callable[[Step], bool], otherwise: Callable[[Step], str]
) -> tuple[list[Step], list[str]]:
    """The steps that are usable, and for each of the others a line.

    Args:
        otherwise: What is said of a written step that is not.

    Raises:
        PlannedStepError: If none is, because they are planned.
        UsageError: If none is.
    """
    chosen = [step for step in steps if step.status != "planned" and usable(step)]
    left_out = [
        f"{step.name} is planned: no kernel yet" if step.status == "planned" else otherwise(step)
        for step in steps
        if step not in chosen
    ]
    if not chosen:
        kind = PlannedStepError if all(s.status == "planned" for s in steps) else UsageError
        raise kind("; ".join(left_out), "`kernelbench list` shows the steps")
    return chosen, left_out
