"""What can be chosen of the GPU that the emulator stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from kernelbench.base.errors import UsageError
from kernelbench.machine.arch import ARCHES, EMULATED_ARCHES

Rounding = Literal["fp32", "hardware"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)
#: SMs of a B200, which the Blackwell steps were written for.
DEFAULT_SMS = ARCHES[100].sms
#: More than any GPU has; beyond it only memory is used.
MAX_SMS = 1024


@dataclass(frozen=True)
class Emulation:
    """What a run on the emulator may choose.

    Attributes:
        sms: Streaming multiprocessors of the emulated GPU.
        mma_rounding: ``fp32``, or ``hardware``: as far as is known, what the tensor cores do.
    """

    sms: int = DEFAULT_SMS
    mma_rounding: Rounding = "fp32"


DEFAULT_EMULATION = Emulation()


def require_arch(arch: int) -> None:
    """Raise unless the emulator has GPUs of an arch.

    Raises:
        UsageError: With those that it has.
    """
    if arch not in EMULATED_ARCHES:
        raise UsageError(f"arch {arch}", f"known: {', '.join(map(str, EMULATED_ARCHES))}")
