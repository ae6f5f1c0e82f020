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
from dataclasses import dataclass
from pathlib import Path

from kernelbench.machine import toolchain
from kernelbench.machine.arch import arch_named
from kernelbench.machine.occupancy import CtaNeeds, occupancy

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_USED = re.compile(r"Used (\d+) registers")
_TIMEOUT_S = 600


@dataclass(frozen=True)
class Residency:
    """What fits.

    Attributes:
        ctas: Of the kernel, on the whole GPU.
        per_sm: On one SM; limits: what keeps one more from it.
        sms: Of the GPU; gpu: its name.
    """

    ctas: int
    per_sm: int
    limits: tuple[str, ...]
    sms: int
    gpu: str

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
        text: The PTX, from which ptxas takes the registers; without ptxas they are no limit.
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
    registers = registers_of(text, target).get(kernel, 0)
    fits = occupancy(CtaNeeds(registers, threads, shared_bytes), arch.sm)
    count = sms or arch.sms
    ctas = fits.ctas * count // cluster * cluster
    return Residency(ctas, fits.ctas, fits.limits, count, arch.chip)


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
