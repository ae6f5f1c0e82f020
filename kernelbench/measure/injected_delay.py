"""Injected delays: real extra device work of a known duration, for calibrating the verdicts.

Both arms carry one spin kernel behind the step's own work, so they launch the same kernels; the
candidate's spins longer. The spin counts SM clock cycles, so its duration scales with the clock, as
a kernel's own arithmetic does. What was really injected is measured alone, not assumed.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

from kernelbench.project.problem import Kernel

_BASE_CYCLES = 2000
_REPS = 60


class DelayInjector:
    """Appends spins to kernels; calibrates a GPU's cycles per microsecond on construction."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)
        short, long = 20_000, 220_000
        self._time(long)
        self.cycles_per_us = (long - short) / (self._time(long) - self._time(short))

    def inject(self, kernel: Kernel, extra_us: float) -> Kernel:
        """``kernel`` followed by the base spin plus ``extra_us`` of spinning."""
        cycles = _BASE_CYCLES + round(extra_us * self.cycles_per_us)

        def delayed(data: Any) -> Any:
            result = kernel(data)
            torch.cuda._sleep(cycles)
            return result

        return delayed

    def verify(self, extra_us: float) -> float:
        """The extra time of an injected delay measured alone, in microseconds."""
        cycles = _BASE_CYCLES + round(extra_us * self.cycles_per_us)
        with_extra, without = self._time(cycles), self._time(_BASE_CYCLES)
        return with_extra - without

    def _time(self, cycles: int) -> float:
        """Median duration of a spin in µs, ten in one event pair."""
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(2_000_000)
            pairs = []
            for _ in range(_REPS // 10):
                start = torch.cuda.Event(enable_timing=True)
                end = torch.cuda.Event(enable_timing=True)
                start.record(self._stream)
                for _ in range(10):
                    torch.cuda._sleep(cycles)
                end.record(self._stream)
                pairs.append((start, end))
            self._stream.synchronize()
        samples = [start.elapsed_time(end) * 100 for start, end in pairs]
        return float(statistics.median(samples))
