"""The machine and software behind a figure, as records keep it."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

from kernelbench.base.version import __version__
from kernelbench.machine import clocks
from kernelbench.machine.devices import GpuInfo
from kernelbench.machine.toolchain import cpu_count, cpu_info
from kernelbench.records.run_record import Environment


def read_environment(device: str, gpu: GpuInfo | None) -> Environment:
    """The machine and software behind figures measured here; imports torch.

    Other work on the GPU is that of every process but the calling one and those that its parent
    started beside it: sessions that are prepared while no other is timed.

    Args:
        device: ``cuda:N`` or ``cpu``.
        gpu: The GPU that ``device`` names; None for a CPU.
    """
    import torch

    if gpu is None:
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
    properties: Any = torch.cuda.get_device_properties(torch.device(device))
    others = clocks.other_processes(gpu.index, _siblings())
    return Environment(
        device=str(properties.name), kind="cuda", arch=f"sm_{properties.major}{properties.minor}",
        sms=int(properties.multi_processor_count), l2_bytes=int(properties.L2_cache_size),
        memory_bytes=int(properties.total_memory), driver=gpu.driver,
        cuda=str(torch.version.cuda or ""), torch=str(torch.__version__),
        python=platform.python_version(), kernelbench=__version__, gpu_processes=others or 0,
        mig=gpu.mig,
    )  # fmt: skip


def cpu_name() -> str:
    """The CPU model and the cores usable, e.g. ``CPU AMD EPYC 9654, 4 cores``."""
    model, cores = cpu_info("model name") or platform.machine(), cpu_count()
    return f"CPU {model}, {cores} core{'s' if cores != 1 else ''}"


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


def foreign_processes(index: int) -> int:
    """How many processes that are none of this command's hold a context on GPU ``index``.

    0 where NVML cannot tell.
    """
    return clocks.other_processes(index, _siblings() | {os.getppid()}) or 0


def _siblings() -> set[int]:
    """This process, the others of its parent, and theirs."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (folder / "stat").read_text()
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found: set[int] = set()
    more = {os.getppid()}
    while more := {pid for pid, parent in parents.items() if parent in more} - found:
        found |= more
    return found | {os.getpid()}
