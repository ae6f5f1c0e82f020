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

import functools
import importlib.util
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from kernelbench import clocks
from kernelbench.emulation import DEFAULT_EMULATION, Emulation
from kernelbench.errors import EnvironmentProblem, PlannedStepError, UsageError
from kernelbench.toolchain import cpu_count, emulator_compiler, nvcc

if TYPE_CHECKING:
    from kernelbench.records import Environment

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
class GpuInfo:
    """One GPU that CUDA shows to this process.

    Attributes:
        index: CUDA ordinal, as in ``cuda:0``.
        capability: Compute capability (major, minor).
        memory_bytes: Total device memory.
        driver: Driver version; cuda_driver: newest CUDA version that it supports, "13.0".
        mig: Whether the GPU is split into MIG instances.
    """

    index: int
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    driver: str
    cuda_driver: str
    mig: bool

    @property
    def arch(self) -> str:
        """``sm_90`` for capability (9, 0)."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


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


@dataclass(frozen=True)
class TorchInfo:
    """The installed torch, as read from its files without importing it."""

    version: str
    cuda: str | None


def gpus() -> list[GpuInfo]:
    """The GPUs that CUDA shows to this process, by CUDA ordinal; empty without a driver."""
    return list(_survey()[0])


def gpu_problem() -> str:
    """Why :func:`gpus` is empty, in one line; empty if it is not."""
    return _survey()[1]


def _survey() -> tuple[tuple[GpuInfo, ...], str]:
    return _query(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))


@functools.cache
def _query(visible: str | None, order: str | None) -> tuple[tuple[GpuInfo, ...], str]:
    try:
        with clocks.nvml() as nvml:
            handles = clocks.visible_handles(nvml)
            found = tuple(_describe(nvml, i, handle) for i, handle in enumerate(handles))
    except clocks.NvmlUnavailable as error:
        return (), error.message
    if found:
        return found, ""
    if visible is not None:
        return (), f"CUDA_VISIBLE_DEVICES={visible!r} shows no GPU to this process"
    return (), "the NVIDIA driver reports no GPU"


def _describe(nvml: Any, index: int, handle: Any) -> GpuInfo:
    cuda = int(clocks.ask(nvml, "nvmlSystemGetCudaDriverVersion_v2") or 0)
    is_instance = bool(clocks.ask(nvml, "nvmlDeviceIsMigDeviceHandle", handle))
    # A MIG instance has its own memory; its name and capability are those of the whole GPU.
    whole = handle
    if is_instance:
        whole = clocks.ask(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle) or handle
    memory = clocks.ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    major, minor = clocks.ask(nvml, "nvmlDeviceGetCudaComputeCapability", whole) or (0, 0)
    mig_mode = clocks.ask(nvml, "nvmlDeviceGetMigMode", whole) or (0, 0)
    return GpuInfo(
        index=index,
        name=clocks.text(clocks.ask(nvml, "nvmlDeviceGetName", whole) or "unknown GPU"),
        capability=(int(major), int(minor)),
        memory_bytes=int(memory.total) if memory is not None else 0,
        driver=clocks.text(clocks.ask(nvml, "nvmlSystemGetDriverVersion") or ""),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        mig=is_instance or bool(mig_mode[0]),
    )


@functools.cache
def torch_info() -> TorchInfo | None:
    """The installed torch, found without importing it (an import takes seconds); None if absent."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text()
    except OSError:
        return TorchInfo("unknown", None)
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=\n]*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return TorchInfo(version[1] if version else "unknown", cuda[1] if cuda else None)


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
    found = gpus()
    if not found:
        return None, gpu_problem()
    if not 0 <= device < len(found):
        return None, f"no GPU {device}: this process sees {len(found)}"
    return found[device], ""


def _torch_on_cpu() -> tuple[bool, str]:
    torch = torch_info()
    if torch is None:
        return False, "torch is not installed"
    return True, f"torch {torch.version} on the CPU"


def _torch_on_gpu(device: int) -> tuple[bool, str]:
    gpu, problem = _gpu(device)
    if gpu is None:
        return False, problem
    torch = torch_info()
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
        return Target(executor, f"cuda:{device}", gpus()[device])
    return Target(executor, "cpu", None, emulation if executor == "emulator" else None)


def environment(target: Target) -> Environment:
    """The machine and software behind figures measured on ``target``; imports torch.

    Other work on the GPU is that of every process but the calling one.
    """
    import torch

    from kernelbench import __version__
    from kernelbench.records import Environment

    if target.gpu is None:
        return Environment(
            device=cpu_name(),
            kind="cpu",
            arch=platform.machine(),
            sms=cpu_count(),
            l2_bytes=_cpu_l2_bytes(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            driver="",
            cuda="",
            torch=str(torch.__version__),
            python=platform.python_version(),
            kernelbench=__version__,
        )
    properties: Any = torch.cuda.get_device_properties(torch.device(target.device))
    others = clocks.other_processes(target.gpu.index, {os.getpid()})
    return Environment(
        device=str(properties.name),
        kind="cuda",
        arch=f"sm_{properties.major}{properties.minor}",
        sms=int(properties.multi_processor_count),
        l2_bytes=int(properties.L2_cache_size),
        memory_bytes=int(properties.total_memory),
        driver=target.gpu.driver,
        cuda=str(torch.version.cuda or ""),
        torch=str(torch.__version__),
        python=platform.python_version(),
        kernelbench=__version__,
        gpu_processes=others or 0,
        mig=target.gpu.mig,
    )


def cpu_name() -> str:
    """The CPU model and the cores usable, e.g. ``CPU AMD EPYC 9654, 4 cores``."""
    model = ""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        model = " ".join(found[1].split()) if found else ""
    except OSError:
        pass
    cores = cpu_count()
    return f"CPU {model or platform.machine()}, {cores} core{'s' if cores != 1 else ''}"


def _cpu_l2_bytes() -> int:
    """Size of the first core's level-2 cache; 0 where the kernel does not tell."""
    units = {"K": 1 << 10, "M": 1 << 20}
    for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if (cache / "level").read_text().strip() == "2":
                size = (cache / "size").read_text().strip()
                return int(size[:-1]) * units[size[-1]]
        except (OSError, KeyError, ValueError):
            continue
    return 0
