"""PTX on the emulator: any kernel, from whatever compiler, without a GPU.

``load("k.ptx").launch("name", grid, block, args)`` translates a file, runs one of its kernels on
tensors of the CPU or numpy arrays, and, with ``check``, looks for faults in many schedules. What is
not supported is named with its line before anything runs.
"""

from kernelbench.ptx.errors import Obstacle, PtxError, UnsupportedPtxError
from kernelbench.ptx.launcher import PtxModule, load_ptx
from kernelbench.ptx.report import PtxFinding, PtxReport

__all__ = [
    "Obstacle",
    "PtxError",
    "PtxFinding",
    "PtxModule",
    "PtxReport",
    "UnsupportedPtxError",
    "load",
]

#: The package says of what.
load = load_ptx
