"""Device time on a GPU: events around graph replays, or the profiler's sums without a graph.

A block is a few dozen repetitions without a host synchronization. A spin kernel leads it, so that
the host is ahead of the device and no launch gap lands between the events.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelbench.base.seeds import derive
from kernelbench.measure import probes
from kernelbench.measure.gpu_timing import CaptureError, GpuTiming, Replays
from kernelbench.measure.kernel_activity import activity_sums
from kernelbench.measure.output_verifier import OnceMore, OutputVerifier
from kernelbench.measure.results import TimedBlock
from kernelbench.measure.timing import CLOCK, EVENT, Measurement, require_untouched_timers
from kernelbench.project.problem import Kernel

_BLOCKS_PER_PROFILE = 5


def device_time(
    gpu: GpuTiming, kernels: Sequence[Kernel], order: Sequence[Sequence[int]], warmups: int
) -> Measurement:
    """Device time of each arm: graph replay, or the profiler where capture fails.

    Graphs are captured anew for every block, the arms in an order drawn by coin. Where a
    graph's temporaries and instance lie changes its time by some 0.1 %, the same way in every
    replay: left alone, two graphs of one kernel differ significantly. Drawn per block, it is
    noise between blocks, which the paired test accounts for.

    Args:
        gpu: Where it is measured, with the input sets.
        kernels: The arms.
        order: Of the arms, a list for each block.
        warmups: Untimed calls of each arm.

    Raises:
        CaptureError: If a call cannot be captured, and the profiler is not to be asked.
    """
    with torch.cuda.stream(gpu.stream):
        gpu.warm_up(kernels, min(warmups, 3 * len(gpu.sets)))
    try:
        for kernel in kernels:
            gpu.capture(kernel)
    except CaptureError as error:
        if not gpu.profiles:
            raise
        measurement = _profiled(gpu, kernels, order, warmups)
        measurement.notes.append(f"device time from the profiler: capture failed: {error}")
        return measurement
    coin = random.Random(derive(gpu.seed, "capture order"))
    replays: dict[int, Replays] = {}

    def prepare() -> None:
        replays.clear()
        arms = list(range(len(kernels)))
        coin.shuffle(arms)
        for arm in arms:
            replays[arm] = gpu.capture(kernels[arm])
        for which in range(len(gpu.sets)):
            for arm in arms:
                launch(arm, which)

    def launch(arm: int, which: int) -> Any:
        for offset in range(gpu.batch):
            graph, result = replays[arm][(which + offset) % len(gpu.sets)]
            graph.replay()
        return result

    return _queued(gpu, prepare, launch, len(kernels), order, warmups)


def _queued(
    gpu: GpuTiming,
    prepare: Callable[[], None],
    launch: OnceMore,
    arms: int,
    order: Sequence[Sequence[int]],
    warmups: int,
) -> Measurement:
    """Blocks of repetitions queued without a host synchronization inside."""
    rng = random.Random(derive(gpu.seed, "device", "order"))
    verifier = gpu.verifier(order, rng, derive(gpu.seed, "device"))
    measurement = Measurement("device", "graph")
    reset = gpu.resets_persisting()
    with torch.cuda.stream(gpu.stream):
        gpu.announce("warm-up", gpu.call_limit_s)
        prepare()
        for index in range(warmups * arms):
            which = index % len(gpu.sets)
            gpu.preparations[which][index % 2].replay()
            launch(index % arms, which)
            if index % 64 == 63:
                gpu.stream.synchronize()
        gpu.stream.synchronize()
        for b, arms_of_block in enumerate(order):
            verifier.exchange()
            prepare()
            # After the capture, so that no graph can be a copy of what its call has computed.
            verifier.renew(launch)
            gpu.announce("timed block", gpu.call_limit_s)
            begin = CLOCK()
            block = _queued_block(gpu, b, arms_of_block, launch, rng, verifier, reset)
            measurement.busy_s += CLOCK() - begin
            measurement.blocks.append(block)
    verifier.verify()
    require_untouched_timers()
    return measurement


def _queued_block(
    gpu: GpuTiming,
    b: int,
    arms_of_block: Sequence[int],
    launch: OnceMore,
    rng: random.Random,
    verifier: OutputVerifier,
    reset: bool,
) -> TimedBlock:
    block = TimedBlock(list(arms_of_block), [], [])
    events = []
    queueing = CLOCK()
    if not reset:
        probes.spin(gpu.spin_s, gpu.stream)
    if gpu.stamps is not None:
        gpu.stamps.stamp(0, gpu.stream)
    for r, arm in enumerate(arms_of_block):
        which = rng.randrange(len(gpu.sets))
        start, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
        if gpu.l2 == "cold":
            gpu.preparations[which][r % 2].replay()
        if reset:
            gpu.stream.synchronize()
            probes.reset_persisting_l2()
            probes.spin(20e-6, gpu.stream)
        start.record(gpu.stream)
        result = launch(arm, which)
        end.record(gpu.stream)
        events.append((start, end))
        block.input_set.append(which)
        last = (which + gpu.batch - 1) % len(gpu.sets)
        verifier.keep((b, r), arm, last, result)
    if gpu.stamps is not None:
        gpu.stamps.stamp(1, gpu.stream)
    queueing = CLOCK() - queueing
    gpu.stream.synchronize()
    # The spin of the next block covers the part of the queueing that flushes do not hide.
    gpu.spin_s = min(20e-3, max(0.2e-3, 0.5 * queueing))
    block.values = [start.elapsed_time(end) * 1e3 / gpu.batch for start, end in events]
    gpu.finish_block(block)
    return block


def _profiled(
    gpu: GpuTiming, kernels: Sequence[Kernel], order: Sequence[Sequence[int]], warmups: int
) -> Measurement:
    """Sum of device activities per call, from the profiler.

    Marker kernels fence each repetition on the timeline; what lies between is the step's. One
    profiler session spans several blocks, because each costs a good part of a second.
    """
    rng = random.Random(derive(gpu.seed, "profiler", "order"))
    verifier = gpu.verifier(order, rng, derive(gpu.seed, "profiler"), every=2)
    measurement = Measurement("device", "profiler")

    def launch(arm: int, which: int) -> Any:
        return kernels[arm](gpu.sets[which].inputs.data)

    with torch.cuda.stream(gpu.stream):
        gpu.warm_up(kernels, warmups)
        for first in range(0, len(order), _BLOCKS_PER_PROFILE):
            blocks = [
                TimedBlock(list(arms), [], [])
                for arms in order[first : first + _BLOCKS_PER_PROFILE]
            ]
            verifier.exchange()
            verifier.renew(launch)
            gpu.announce("profiled blocks", gpu.call_limit_s)

            def body(first: int = first, blocks: Sequence[TimedBlock] = blocks) -> None:
                begin = CLOCK()
                for offset, block in enumerate(blocks):
                    _profiled_block(gpu, first + offset, block, kernels, rng, verifier)
                gpu.stream.synchronize()
                measurement.busy_s += CLOCK() - begin

            sums = activity_sums(body, gpu.device, sum(len(block.arm) for block in blocks))
            for block in blocks:
                block.values, sums = sums[: len(block.arm)], sums[len(block.arm) :]
                gpu.finish_block(block)
            measurement.blocks += blocks
    verifier.verify()
    require_untouched_timers()
    return measurement


def _profiled_block(
    gpu: GpuTiming,
    b: int,
    block: TimedBlock,
    kernels: Sequence[Kernel],
    rng: random.Random,
    verifier: OutputVerifier,
) -> None:
    for r, arm in enumerate(block.arm):
        which = rng.randrange(len(gpu.sets))
        chosen = gpu.sets[which]
        gpu.do_untimed_setup(kernels[arm], chosen)
        if gpu.l2 == "cold":
            gpu.preparations[which][r % 2].replay()
        torch.cuda._sleep(1)
        result = kernels[arm](chosen.inputs.data)
        torch.cuda._sleep(1)
        block.input_set.append(which)
        verifier.keep((b, r), arm, which, result)
