"""Call time on a GPU: events around Python calls on a drained queue, and what escapes them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any, Literal

import torch

from kernelbench.base.errors import MachineFault
from kernelbench.base.seeds import derive
from kernelbench.machine.environment import foreign_processes
from kernelbench.measure import probes
from kernelbench.measure.gpu_timing import GpuTiming
from kernelbench.measure.results import TimedBlock
from kernelbench.measure.timing import (
    CLOCK,
    EVENT,
    SYNCHRONIZE,
    Measurement,
    TimingFault,
    require_untouched_timers,
)
from kernelbench.project.problem import Kernel

_CALLS_PER_COMPETITION_REP = 15
#: Enough for a median, where other processes take their turns.
_CALLS_OF_NOTHING = 40


def call_time(
    gpu: GpuTiming,
    kernels: Sequence[Kernel],
    order: Sequence[Sequence[int]],
    warmups: int,
    mode: Literal["single", "competition"] = "single",
) -> Measurement:
    """Time of one Python call on a drained queue (or of 15 in one event pair, per call).

    Args:
        gpu: Where it is measured, with the input sets.
        kernels: The arms.
        order: Of the arms, a list for each block.
        warmups: Untimed calls of each arm.
        mode: One call in an event pair, or 15.

    Raises:
        TimingFault: If a timed output is wrong, or work of the step goes on after its end event
            (host time to a device-wide synchronization exceeds event time by far).
        MachineFault: If the second cannot be told: a call of nothing takes long, too, or other
            processes use the GPU.
    """
    rng = random.Random(derive(gpu.seed, "call", "order"))
    verifier = gpu.verifier(order, rng, derive(gpu.seed, "call"))
    method = "events" if mode == "single" else "competition"
    measurement = Measurement("call", method)
    calls = 1 if mode == "single" else _CALLS_PER_COMPETITION_REP
    reset = gpu.resets_persisting()
    excess: list[list[float]] = [[] for _ in kernels]

    def launch(arm: int, which: int) -> Any:
        return kernels[arm](gpu.sets[which].inputs.data)

    with torch.cuda.stream(gpu.stream):
        gpu.warm_up(kernels, warmups)
        begin_s = CLOCK()
        for b, arms_of_block in enumerate(order):
            verifier.exchange()
            verifier.renew(launch)
            block = TimedBlock(list(arms_of_block), [], [])
            gpu.announce("timed block", gpu.call_limit_s)
            for r, arm in enumerate(arms_of_block):
                which = rng.randrange(len(gpu.sets))
                for call in range(calls):
                    gpu.do_untimed_setup(kernels[arm], gpu.sets[(which + call) % len(gpu.sets)])
                if gpu.l2 == "cold":
                    gpu.preparations[which][r % 2].replay()
                elapsed_us, host_us, result = _timed(gpu, kernels[arm], which, calls, reset)
                excess[arm].append(host_us - elapsed_us)
                block.values.append(elapsed_us / calls)
                block.input_set.append(which)
                verifier.keep((b, r), arm, (which + calls - 1) % len(gpu.sets), result)
            gpu.finish_block(block)
            measurement.blocks.append(block)
        measurement.busy_s = CLOCK() - begin_s
    verifier.verify()
    require_untouched_timers()
    for arm, values in enumerate(excess):
        _require_joined(gpu, arm, statistics.median(values), measurement, calls)
    return measurement


def _timed(
    gpu: GpuTiming, kernel: Kernel, which: int, calls: int, reset: bool
) -> tuple[float, float, Any]:
    """Microseconds of the calls by events and by the host's clock, and the last call's result."""
    start, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
    SYNCHRONIZE(gpu.device)
    if reset:
        probes.reset_persisting_l2()
    host = CLOCK()
    start.record(gpu.stream)
    for call in range(calls):
        result = kernel(gpu.sets[(which + call) % len(gpu.sets)].inputs.data)
    end.record(gpu.stream)
    SYNCHRONIZE(gpu.device)
    host = CLOCK() - host
    return start.elapsed_time(end) * 1e3, host * 1e6, result


def _require_joined(
    gpu: GpuTiming, arm: int, excess_us: float, measurement: Measurement, calls: int
) -> None:
    """Host time beyond the events is launch latency and synchronization, some 20–60 µs.

    Where other processes use the GPU, it is also their turn, of a call of nothing as well. Then
    nobody is blamed: their turns come and go.
    """
    event_us = statistics.median(measurement.of(arm)) * calls
    allowed_us = 200 + 0.5 * event_us
    if excess_us <= allowed_us:
        return
    nothing_us = _excess_of_nothing(gpu)
    others = foreign_processes(gpu.device.index or 0)
    if others or excess_us <= allowed_us + nothing_us:
        busy = f"; {others} other process(es) use it" if others else ""
        raise MachineFault(
            f"not judged: a synchronized call takes {excess_us:.0f} µs longer than its events "
            f"say, and one of nothing {nothing_us:.0f} µs{busy}; try again when nothing else uses "
            "this GPU"
        )
    raise TimingFault(
        f"device work goes on after the step's end event: a synchronized call takes "
        f"{excess_us:.0f} µs longer than the events say"
    )


def _excess_of_nothing(gpu: GpuTiming) -> float:
    """Median host time beyond the events of a call that does nothing, in microseconds."""
    excess: list[float] = []
    with torch.cuda.stream(gpu.stream):
        for r in range(_CALLS_OF_NOTHING):
            start, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
            gpu.preparations[0][r % 2].replay()
            SYNCHRONIZE(gpu.device)
            host = CLOCK()
            start.record(gpu.stream)
            end.record(gpu.stream)
            SYNCHRONIZE(gpu.device)
            host = CLOCK() - host
            excess.append(host * 1e6 - start.elapsed_time(end) * 1e3)
    return statistics.median(excess)
