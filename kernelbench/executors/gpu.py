"""The executor ``gpu``: a step natively on a GPU.

A compiled step runs on a GPU of its own arch, a CUDA step on one that its arch's code runs on, a
Python or Triton step on CUDA tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelbench.emulator.settings import Emulation
from kernelbench.executors.executor import Isolation, Target
from kernelbench.kinds import cuda_step, python_step
from kernelbench.kinds.compiled import (
    LibraryExecutor,
    bind_problem,
    buildable,
    gpu_artefact,
    no_backend,
)
from kernelbench.machine import devices
from kernelbench.machine.arch import SOFT_ARCHES, STEP_ARCHES
from kernelbench.machine.devices import GpuInfo
from kernelbench.project.model import Step
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
    isolation: Isolation = "on request"

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
        known = STEP_ARCHES.get(step.arch)
        if known is None or gpu.capability != known.capability:
            need = known.gpus if known else step.arch
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
            return cuda_step.prepare_cuda_step(step, target.gpu)
        return self.prepare_library(step, problem, target.timed) if step.compiled else None

    def load(self, step: Step, problem: Problem, target: Target, limit_s: float) -> Kernel:
        """The step's callable on CUDA tensors; the watchdog keeps the limit."""
        if step.kind == "cuda":
            return cuda_step.load_cuda_step(step, target.gpu, target.device)
        if not step.compiled:
            return python_step.load_python_step(step, problem, target.device)
        return bind_problem(problem, self.open(step, timed=True), step, target.device)


GPU = GpuExecutor()


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
        if step.arch not in SOFT_ARCHES:
            runs = ", ".join(SOFT_ARCHES)
            return f"gpu-soft runs {runs} steps; {step.name} is written for {step.arch}"
        return ""

    def availability(self, step: Step, device: int) -> tuple[bool, str]:
        """It takes a Hopper GPU and nvcc."""
        gpu, problem = find_gpu(device)
        if gpu is None:
            return False, problem
        known = STEP_ARCHES[SOFT_ARCHES[step.arch]]
        if gpu.capability != known.capability:
            return False, f"gpu-soft needs {known.gpus}; this is {gpu.name}"
        return buildable(step, "soft", gpu.name)

    def target(self, device: int, emulation: Emulation) -> Target:
        """That GPU."""
        return Target(self, f"cuda:{device}", devices.gpus()[device])

    def library(self, step: Step, *, check: bool = False) -> Path:
        """What nvcc makes of the step for a Hopper GPU."""
        return gpu_artefact(step, soft=True)

    def prepare(self, step: Step, problem: Problem, target: Target) -> str | None:
        """Build the step."""
        return self.prepare_library(step, problem, target.timed)

    def load(self, step: Step, problem: Problem, target: Target, limit_s: float) -> Kernel:
        """The step's callable on CUDA tensors; the watchdog keeps the limit."""
        return bind_problem(problem, self.open(step), step, target.device)


SOFT_GPU = SoftGpuExecutor()
