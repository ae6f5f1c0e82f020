"""Timing on a GPU in a submission's process, by what times steps, with its judge looking on.

Nothing said here is believed as it is: the judge gives every block other values, compares what its
last calls have written, and makes calls of its own that it times by its own clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from kernelbench.base.errors import KernelbenchError
from kernelbench.isolation.requests import Once, Request, Time
from kernelbench.measure.gpu_call_time import call_time
from kernelbench.measure.gpu_device_time import device_time
from kernelbench.measure.gpu_timing import CaptureError, GpuTiming
from kernelbench.measure.kernel_activity import ProfilerError
from kernelbench.measure.output_verifier import OnceMore, OutputVerifier
from kernelbench.measure.results import TimedBlock, status_of
from kernelbench.measure.timing import SYNCHRONIZE, InputSet, TimingFault, quiet_gc
from kernelbench.project.problem import Kernel

#: Tells what the series is at, with results or None, and waits for the next request.
Ask = Callable[[dict[str, Any], Any], Request]


class RemoteVerifier:
    """Has timed outputs verified by the judge, which it asks over a socket."""

    def __init__(self, ask: Ask, settle: Callable[[], None]) -> None:
        self._ask = ask
        self._settle = settle
        self._last: dict[int, tuple[int, Any]] = {}

    def exchange(self) -> None:
        """Change nothing: :meth:`renew` gives every set new values after the capture."""

    def renew(self, launch: OnceMore) -> None:
        """Tell the judge that it may renew values, and make the repetitions that it asks for."""
        self._settle()
        request = self._ask({"at": "renew"}, None)
        while isinstance(request, Once):
            result = launch(request.arm, request.which)
            self._settle()
            request = self._ask({"at": "once"}, None if request.rehearsal else result)

    def keep(self, position: tuple[int, int], arm: int, which: int, result: Any) -> None:
        """Remember the last result of a set, which the judge compares."""
        self._last[which] = arm, result

    def verify(self) -> None:
        """Compare nothing: the judge has compared every block."""

    def tell(self, block: TimedBlock) -> None:
        """Send a block to the judge, with the last result of each of its sets."""
        self._settle()
        results = {which: result for which, (_, result) in self._last.items()}
        said = {
            "arm": block.arm, "input_set": block.input_set, "time_us": block.values,
            "sm_mhz": block.sm_mhz,
        }  # fmt: skip
        self._last = {}
        self._ask({"at": "block", "block": said}, results)


@dataclass
class IsolatedTiming(GpuTiming):
    """The timer, with a verifier in another process.

    What the profiler of this process says nobody else can check: the host's part of a call that
    cannot be captured may take longer than the device's.
    """

    profiles: ClassVar[bool] = False
    elsewhere: RemoteVerifier = field(kw_only=True)

    def verifier(
        self, order: Sequence[Sequence[int]], rng: random.Random, seed: int, every: int = 5
    ) -> OutputVerifier:
        """The verifier that asks the judge; what this process draws does not matter."""
        return self.elsewhere


def time_series(
    kernels: Sequence[Kernel],
    request: Time,
    sets: Sequence[tuple[Any, list[torch.Tensor]]],
    device: torch.device,
    ask: Ask,
) -> dict[str, Any]:
    """Time a series, and say how that was done, or what is wrong.

    Raises:
        Exception: What a submission raises.
    """
    theirs: Any = None  # the case, by which the verifier judges
    elsewhere = RemoteVerifier(ask, lambda: SYNCHRONIZE(device))
    gpu = IsolatedTiming(
        device, theirs, [InputSet(inputs, None, poisons) for inputs, poisons in sets],
        request.l2, request.seed, lambda name, *_: _announce(ask, name), request.limit_s,
        on_block=elsewhere.tell, batch=request.batch, elsewhere=elsewhere,
    )  # fmt: skip
    order = [list(arms) for arms in request.order]
    try:
        with quiet_gc():
            if request.metric == "device":
                found = device_time(gpu, kernels, order, request.warmups)
            else:
                found = call_time(gpu, kernels, order, request.warmups, request.call)
    except CaptureError as error:
        return {"at": "unmeasured", "reason": str(error)}
    except (TimingFault, ProfilerError) as error:
        kind = "wrong" if isinstance(error, TimingFault) else "fault"
        return {"at": "fault", "status": kind, "reason": str(error)}
    except KernelbenchError as error:
        return {"failed": status_of(error), "reason": str(error)}
    return {"at": "measured", "method": found.method, "notes": found.notes}


def _announce(ask: Ask, name: str) -> None:
    ask({"at": "phase", "name": name}, None)


def generator_lost(device: str) -> bool:
    """Whether a graph capture that failed has left torch's generator behind, as if capturing."""
    if device == "cpu":
        return False
    try:
        torch.empty(1, device=device).uniform_()
    except RuntimeError:
        return True
    return False
