"""The protocol of an executor, and what a step is given to run on: a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kernelbench.emulator.settings import Emulation
from kernelbench.machine.devices import GpuInfo
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, Problem

Isolation = Literal["always", "on request"]


class Executor(Protocol):
    """A way to run steps on this machine: one module each, found by the registry.

    An executor is a value without state of its own: it travels to workers by pickle, so its class
    is at the top level of a module that the worker can import, and equal executors compare equal.

    An executor whose callables run code of a submission in Python may have ``isolation``
    (:data:`Isolation`): whether that code has a process apart from what judges it. Without the
    attribute it has none.
    """

    @property
    def name(self) -> str:
        """What ``--executor`` and records call it."""

    @property
    def letter(self) -> str:
        """What stands for it in a README's step × shape table; one character."""

    @property
    def meaning(self) -> str:
        """Where a step runs, in a few words: the legend of that table."""

    @property
    def timed(self) -> bool:
        """Whether times taken here stand for the device; no other executor is ever timed."""

    @property
    def device_timed(self) -> bool:
        """Whether a call's time on the device alone can be taken, beside that of the call."""

    def refusal(self, step: Step) -> str:
        """Why it runs no steps of this kind and arch on any machine; empty if it does."""

    def availability(self, step: Step, device: int) -> tuple[bool, str]:
        """Whether it can run a step that it does not refuse here and now, and why (not).

        Args:
            device: CUDA ordinal that it would use.

        Nothing is imported that takes long: ``list`` asks this of every step.
        """

    def target(self, device: int, emulation: Emulation) -> Target:
        """Itself and the device, for a step that it can run."""

    def prepare(self, step: Step, problem: Problem, target: Target) -> str | None:
        """Build all that :meth:`load` needs, so that it finds it in the cache.

        Returns:
            Hash of what was built for the step; None if nothing is built.

        Raises:
            CompileFailure: If the step does not compile.
            EnvironmentProblem: If something to build it with is missing.
        """

    def load(self, step: Step, problem: Problem, target: Target, limit_s: float) -> Kernel:
        """The step's callable on its problem's data, in this process.

        Args:
            limit_s: Seconds that a call may take, for an executor that can end it by itself; 0 for
                no limit.

        Raises:
            LoadError: If the step's own code fails.
            KernelbenchError: If it cannot be built or loaded.
        """

    def watchdog_limit(self, call_limit_s: float) -> float:
        """Seconds after which a call is ended from outside."""

    def notes(self, kernel: Any) -> tuple[str, ...]:
        """What a loaded step says about its calls since it was asked last, for the row."""


@dataclass(frozen=True)
class Target:
    """An executor and where it runs."""

    executor: Executor
    device: str  #: ``cuda:N`` or ``cpu``.
    gpu: GpuInfo | None  #: That GPU; None on a CPU.
    emulation: Emulation | None = None  #: What is emulated; None where nothing is.

    @property
    def timed(self) -> bool:
        """Whether times taken here stand for the device."""
        return self.executor.timed
