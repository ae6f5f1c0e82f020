"""The executor ``gpu``: a step natively on a GPU.

A compiled step runs on a GPU of its own arch, a CUDA step on one that its arch's code runs on, a
Python or Triton step on CUDA tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelbench.emulator.settings import Emulation
from kernelbench.executors import cuda_step, python_step
from kernelbench.executors.compiled import (
    ARCH_CAPABILITY,
    ARCH_GPUS,
    LibraryExecutor,
    bind_problem,
    buildable,
    gpu_artefact,
    no_backend,
)
from kernelbench.executors.executor import Target
from kernelbench.machine import devices
from kernelbench.machine.devices import GpuInfo
from kernelbench.project.model import Step

if TYPE_CHECKING:
    from kernelbench.project.problem import Kernel, Problem


def find_gpu(device: int) -> tuple[GpuInfo | None, str]:
    """A GPU by its CUDA ordinal, or why there is none."""
    found = devices.gpus()
    if not found:
        return None, devices.gpu_problem()
    if not 0 <= device < len(found):
        return None, f"no GPU {device}: this process sees {len(found)}"
    return found[device], ""


@dataclass(frozen=True)
class GpuExecutor(LibraryExecutor):
    """See :class:`kernelbench.executors.executor.Executor`."""

    name: str = "gpu"
    letter: str = "G"
    meaning: str = "a GPU of the step's own arch"
    timed: bool = True
    device_timed: bool = True

    def refusal(self, step: Step) -> str:
        """It runs every kind but PTX, and compiled steps for archs that the ptx layer has."""
        if step.kind == "ptx":
            return f"{step.in_words}, which the emulator runs"
        return no_backend(step) if step.compiled else ""

    def availability(self, step: Step, device: int) -> tuple[bool, str]:
        """It takes a GPU that the step's code or the installed torch is made for."""
        gpu, problem = find_gpu(device)
        if step.kind == "cuda":
            return cuda_step.cuda_step_runs_on(step, gpu, problem)
        if not step.compiled:
            return python_step.runs_on_gpu(step, gpu, problem)
        if gpu is None:
            return False, problem
        if gpu.capability != ARCH_CAPABILITY.get(step.arch):
            need = ARCH_GPUS.get(step.arch, step.arch)
            return False, f"{step.name} is written for {step.arch}, {need}; this is {gpu.name}"
        return buildable(step, step.arch.replace("_", ""), gpu.name)

    def target(self, device: int, emulation: Emulation) -> Target:
        """That GPU."""
        return Target(self, f"cuda:{device}", devices.gpus()[device])

    def library(self, step: Step, *, check: bool = False) -> Path:
        """What nvcc makes of the step for its own arch."""
        return gpu_artefact(step, soft=False)

    def prepare(self, step: Step, problem: Problem, target: Target) -> str | None:
        """Build a compiled or CUDA step; any other is its file."""
        if step.kind == "cuda":
            return cuda_step.prepare_cuda_step(step, target)
        return self.prepare_library(step, problem, target) if step.compiled else None

    def load(self, step: Step, problem: Problem, target: Target, limit_s: float) -> Kernel:
        """The step's callable on CUDA tensors; the watchdog keeps the limit."""
        if step.kind == "cuda":
            return cuda_step.load_cuda_step(step, target)
        if not step.compiled:
            return python_step.load_python_step(step, problem, target.device)
        return bind_problem(problem, self.open(step, timed=True), step, target.device)


GPU = GpuExecutor()
