"""A launch that host code of CUDA asks for."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernelbench.emulator.assumptions import NEVER_WAITS
from kernelbench.ptx.launcher import PtxModule
from kernelbench.ptx.report import PtxReport
from kernelbench.ptx.residency import Ctas

_POINTER = 8  # bytes
FAILED, ASSERTED = 719, 710  # cudaErrorLaunchFailure, cudaErrorAssert
#: What the emulator says of a kernel's assert.
ASSERTION = "assertion failed"


class WorkOrder(enum.Enum):
    """In which order work is done that nothing orders.

    Usually the stream that was used last comes first, and what it waits for as it was asked for.
    """

    USUAL, OLDEST_FIRST, NEWEST_FIRST = range(3)


@dataclass(frozen=True)
class CudaLaunch:
    """A kernel with its extents.

    Attributes:
        args: The bytes of each parameter.
        shared: Bytes of dynamic shared memory.
        programmatic: Whether it may begin before the launch ahead of it has ended.
        in_default: Whether it is given to the default stream, not by way of torch's current one.
        others, neighbours: As :meth:`PtxModule.launch` takes them.
    """

    module: PtxModule
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    shared: int
    cooperative: bool
    args: tuple[bytes, ...]
    programmatic: bool = False
    in_default: bool = False
    others: Callable[[int], int] | None = None
    neighbours: Callable[[], Sequence[Ctas]] = tuple

    @property
    def form(self) -> tuple[Any, ...]:
        """Equal for launches that differ in arguments only."""
        return id(self.module), self.kernel, self.grid, self.block, self.cluster, self.shared

    def named(self, name: str, address: int, size: int) -> str:
        """Memory's name with the first argument that is an address in it."""
        for at, given in enumerate(self.args):
            if len(given) == _POINTER and 0 <= int.from_bytes(given, "little") - address < size:
                return f"{name} (argument {at})"
        return name

    @property
    def assumed(self) -> tuple[str, ...]:
        """What it rests on; keys of ``LAUNCH_ASSUMPTIONS``."""
        waits = not self.programmatic or self.module.waits_for_ahead(self.kernel)
        return () if waits else (NEVER_WAITS,)

    @property
    def options(self) -> dict[str, Any]:
        """What :meth:`PtxModule.launch` and ``launch_once`` take beside kernel and extents."""
        return {
            "shared": self.shared,
            "cluster": self.cluster if math.prod(self.cluster) > 1 else None,
            "cooperative": self.cooperative,
        }

    @property
    def words(self) -> str:
        """Its extents, for rows."""
        text = f"grid {_extents(self.grid)}, block {_extents(self.block)}"
        if math.prod(self.cluster) > 1:
            text += f", clusters of {_extents(self.cluster)}"
        return f"{text}, {self.shared} bytes shared" if self.shared else text


def _extents(of: tuple[int, ...]) -> str:
    return "×".join(map(str, of))


def cuda_status(report: PtxReport) -> int:
    """What CUDA would say of a launch."""
    if not report.error and not report.waits:
        return 0
    failed = any(each.finding.text == ASSERTION for each in report.findings)
    return ASSERTED if failed else FAILED


class CudaRunner(Protocol):
    """Who runs the launches of host code.

    Attributes:
        arch: What the host is told of the GPU: 90 for 9.0; sms: of the number of its SMs.
        check: Whether kernels are built for the checker.
    """

    arch: int
    sms: int
    check: bool

    def run_cuda(self, launch: CudaLaunch, memory: Mapping[str, Any]) -> int:
        """Run it; a status of CUDA, 0 if it came to its end.

        Args:
            memory: What the host has allocated, by name.
        """
