"""CUDA steps: what they need of a GPU, building and loading them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build.torch_extension import imported_extension
from kernelbench.kinds import python_step
from kernelbench.kinds.callables import LoadError
from kernelbench.kinds.cuda_function import expressions, open_function
from kernelbench.machine.devices import GpuInfo
from kernelbench.machine.toolchain import INSTALL_NVCC, nvcc, own_arch, runs_on, unknown_arch
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel


def cuda_step_runs_on(step: Step, gpu: GpuInfo | None, problem: str) -> tuple[bool, str]:
    """Whether a CUDA step can be built here and runs on a GPU, and why (not).

    Args:
        problem: Why there is no GPU, if there is none.
    """
    if gpu is None:
        return False, problem
    if nvcc() is None:
        return False, f"no nvcc to build it with; {INSTALL_NVCC}"
    from kernelbench.kinds import cuda_build

    arch = cuda_build.arch_for(step, gpu)
    if unknown := unknown_arch(arch):
        return False, unknown
    if not runs_on(arch, gpu.capability):
        return False, (
            f"{step.name} is built for {arch}; this is {gpu.name}, {own_arch(gpu.capability)}"
        )
    # Its data is torch's.
    works, why = python_step.torch_runs_on(gpu)
    return works, f"built for {arch} on {gpu.name}" if works else why


def prepare_cuda_step(step: Step, gpu: GpuInfo | None) -> str:
    """Build the step's library for a GPU; returns its hash."""
    from kernelbench.build.compiler import artefact_sha

    return artefact_sha(_library(step, gpu))


def load_cuda_step(step: Step, gpu: GpuInfo | None, device: str) -> Kernel:
    """The step's callable.

    Raises:
        LoadError: If the library has no such function, or one that cannot be called.
        KernelbenchError: If it cannot be built.
    """
    from kernelbench.kinds import cuda_build

    path = _library(step, gpu)
    if cuda_build.is_extension(step):
        return open_extension(step, path)

    return open_function(step, path, device)


def _library(step: Step, gpu: GpuInfo | None) -> Path:
    from kernelbench.kinds import cuda_build

    return cuda_build.cuda_library(step, cuda_build.arch_for(step, gpu))


def open_extension(step: Step, path: Path) -> Kernel:
    """A function of a torch extension, called with the data's tensors and numbers.

    Raises:
        EnvironmentProblem: If the extension cannot be loaded.
        LoadError: If it has no such function.
    """
    from kernelbench.kinds import cuda_build

    try:
        module = imported_extension(cuda_build.EXTENSION, path)
    except ImportError as error:
        text = " ".join(str(error).split())
        raise EnvironmentProblem(f"{step.name}: its extension cannot be loaded: {text}") from error
    name = step.function.rpartition("::")[2]
    function = getattr(module, name, None)
    if not callable(function):
        raise LoadError(f"the extension defines no {name}, which step.toml names as its function")
    pick = expressions(step)

    def custom_kernel(data: Any) -> Any:
        return function(*pick(data))

    return cast("Kernel", custom_kernel)
