"""Time of one call on a GPU between other kernels, as in a model's graph.

A graph has, eight times, a spacer and a call; another has the spacers alone. What a call takes is
the difference of the two, which run one behind the other in every repetition. The spacer is a
product of two bfloat16 matrices and then a sum over more bytes than most L2s hold: so a call finds
the L2 as neighbours leave it, begins when they end, and the next neighbour begins when it ends.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from kernelbench.base.seeds import derive
from kernelbench.measure import probes
from kernelbench.measure.gpu_timing import CaptureError, GpuTiming
from kernelbench.measure.output_verifier import OutputVerifier
from kernelbench.measure.results import TimedBlock
from kernelbench.measure.timing import CLOCK, EVENT, Measurement, require_untouched_timers
from kernelbench.project.problem import Kernel

#: Calls of a graph, each behind a spacer.
CALLS = 8
#: The spacer: rows and columns of the product, bytes of the sum.
PRODUCT, BYTES = 2048, 64 << 20


class _Spacer:
    """The kernels before each call."""

    def __init__(self, device: torch.device) -> None:
        self._one = torch.ones(PRODUCT, PRODUCT, dtype=torch.bfloat16, device=device)
        self._product = torch.empty_like(self._one)
        self._bytes = torch.zeros(BYTES // 4, dtype=torch.int32, device=device)
        self._sum = torch.zeros((), dtype=torch.int64, device=device)

    def __call__(self) -> None:
        torch.mm(self._one, self._one, out=self._product)
        torch.sum(self._bytes, dim=0, out=self._sum)


def inside(
    gpu: GpuTiming, kernels: Sequence[Kernel], order: Sequence[Sequence[int]], warmups: int
) -> Measurement:
    """Microseconds of one call of each arm inside a graph of other kernels.

    Graphs are captured anew for every block, as those of ``device_time`` are.

    Args:
        gpu: Where it is measured, with the input sets.
        kernels: The arms.
        order: Of the arms, a list for each block.
        warmups: Untimed calls of each arm.

    Raises:
        TimingFault: If an output is wrong.
    """
    rng = random.Random(derive(gpu.seed, "inside", "order"))
    verifier = gpu.verifier(order, rng, derive(gpu.seed, "inside"))
    measurement = Measurement("inside", "graph")
    with torch.cuda.stream(gpu.stream):
        gpu.warm_up(kernels, min(warmups, 3 * len(gpu.sets)))
        spacer = _Spacer(gpu.device)
        spacer()  # loads its code
        gpu.stream.synchronize()
        nothing, _ = gpu.capture_calls(_none, CALLS, before=spacer)
        for b, arms in enumerate(order):
            verifier.exchange()
            try:
                graphs = {
                    arm: gpu.capture_calls(kernels[arm], CALLS, before=spacer)
                    for arm in rng.sample(sorted(set(arms)), len(set(arms)))
                }
            except CaptureError as error:
                return Measurement("inside", "none", notes=[f"no time inside a graph: {error}"])
            for graph, _ in graphs.values():
                graph.replay()
            gpu.announce("timed block", gpu.call_limit_s)
            begin = CLOCK()
            block = _block(gpu, b, arms, graphs, nothing, verifier)
            measurement.busy_s += CLOCK() - begin
            measurement.blocks.append(block)
    verifier.verify()
    require_untouched_timers()
    measurement.notes.append(
        f"inside a graph: behind a product of {PRODUCT}×{PRODUCT} and {BYTES >> 20} MiB read"
    )
    return measurement


def _block(
    gpu: GpuTiming,
    b: int,
    arms: Sequence[int],
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, Any]],
    nothing: torch.cuda.CUDAGraph,
    verifier: OutputVerifier,
) -> TimedBlock:
    block = TimedBlock(list(arms), [], [])
    last = (CALLS - 1) % len(gpu.sets)
    times = []
    queueing = CLOCK()
    probes.spin(gpu.spin_s, gpu.stream)
    if gpu.stamps is not None:
        gpu.stamps.stamp(0, gpu.stream)
    for r, arm in enumerate(arms):
        graph, result = graphs[arm]
        for poisoning in gpu.preparations:
            poisoning[r % 2].replay()
        begin, between, end = (EVENT(enable_timing=True) for _ in range(3))
        begin.record(gpu.stream)
        graph.replay()
        between.record(gpu.stream)
        nothing.replay()
        end.record(gpu.stream)
        times.append((begin, between, end))
        block.input_set.append(last)
        verifier.keep((b, r), arm, last, result)
    if gpu.stamps is not None:
        gpu.stamps.stamp(1, gpu.stream)
    queueing = CLOCK() - queueing
    gpu.stream.synchronize()
    gpu.spin_s = min(20e-3, max(0.2e-3, 0.5 * queueing))
    block.values = [
        (begin.elapsed_time(between) - between.elapsed_time(end)) * 1e3 / CALLS
        for begin, between, end in times
    ]
    gpu.finish_block(block)
    return block


def _none(_data: Any) -> None:
    """No call: what the spacers take alone."""
