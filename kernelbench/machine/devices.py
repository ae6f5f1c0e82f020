"""The GPUs that this process sees, and the installed torch, found without importing it."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.base.errors import torch_missing
from kernelbench.machine import clocks


@dataclass(frozen=True)
class GpuInfo:
    """One GPU that CUDA shows to this process."""

    index: int  #: CUDA ordinal, as in ``cuda:0``.
    name: str
    capability: tuple[int, int]  #: Compute capability (major, minor).
    memory_bytes: int  #: Total device memory.
    driver: str  #: Driver version.
    cuda_driver: str  #: Newest CUDA version that it supports, "13.0".
    mig: bool  #: Whether the GPU is split into MIG instances.

    @property
    def arch(self) -> str:
        """``sm_90`` for capability (9, 0)."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


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
        name=clocks.nvml_text(clocks.ask(nvml, "nvmlDeviceGetName", whole) or "unknown GPU"),
        capability=(int(major), int(minor)),
        memory_bytes=int(memory.total) if memory is not None else 0,
        driver=clocks.nvml_text(clocks.ask(nvml, "nvmlSystemGetDriverVersion") or ""),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        mig=is_instance or bool(mig_mode[0]),
    )


def require_torch(what: str) -> None:
    """Refuse where torch is not installed: EnvironmentProblem that says ``what`` takes it."""
    if torch_info() is None:
        raise torch_missing(what)


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
