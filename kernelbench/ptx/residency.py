"""How many CTAs of a kernel a GPU holds at once: what may wait for each other.

From what an SM has (:mod:`kernelbench.machine.occupancy`) and what ptxas says of the kernel's
registers. CTAs of one launch are resident together as far as they fit; PTX promises it of
cooperative launches only (PTX ISA 9.1, 2.2; CUDA programming guide, "Grid Synchronization").
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelbench.machine import toolchain
from kernelbench.machine.arch import SmLimits, arch_named
from kernelbench.machine.occupancy import CtaNeeds, left_beside, occupancy

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_USED = re.compile(r"Used (\d+) registers")
_TIMEOUT_S = 600


@dataclass(frozen=True)
class Residency:
    """What fits."""

    ctas: int  #: Of the kernel, on the whole GPU.
    per_sm: int  #: On one SM.
    limits: tuple[str, ...]  #: What keeps one more from it.
    sms: int  #: Of the GPU.
    gpu: str  #: Its name.

    @property
    def words(self) -> str:
        """For findings: ``132 can reside on 132 SMs (H200), 1 on each by shared memory``."""
        limits = " and ".join(self.limits)
        on_sms = f"{self.sms} SMs ({self.gpu})"
        return f"{self.ctas} can reside on {on_sms}, {self.per_sm} on each by {limits}"


def residency(
    target: str, text: str, kernel: str, *, threads: int, shared_bytes: int, cluster: int,
    sms: int = 0,
) -> Residency | None:  # fmt: skip
    """What fits of a kernel.

    Args:
        target: PTX's, such as ``sm_90a``: the GPU is the one that the capability stands for.
        text: The PTX, from which ptxas takes the registers; without ptxas, or if it is empty,
            they are no limit.
        threads: Of a CTA.
        shared_bytes: Of a CTA, static and dynamic.
        cluster: CTAs of a cluster, which reside together or not at all.
        sms: Of the GPU; 0 for as many as it has.

    Returns:
        None if the table has no such GPU.
    """
    arch = arch_named(target)
    if arch is None:
        return None
    registers = registers_of(text, target).get(kernel, 0) if text else 0
    fits = occupancy(CtaNeeds(registers, threads, shared_bytes), arch.sm)
    count = sms or arch.sms
    ctas = arch.clusters(cluster, fits.ctas, count) * cluster
    return Residency(ctas, fits.ctas, fits.limits, count, arch.chip)


@dataclass(frozen=True)
class Ctas:
    """CTAs of a launch."""

    kernel: str
    count: int
    needs: CtaNeeds | None  #: What each takes of an SM; None if it is no kernel.
    #: Whether it may begin once all CTAs of the launch ahead have triggered.
    dependent: bool = False
    waits: bool = False  #: Whether it waits then for the end of that one.


def kept_out(target: str, sms: int, running: Ctas, neighbours: Sequence[Ctas]) -> str:
    """Why nothing beside a launch can begin once one that depends on it has; empty if it can.

    That one may be launched as soon as all CTAs ahead have triggered (CUDA programming guide,
    "Programmatic Dependent Launch and Synchronization"), and nothing orders it behind others.

    Args:
        target: As of :func:`residency`; sms: likewise.
        running: It waits for what is beside it; its CTAs are spread over the SMs.
        neighbours: What may begin meanwhile.
    """
    arch = arch_named(target)
    beside = [each for each in neighbours if not each.dependent]
    if arch is None or running.needs is None or not beside:
        return ""
    count = sms or arch.sms
    if running.count > occupancy(running.needs, arch.sm).ctas * count:
        return ""
    for first in (each for each in neighbours if each.dependent and each.waits):
        assert first.needs is not None
        room, left = 0, []
        for at in (0, 1):  # an SM has as many of the running ones, or one more
            each, more = divmod(running.count, count)
            sm = left_beside(running.needs, each + at, arch.sm)
            fits = occupancy(first.needs, sm).ctas
            room += fits * (more if at else count - more)
            left.append(left_beside(first.needs, fits, sm))
        if room <= first.count and not any(_begins(each, left) for each in beside):
            return (
                f"{first.kernel} may begin, since all CTAs have triggered, and fills the SMs until "
                f"this launch ends: of {first.count} CTAs {room} reside beside it on {count} SMs "
                f"({arch.chip}), and {beside[0].kernel} cannot begin"
            )
    return ""


def _begins(of: Ctas, left: Sequence[SmLimits]) -> bool:
    return of.needs is None or any(occupancy(of.needs, sm).ctas > 0 for sm in left)


@functools.lru_cache(maxsize=32)
def registers_of(text: str, target: str) -> dict[str, int]:
    """Registers of each thread by kernel, as ptxas allocates them; empty without ptxas."""
    ptxas = next((each for each in toolchain.cuda_tools("ptxas") if each.is_file()), None)
    if ptxas is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as folder:
        file = Path(folder) / "kernels.ptx"
        file.write_text(text)
        ended = subprocess.run(
            [ptxas, "-arch", target, "-v", "-o", file.with_suffix(".cubin"), file],
            check=False, capture_output=True, text=True, timeout=_TIMEOUT_S,
        )  # fmt: skip
    found: dict[str, int] = {}
    kernel = ""
    for line in ended.stderr.splitlines():
        if (entry := _ENTRY.search(line)) is not None:
            kernel = entry[1]
        elif (used := _USED.search(line)) is not None:
            found.setdefault(kernel, int(used[1]))
    return found
