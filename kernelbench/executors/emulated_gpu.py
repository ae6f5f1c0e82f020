"""Which GPU the emulator stands for where a step's kernels come from a compiler."""

from __future__ import annotations

from kernelbench.emulator.settings import SHARED_BYTES
from kernelbench.project.model import Step

#: What steps for the GPU at hand are compiled for.
DEFAULT_ARCH = 90


def arch_of(step: Step) -> int:
    """What Triton or nvcc compiles a step for: 90 for ``sm_90a`` and for any."""
    digits = "".join(each for each in step.arch if each.isdigit())
    return int(digits) if digits else DEFAULT_ARCH


def unknown_gpu(step: Step) -> str:
    """Why the emulator has no GPU of a step's arch, in one line; empty if it has one."""
    if arch_of(step) in SHARED_BYTES:
        return ""
    known = ", ".join(f"sm_{each}" for each in SHARED_BYTES)
    return f"{step.name} is built for {step.arch}; the emulator stands for {known}"
