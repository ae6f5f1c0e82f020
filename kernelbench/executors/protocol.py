"""What a problem offers to compiled steps, beside the interface of every problem."""

from __future__ import annotations

from typing import Protocol

from kernelbench.executors.loaded_step import LoadedStep
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, Problem


class CompiledProblem(Problem, Protocol):
    """A problem that compiled steps solve, too."""

    #: Small shapes that ``kernelbench check`` runs if none is named; steps leave out what they
    #: cannot take.
    check_shapes: tuple[str, ...]
    #: Whether a right step gives the same bits on every schedule of its threads.
    repeatable: bool

    def prepare(self, step: Step) -> None:
        """Build what :meth:`bind` needs beside the step's library where calls are timed.

        Raises:
            EnvironmentProblem: If something to build it with is missing.
        """

    def bind(self, entry: LoadedStep, step: Step, device: str) -> Kernel:
        """A compiled step's callable on the problem's data.

        It calls ``entry.call`` with the problem's call structure. On the emulator it first says
        which memory the kernel may touch (``entry.emulation.register``) and afterwards clears that.
        """
