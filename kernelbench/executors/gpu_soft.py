"""The executor ``gpu-soft``: an ``sm_100a`` step built for ``sm_90a``, on a Hopper GPU.

TMA, mbarriers and clusters are native, tensor cores and Cluster Launch Control in software. For
correctness; never timed as if it were a Blackwell GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelbench.emulator.settings import Emulation
from kernelbench.executors.compiled import (
    ARCH_CAPABILITY,
    ARCH_GPUS,
    SOFT_ARCH,
    LibraryExecutor,
    bind_problem,
    buildable,
    gpu_artefact,
)
from kernelbench.executors.executor import Target
from kernelbench.executors.gpu import find_gpu
from kernelbench.machine import devices
from kernelbench.project.model import Step

if TYPE_CHECKING:
    from kernelbench.project.problem import Kernel, Problem

#: The arch whose instructions it has in software.
_ARCH = "sm_100a"


@dataclass(frozen=True)
class SoftGpuExecutor(LibraryExecutor):
    """See :class:`kernelbench.executors.executor.Executor`."""

    name: str = "gpu-soft"
    letter: str = "S"
    meaning: str = "a Hopper GPU with tensor cores in software"
    timed: bool = False
    device_timed: bool = False

    def refusal(self, step: Step) -> str:
        """It runs compiled steps of one arch."""
        if not step.compiled:
            return f"{step.in_words}; this executor runs compiled steps"
        if step.arch != _ARCH:
            return f"gpu-soft runs {_ARCH} steps; {step.name} is written for {step.arch}"
        return ""

    def availability(self, step: Step, device: int) -> tuple[bool, str]:
        """It takes a Hopper GPU and nvcc."""
        gpu, problem = find_gpu(device)
        if gpu is None:
            return False, problem
        if gpu.capability != ARCH_CAPABILITY[SOFT_ARCH]:
            return False, f"gpu-soft needs {ARCH_GPUS[SOFT_ARCH]}; this is {gpu.name}"
        return buildable(step, "soft", gpu.name)

    def target(self, device: int, emulation: Emulation) -> Target:
        """That GPU."""
        return Target(self, f"cuda:{device}", devices.gpus()[device])

    def library(self, step: Step, *, check: bool = False) -> Path:
        """What nvcc makes of the step for a Hopper GPU."""
        return gpu_artefact(step, soft=True)

    def prepare(self, step: Step, problem: Problem, target: Target) -> str | None:
        """Build the step."""
        return self.prepare_library(step, problem, target)

    def load(self, step: Step, problem: Problem, target: Target, limit_s: float) -> Kernel:
        """The step's callable on CUDA tensors; the watchdog keeps the limit."""
        return bind_problem(problem, self.open(step), step, target.device)


SOFT_GPU = SoftGpuExecutor()
