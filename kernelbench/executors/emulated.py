"""The executor ``emulator``: a compiled step on the CPU, one fiber for each CUDA thread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.executors.compiled import (
    LibraryExecutor,
    bind_problem,
    common_folder,
    has_backend,
    lineage_blocks,
    symbols_of,
)
from kernelbench.executors.executor import Target
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.project import overlay
from kernelbench.project.model import Step

if TYPE_CHECKING:
    from kernelbench.emulator.runtime import Runtime
    from kernelbench.project.problem import Kernel, Problem

#: From the end of a call's limit, which the emulator keeps itself, to the watchdog's.
_GRACE_S = 10.0


@dataclass(frozen=True)
class EmulatorExecutor(LibraryExecutor):
    """See :class:`kernelbench.executors.executor.Executor`. For correctness, never timed."""

    name: str = "emulator"
    letter: str = "E"
    meaning: str = "the emulator"
    timed: bool = False
    device_timed: bool = False

    def refusal(self, step: Step) -> str:
        """It emulates the ptx layer, in which only compiled steps are written."""
        return "" if step.compiled else f"{step.in_words}; this executor runs compiled steps"

    def availability(self, step: Step, device: int) -> tuple[bool, str]:
        """It takes the backend's sources and a host compiler."""
        if not has_backend(step, "emu"):
            return False, f"there is no common/backend/emu to build {step.name} with"
        try:
            emulator_compiler()
        except EnvironmentProblem as error:
            return False, error.message
        return True, "emulated on the CPU"

    def target(self, device: int, emulation: Emulation) -> Target:
        """The CPU, standing for the GPU that ``emulation`` describes."""
        return Target(self, "cpu", None, emulation)

    def library(self, step: Step, *, check: bool = False) -> Path:
        """The step built for the emulator, from the cache or built now."""
        from kernelbench.emulator.runtime import step_library

        return step_library(
            step.name,
            overlay.entry_of(step),
            common_folder(step),
            check=check,
            count=check,
            include_dirs=lineage_blocks(step),
        )

    def runtime(self, step: Step) -> Runtime:
        """The emulator of the step's building blocks, loaded once per process."""
        from kernelbench.emulator.runtime import runtime

        return runtime(common_folder(step))

    def prepare(self, step: Step, problem: Problem, target: Target) -> str | None:
        """Build the emulator and the step; the hash is the step's."""
        self.prepare_runtime(step)
        return self.prepare_library(step, problem, target)

    def prepare_runtime(self, step: Step) -> None:
        """Build the emulator itself, so that workers find it in the cache."""
        from kernelbench.emulator.runtime import runtime_library

        runtime_library(common_folder(step))

    def load(self, step: Step, problem: Problem, target: Target, limit_s: float) -> Kernel:
        """A callable whose faults are what the emulator found; it ends a launch at the limit."""
        from kernelbench.executors.emulated_kernel import EmulatedKernel

        entry = self.open(step)
        kernel = bind_problem(problem, entry, step, target.device)
        emulation = target.emulation or DEFAULT_EMULATION
        return EmulatedKernel(kernel, self.runtime(step), symbols_of(step), emulation, limit_s)

    def watchdog_limit(self, call_limit_s: float) -> float:
        """A little more than the limit: the emulator's own end of a call says more."""
        return call_limit_s + _GRACE_S

    def notes(self, kernel: Any) -> tuple[str, ...]:
        """How long a call took to emulate: no time of any kernel."""
        from kernelbench.executors.emulated_kernel import EmulatedKernel

        note = kernel.take_note() if isinstance(kernel, EmulatedKernel) else ""
        return (note,) if note else ()


EMULATOR = EmulatorExecutor()
