"""What this machine can run, and which executor a step gets.

========== =====================================================================================
executor   meaning
========== =====================================================================================
gpu        the step runs natively on a GPU: a compiled step on a GPU of its own arch, a Python
           step (arch ``any``) on CUDA tensors
gpu-soft   an ``sm_100a`` step built for ``sm_90a``: TMA and barriers native, tensor cores in
           software; for correctness, never timed as if it were a Blackwell GPU
emulator   a compiled step on the CPU, one fiber for each CUDA thread; for correctness
torch      a Python step on the CPU, through torch
========== =====================================================================================

Nothing here imports torch except :func:`environment`: listing steps asks these questions too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from kernelbench.base.errors import EnvironmentProblem, PlannedStepError, UsageError
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.machine import devices
from kernelbench.machine.devices import GpuInfo
from kernelbench.machine.toolchain import emulator_compiler, nvcc

if TYPE_CHECKING:
    pass

Executor = Literal["gpu", "gpu-soft", "emulator", "torch"]
#: Best first: the order in which ``auto`` chooses.
EXECUTORS: tuple[Executor, ...] = get_args(Executor)

#: Compute capability that runs each arch natively; arch-specific ("a") code runs on no other.
ARCH_CAPABILITY = {"sm_90a": (9, 0), "sm_100a": (10, 0)}
#: What gpu-soft builds sm_100a steps for.
SOFT_ARCH = "sm_90a"
_ARCH_GPUS = {"sm_90a": "a Hopper GPU (H100, H200, H800)", "sm_100a": "a Blackwell GPU (B200)"}
#: Executors whose times stand for the device that they ran on; no other is ever timed.
TIMED_EXECUTORS: tuple[Executor, ...] = ("gpu", "torch")

Verdict = tuple[Executor, bool, str]


class StepLike(Protocol):
    """What is asked of a step here; ``lineage.Step`` fits."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def lineage_path(self) -> Path: ...
    @property
    def entry(self) -> Path | None: ...
    @property
    def needs(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Target:
    """An executor and where it runs.

    Attributes:
        device: ``cuda:N`` or ``cpu``.
        emulation: What is emulated; None for every executor but the emulator.
    """

    executor: Executor
    device: str
    gpu: GpuInfo | None
    emulation: Emulation | None = None

    @property
    def timed(self) -> bool:
        """Whether times taken here stand for the device."""
        return self.executor in TIMED_EXECUTORS


def executors_for(step: StepLike, device: int = 0) -> list[Verdict]:
    """Each executor with whether it can run ``step`` here, and why (not), in one line.

    Args:
        device: CUDA ordinal that the GPU executors would use.
    """
    if step.status == "planned":
        return [(executor, False, "planned: no kernel yet") for executor in EXECUTORS]
    if step.kind == "torch":
        compiled_only = f"{step.name} is a Python step; this executor runs compiled steps"
        missing = _missing_modules(step)
        here = (False, f"{', '.join(missing)} not installed") if missing else None
        cpu = (False, f"{step.name} needs a GPU") if "gpu" in step.needs else _torch_on_cpu()
        return [
            ("gpu", *(here or _torch_on_gpu(device))),
            ("gpu-soft", False, compiled_only),
            ("emulator", False, compiled_only),
            ("torch", *(here or cpu)),
        ]
    return [
        ("gpu", *_compiled_on_gpu(step, device)),
        ("gpu-soft", *_compiled_soft(step, device)),
        ("emulator", *_compiled_emulated(step)),
        ("torch", False, f"{step.name} is a compiled step; this executor runs Python steps"),
    ]


def _missing_modules(step: StepLike) -> list[str]:
    """The Python modules that a step needs and that are not installed; imports none."""
    modules = [need.partition(".")[0] for need in step.needs if need != "gpu"]
    return [module for module in modules if importlib.util.find_spec(module) is None]


def _gpu(device: int) -> tuple[GpuInfo | None, str]:
    found = devices.gpus()
    if not found:
        return None, devices.gpu_problem()
    if not 0 <= device < len(found):
        return None, f"no GPU {device}: this process sees {len(found)}"
    return found[device], ""


def _torch_on_cpu() -> tuple[bool, str]:
    torch = devices.torch_info()
    if torch is None:
        return False, "torch is not installed"
    return True, f"torch {torch.version} on the CPU"


def _torch_on_gpu(device: int) -> tuple[bool, str]:
    gpu, problem = _gpu(device)
    if gpu is None:
        return False, problem
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


def _major(version: str) -> int:
    return int(version.split(".")[0])


def _compiled_on_gpu(step: StepLike, device: int) -> tuple[bool, str]:
    gpu, problem = _gpu(device)
    if gpu is None:
        return False, problem
    if gpu.capability != ARCH_CAPABILITY.get(step.arch):
        need = _ARCH_GPUS.get(step.arch, step.arch)
        return False, f"{step.name} is written for {step.arch}, {need}; this is {gpu.name}"
    return _buildable(step, step.arch.replace("_", ""), gpu.name)


def _compiled_soft(step: StepLike, device: int) -> tuple[bool, str]:
    if step.arch != "sm_100a":
        return False, f"gpu-soft runs sm_100a steps; {step.name} is written for {step.arch}"
    gpu, problem = _gpu(device)
    if gpu is None:
        return False, problem
    if gpu.capability != ARCH_CAPABILITY["sm_90a"]:
        return False, f"gpu-soft needs {_ARCH_GPUS['sm_90a']}; this is {gpu.name}"
    return _buildable(step, "soft", gpu.name)


def _buildable(step: StepLike, backend: str, where: str) -> tuple[bool, str]:
    """Whether the parts that build a compiled step for a GPU are there."""
    if not _has_backend(step, backend):
        return False, f"there is no common/backend/{backend} to build {step.name} with"
    if nvcc() is None:
        return False, "no nvcc to build it with; install the CUDA toolkit"
    return True, f"native on {where}"


def _compiled_emulated(step: StepLike) -> tuple[bool, str]:
    if not _has_backend(step, "emu"):
        return False, f"there is no common/backend/emu to build {step.name} with"
    try:
        emulator_compiler()
    except EnvironmentProblem as error:
        return False, error.message
    return True, "emulated on the CPU"


def _has_backend(step: StepLike, backend: str) -> bool:
    # Lineages beside `kernels` share its backends.
    lineage = step.lineage_path
    folders = (lineage / "common", lineage.parent / "kernels" / "common")
    return any((folder / "backend" / backend).is_dir() for folder in folders)


def runnable(step: StepLike) -> tuple[bool, str]:
    """Whether anything here can run ``step``: the best executor and where, or why none can."""
    verdicts = executors_for(step)
    for executor, works, reason in verdicts:
        if works:
            return True, f"{executor}: {reason}"
    return False, _why_none(step, verdicts)


def _why_none(step: StepLike, verdicts: Iterable[Verdict]) -> str:
    if step.status == "planned":
        return "planned"
    meant = ("gpu", "torch") if step.kind == "torch" else ("gpu", "gpu-soft", "emulator")
    return "; ".join(f"{e}: {reason}" for e, _, reason in verdicts if e in meant)


def resolve(
    step: StepLike,
    requested: str = "auto",
    device: int = 0,
    emulation: Emulation = DEFAULT_EMULATION,
) -> Target:
    """The target on which ``step`` runs.

    Args:
        requested: An executor, or ``auto`` for the best that this machine has.
        device: CUDA ordinal for the GPU executors.
        emulation: What to emulate, if it runs on the emulator.

    Raises:
        PlannedStepError: If the step has no kernel yet.
        UsageError: If ``requested`` is not an executor.
        EnvironmentProblem: If this machine cannot run it so; says why and what can.
    """
    if requested != "auto" and requested not in EXECUTORS:
        raise UsageError(
            f"unknown executor {requested!r}", f"choose from auto, {', '.join(EXECUTORS)}"
        )
    if step.status == "planned" or step.entry is None:
        raise PlannedStepError(
            f"{step.name} is planned: its kernel is not written yet",
            "`kernelbench list` shows the steps that run",
        )
    verdicts = executors_for(step, device)
    working = [executor for executor, works, _ in verdicts if works]
    if requested == "auto":
        if not working:
            raise EnvironmentProblem(
                f"this machine cannot run {step.name}: {_why_none(step, verdicts)}",
                "`kernelbench doctor` shows what is missing",
            )
        return _target(working[0], device, emulation)
    reason = next(why for executor, _, why in verdicts if executor == requested)
    if requested not in working:
        others = ", ".join(f"--executor {executor}" for executor in working)
        raise EnvironmentProblem(
            f"executor {requested!r} cannot run {step.name}: {reason}",
            f"what works here: {others}" if others else "`kernelbench doctor` shows more",
        )
    return _target(requested, device, emulation)


def _target(executor: Executor, device: int, emulation: Emulation) -> Target:
    if executor in ("gpu", "gpu-soft"):
        return Target(executor, f"cuda:{device}", devices.gpus()[device])
    return Target(executor, "cpu", None, emulation if executor == "emulator" else None)
