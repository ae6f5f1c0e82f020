"""Energy of one call on a GPU: NVML's counter over back-to-back calls in graphs, the arms by turns.

NVML's total energy (``nvmlDeviceGetTotalEnergyConsumption``: millijoules since the driver was
loaded, of the whole board) moves in steps, some tens of milliseconds apart. So a window begins with
a step and ends with a step, and in between calls are counted. A graph holds many calls, so that
gaps between graphs, in which the board draws power for nobody, do not count. Nothing is flushed
between calls: the L2 is as the last one left it. What the board draws when it is idle is in the
figure, and is noted beside it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelbench.base.errors import MachineFault
from kernelbench.base.seeds import derive
from kernelbench.machine.environment import foreign_processes
from kernelbench.measure.gpu_timing import CaptureError, GpuTiming
from kernelbench.measure.results import TimedBlock
from kernelbench.measure.timing import CLOCK, EVENT, Measurement, require_untouched_timers
from kernelbench.project.problem import Kernel

#: Blocks of one window an arm; 2.5 s of each arm in all.
BLOCKS = 5
WINDOW_S = 0.5
#: Before a window the arm runs alone: its power, its temperature.
LEAD_S = 0.15
#: A counter that stands still for so long is none.
PATIENCE_S = 2.0
#: Calls are counted in chunks of about so many microseconds, of which one is always queued.
CHUNK_US = 4000.0
#: A graph has calls for about so many microseconds, and not more than so many calls.
GRAPH_US, MAX_CALLS = 1000.0, 32


@dataclass(frozen=True)
class Window:
    """What the counter said between two of its steps: millijoules, calls in between, seconds."""

    mj: int
    calls: int
    seconds: float

    @property
    def watts(self) -> float:
        """The mean power of the board."""
        return self.mj / 1e3 / self.seconds


def window(
    read: Callable[[], int | None],
    chunk: Callable[[], int],
    *,
    clock: Callable[[], float] = CLOCK,
) -> Window:
    """Take one window.

    Args:
        read: The counter in millijoules; None where there is none.
        chunk: Runs some calls and returns how many have ended.
        clock: Seconds, monotonic.

    Raises:
        MachineFault: If there is no counter, it goes back, or it stands still.
    """
    begun = stepped = clock()
    last, begin, calls = read(), None, 0
    while True:
        calls += chunk()
        now, found = clock(), read()
        if found is None or last is None:
            raise MachineFault("no energy: NVML has no energy counter of this GPU")
        if found < last:
            raise MachineFault(f"no energy: NVML's counter went back from {last} to {found} mJ")
        if found == last and now - stepped > PATIENCE_S:
            raise MachineFault(f"no energy: NVML's counter stands still at {found} mJ")
        if found > last:
            stepped = now
            if begin is None and now - begun >= LEAD_S:
                begin, calls = (now, found), 0
            elif begin is not None and now - begin[0] >= WINDOW_S:
                return Window(found - begin[1], calls, now - begin[0])
        last = found


def energy(
    gpu: GpuTiming, kernels: Sequence[Kernel], warmups: int, read: Callable[[], int | None]
) -> Measurement:
    """Millijoules of one call of each arm; their windows alternate, in an order drawn by coin.

    Args:
        gpu: Where it is measured, with the input sets.
        kernels: The arms.
        warmups: Untimed calls of each arm.
        read: NVML's counter of this GPU.

    Raises:
        TimingFault: If an output is wrong.
        MachineFault: If the GPU is shared, or its counter of no use.
    """
    _require_alone(gpu)
    rng = random.Random(derive(gpu.seed, "energy", "order"))
    order = [rng.sample(range(len(kernels)), len(kernels)) for _ in range(BLOCKS)]
    verifier = gpu.verifier(order, rng, derive(gpu.seed, "energy"))
    measurement = Measurement("energy", "nvml")
    watts: list[list[float]] = [[] for _ in kernels]
    with torch.cuda.stream(gpu.stream):
        gpu.warm_up(kernels, min(warmups, 3 * len(gpu.sets)))
        gpu.announce("idle energy", 60, "machine")
        idle = window(read, _nothing)
        begin_s = CLOCK()
        for b, arms in enumerate(order):
            verifier.exchange()
            try:
                graphs = {arm: _Calls.captured(gpu, kernels[arm]) for arm in arms}
            except CaptureError as error:
                return Measurement("energy", "none", notes=[f"no energy: capture failed: {error}"])
            block = TimedBlock(list(arms), [], [])
            if gpu.stamps is not None:
                gpu.stamps.stamp(0, gpu.stream)
            for r, arm in enumerate(arms):
                gpu.announce("energy window", 60 + gpu.call_limit_s)
                for poisoning in gpu.preparations:
                    poisoning[r % 2].replay()
                calls = graphs[arm]
                calls.begin(gpu)
                found = window(read, calls.chunk)
                gpu.stream.synchronize()
                watts[arm].append(found.watts)
                block.values.append(round(found.mj / found.calls, 4))
                block.input_set.append(calls.last)
                verifier.keep((b, r), arm, calls.last, calls.result)
            if gpu.stamps is not None:
                gpu.stamps.stamp(1, gpu.stream)
                gpu.stream.synchronize()
            gpu.finish_block(block)
            measurement.blocks.append(block)
        measurement.busy_s = CLOCK() - begin_s
    verifier.verify()
    require_untouched_timers()
    _require_alone(gpu)
    drawn = " and ".join(f"{sum(of_arm) / len(of_arm):.0f} W" for of_arm in watts)
    measurement.notes.append(
        f"the board draws {drawn} in back-to-back calls, {idle.watts:.0f} W idle; warm L2"
    )
    return measurement


@dataclass
class _Calls:
    """Calls of one arm over the input sets in one graph, which is replayed back to back."""

    graph: torch.cuda.CUDAGraph
    count: int  #: Calls of the graph.
    us: float  #: Their time.
    last: int  #: Index of the set of the last one.
    result: Any  #: What that call returned.

    @classmethod
    def captured(cls, gpu: GpuTiming, kernel: Kernel) -> _Calls:
        """The graph; CaptureError if a call cannot be captured."""
        (graph, _), *_ = gpu.capture(kernel)
        us = _time_us(gpu, graph)
        count = min(MAX_CALLS, max(1, round(GRAPH_US / us)))
        graph, result = gpu.capture_calls(kernel, count)
        return cls(graph, count, _time_us(gpu, graph), (count - 1) % len(gpu.sets), result)

    def begin(self, gpu: GpuTiming) -> None:
        """Queue the first chunk."""
        self._stream, self._size = gpu.stream, max(1, round(CHUNK_US / self.us))
        self._queued = self._queue()

    def chunk(self) -> int:
        """Queue a chunk, wait for the one before; how many calls that was."""
        queued, self._queued = self._queued, self._queue()
        queued.synchronize()
        return self._size * self.count

    def _queue(self) -> torch.cuda.Event:
        for _ in range(self._size):
            self.graph.replay()
        end = EVENT(enable_timing=True)
        end.record(self._stream)
        return end


def _time_us(gpu: GpuTiming, graph: torch.cuda.CUDAGraph) -> float:
    """About how long a replay takes, back to back."""
    start, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
    graph.replay()
    start.record(gpu.stream)
    for _ in range(10):
        graph.replay()
    end.record(gpu.stream)
    end.synchronize()
    us: float = start.elapsed_time(end) * 1e3 / 10
    return max(us, 0.1)


def _nothing() -> int:
    time.sleep(0.002)
    return 0


def _require_alone(gpu: GpuTiming) -> None:
    """The counter is the board's: what others do on it would be the step's."""
    others = foreign_processes(gpu.device.index or 0)
    if others:
        raise MachineFault(f"no energy: {others} other process(es) use this GPU")
