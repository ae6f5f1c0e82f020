"""Python and Triton steps: what they need of a machine, and loading them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from kernelbench.kinds.callables import load_callable
from kernelbench.machine import devices
from kernelbench.machine.devices import GpuInfo
from kernelbench.machine.toolchain import runs_on
from kernelbench.project import overlay
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, Problem


def load_python_step(step: Step, problem: Problem | None = None, device: str = "cpu") -> Kernel:
    """The step's ``custom_kernel``, loaded as its problem says where that has a ``load_python``.

    Raises:
        LoadError: If its file cannot be imported or defines none.
    """
    path = overlay.entry_of(step)
    load: Callable[[Path, str], Kernel] | None = getattr(problem, "load_python", None)
    return load(path, device) if load else load_callable(path)


def runs_on_cpu(step: Step) -> tuple[bool, str]:
    """Whether a Python step runs on this CPU, and why (not)."""
    lacking = lacking_modules(step)
    if lacking:
        return False, lacking
    if "gpu" in step.needs:
        return False, f"{step.name} needs a GPU"
    torch = devices.torch_info()
    if torch is None:
        return False, "torch is not installed"
    return True, f"torch {torch.version} on the CPU"


def runs_on_gpu(step: Step, gpu: GpuInfo | None, problem: str) -> tuple[bool, str]:
    """Whether a Python or Triton step runs on a GPU, and why (not).

    Args:
        problem: Why there is no GPU, if there is none.
    """
    lacking = lacking_modules(step)
    if lacking:
        return False, lacking
    if gpu is None:
        return False, problem
    if step.kind == "triton" and step.arch != "any" and not runs_on(step.arch, gpu.capability):
        return False, f"{step.name} is written for {step.arch}; this is {gpu.name}, {gpu.arch}"
    return torch_runs_on(gpu)


def torch_runs_on(gpu: GpuInfo) -> tuple[bool, str]:
    """Whether the installed torch has tensors on a GPU, and why (not)."""
    torch = devices.torch_info()
    if torch is None:
        return False, "torch is not installed"
    if torch.cuda is None:
        return False, f"torch {torch.version} is a build without CUDA"
    # Minor versions of one CUDA major work with any driver of that major (CUDA compatibility
    # guide, "minor version compatibility"); an older major does not.
    if gpu.cuda_driver and _major(gpu.cuda_driver) < _major(torch.cuda):
        return False, (
            f"driver {gpu.driver} supports CUDA {gpu.cuda_driver}, but torch {torch.version} "
            f"was built for CUDA {torch.cuda}"
        )
    return True, f"torch {torch.version} on {gpu.name}"


def lacking_modules(step: Step) -> str:
    """The modules that a step needs and that are not installed, in words; imports none."""
    needs = step.needs
    if step.kind == "triton" and not step.in_cute_dsl:
        needs = (*needs, "triton")
    modules = [need.partition(".")[0] for need in needs if need != "gpu"]
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"{', '.join(missing)} not installed" if missing else ""


def _major(version: str) -> int:
    return int(version.split(".")[0])
