"""The executor ``torch``: a Python step on the CPU, through torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelbench.emulator.settings import Emulation
from kernelbench.executors.executor import Isolation, Target
from kernelbench.kinds import callables, python_step
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, Problem


@dataclass(frozen=True)
class TorchExecutor:
    """See :class:`kernelbench.executors.executor.Executor`. Times are the host's wall clock."""

    name: str = "torch"
    letter: str = "T"
    meaning: str = "torch on a CPU"
    timed: bool = True
    device_timed: bool = False
    isolation: Isolation = "always"

    def refusal(self, step: Step) -> str:
        """Only Python steps can do without a GPU or its emulator."""
        if step.kind != "python":
            return f"{step.in_words}; this executor runs Python steps"
        return ""

    def availability(self, step: Step, device: int) -> tuple[bool, str]:
        """It takes torch and what else the step says that it needs."""
        return python_step.runs_on_cpu(step)

    def target(self, device: int, emulation: Emulation) -> Target:
        """The CPU as a target."""
        return Target(self, "cpu", None)

    def prepare(self, step: Step, problem: Problem, target: Target) -> str | None:
        """Do nothing: Python steps are not built."""
        return None

    def load(self, step: Step, problem: Problem, target: Target, limit_s: float) -> Kernel:
        """The callable of the step's file; the watchdog keeps the limit."""
        return python_step.load_python_step(step, problem, target.device)

    def watchdog_limit(self, call_limit_s: float) -> float:
        """The limit of a call, unchanged."""
        return call_limit_s

    def notes(self, kernel: Any) -> tuple[str, ...]:
        """What the step's callable says of its last call."""
        return callables.notes_of(kernel)


TORCH = TorchExecutor()
