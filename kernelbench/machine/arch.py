"""GPUs by compute capability: what an SM has, and the chip that a capability stands for.

The only table of such facts. Limits of an SM are those of the CUDA programming guide's table of
compute capabilities; numbers of SMs are those of the vendors' data sheets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelbench.project.model import Step


@dataclass(frozen=True)
class SmLimits:
    """What one SM has."""

    registers: int  #: 32-bit registers.
    threads: int  #: Resident threads.
    ctas: int  #: Resident CTAs.
    shared_bytes: int  #: Shared memory of all resident CTAs together.
    shared_reserved: int  #: Shared memory that the system takes of every CTA.
    tmem_columns: int  #: Columns of tensor memory; 0 where there is none.
    barriers: int  #: Named barriers, of all resident CTAs together; 0 where they are no limit.


@dataclass(frozen=True)
class Arch:
    """A compute capability."""

    number: int  #: 90 for capability 9.0.
    chip: str  #: The GPU that it stands for where none is at hand.
    sms: int  #: How many SMs that has.
    gpus: str  #: Which GPUs run it, in words.
    sm: SmLimits  #: What one SM has.
    specific: bool = False  #: Whether steps of the ptx layer are built for it, as ``sm_90a``.
    emulated: bool = True  #: Whether the emulator stands for it.
    #: The arch on whose GPUs steps for this one run with its tensor cores in software; empty for
    #: none.
    soft_on: str = ""
    #: SMs of each GPC that clusters of more than two CTAs run on, from a probe of one chip
    #: (docs/ptx-rules.md, residency); empty if there was none.
    gpcs: tuple[int, ...] = ()

    @property
    def capability(self) -> tuple[int, int]:
        """``(9, 0)``."""
        return divmod(self.number, 10)

    @property
    def name(self) -> str:
        """``sm_90a`` where the ptx layer needs the arch-specific features, else ``sm_80``."""
        return f"sm_{self.number}{'a' if self.specific else ''}"

    def clusters(self, size: int, per_sm: int, sms: int) -> int:
        """How many clusters the GPU holds at once.

        Args:
            size: CTAs of a cluster.
            per_sm: CTAs that an SM holds.
            sms: Of the GPU, if it has fewer than the chip.
        """
        if size <= 2 or sms != self.sms or not self.gpcs:
            return per_sm * sms // size
        return sum(gpc * per_sm // size for gpc in self.gpcs if size <= 8 or gpc > 8)

    @property
    def cta_shared_bytes(self) -> int:
        """The most shared memory that one CTA may have."""
        return self.sm.shared_bytes - self.sm.shared_reserved


ARCHES = {
    each.number: each
    for each in (
        Arch(80, "A100", 108, "an A100", SmLimits(65536, 2048, 32, 164 << 10, 1 << 10, 0, 0)),
        Arch(86, "A40", 84, "an Ampere GPU (A10, A40, RTX 30)",
             SmLimits(65536, 1536, 16, 100 << 10, 1 << 10, 0, 0)),
        Arch(89, "L40S", 142, "an Ada GPU (L4, L40S, RTX 40)",
             SmLimits(65536, 1536, 24, 100 << 10, 1 << 10, 0, 0)),
        Arch(90, "H200", 132, "a Hopper GPU (H100, H200, H800)",
             SmLimits(65536, 2048, 32, 228 << 10, 1 << 10, 0, 64), specific=True,
             gpcs=(18, 18, 16, 16, 16, 16, 16, 8)),
        Arch(100, "B200", 148, "a Blackwell GPU (B200)",
             SmLimits(65536, 2048, 32, 228 << 10, 1 << 10, 512, 64), specific=True,
             soft_on="sm_90a"),
        Arch(120, "RTX 5090", 170, "a Blackwell GPU (RTX 50)",
             SmLimits(65536, 1536, 24, 100 << 10, 1 << 10, 0, 24), emulated=False),
    )
}  # fmt: skip
#: Those that compiled steps are built for, by name: arch-specific ("a") code runs on no other.
STEP_ARCHES = {each.name: each for each in ARCHES.values() if each.specific}
#: What those that have a stand-in in software are built for there, by name.
SOFT_ARCHES = {name: each.soft_on for name, each in STEP_ARCHES.items() if each.soft_on}
#: What steps of arch ``any`` are compiled for where there is no GPU and nobody says.
DEFAULT_ARCH = ARCHES[90]
#: Those that the emulator stands for.
EMULATED_ARCHES = tuple(each.number for each in ARCHES.values() if each.emulated)


def arch_named(name: str) -> Arch | None:
    """The arch of ``sm_90`` or ``sm_90a``; None for one that is not in the table."""
    match = re.fullmatch(r"sm_(\d+)[af]?", name)
    return ARCHES.get(int(match[1])) if match else None


def emulated_arch(step: Step) -> int:
    """What Triton or nvcc compiles a step for, for the emulator: 90 for ``sm_90a`` and for any."""
    digits = "".join(each for each in step.arch if each.isdigit())
    return int(digits) if digits else DEFAULT_ARCH.number


def unknown_gpu(step: Step) -> str:
    """Why the emulator has no GPU of a step's arch, in one line; empty if it has one."""
    if emulated_arch(step) in EMULATED_ARCHES:
        return ""
    known = ", ".join(f"sm_{each}" for each in EMULATED_ARCHES)
    return f"{step.name} is built for {step.arch}; the emulator stands for {known}"
