"""Timing on a GPU: call time, device time by graph replay, and the profiler's sums.

See ``timing.py`` for what the two figures mean. A block is a few dozen repetitions without a host
synchronization. A spin kernel leads it, so that the host is ahead of the device and no launch gap
lands between the events.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kernelbench.base.errors import MachineFault
from kernelbench.base.seeds import derive
from kernelbench.executors.callables import beforehand_of, with_beforehand
from kernelbench.measure import probes
from kernelbench.measure.correctness import Announce
from kernelbench.measure.kernel_activity import activity_sums
from kernelbench.measure.outcomes import TimedBlock
from kernelbench.measure.timing import (
    CLOCK,
    EVENT,
    SYNCHRONIZE,
    InputSet,
    Measurement,
    OnBlock,
    SampledOutputs,
    TimingFault,
    ValueExchange,
    require_untouched_timers,
)
from kernelbench.project.problem import Kernel, Problem
from kernelbench.records.run_record import L2Mode, Metric

CALLS_PER_COMPETITION_REP = 15
#: Per input set: the graph of one call, and the outputs that it writes.
Replays = list[tuple[torch.cuda.CUDAGraph, list[torch.Tensor]]]
_BLOCKS_PER_PROFILE = 5
#: Enough for a median, where other processes take their turns.
_CALLS_OF_NOTHING = 40


class _CaptureError(RuntimeError):
    """A call cannot be captured in a CUDA graph."""


@dataclass
class GpuTimer:
    """Times arms on one GPU.

    Args:
        device: ``cuda:N``.
        sets: Input sets shared by all arms.
        l2: ``cold`` or ``warm``.
        seed: For the order of input sets and the sampled outputs.
        batch: Graph replays in one event pair, each on another input set; times are per replay.
    """

    device: torch.device
    problem: Problem
    shape: Any
    input_class: str
    sets: Sequence[InputSet]
    l2: L2Mode
    seed: int
    announce: Announce
    call_limit_s: float
    clocks: Callable[[], tuple[float | None, tuple[str, ...]]] | None = None
    on_block: OnBlock | None = None
    batch: int = 1

    def __post_init__(self) -> None:
        self.stream = torch.cuda.Stream(self.device)
        self.l2_bytes = torch.cuda.get_device_properties(self.device).L2_cache_size
        self.flush_bytes = 2 * self.l2_bytes if self.l2 == "cold" else 0
        words = max(self.flush_bytes, 4) // 4
        self._write = torch.empty(words, dtype=torch.int32, device=self.device)
        self._read = torch.ones(words, dtype=torch.int32, device=self.device)
        self._sum = torch.zeros((), dtype=torch.int64, device=self.device)
        self._stamps = probes.ClockStamps.create(self.device)
        # One memory pool for every graph: temporaries of all arms lie at the same addresses. The
        # graphs of ``_prepare`` live as long as the timer and keep the pool alive.
        self._pool = torch.cuda.graph_pool_handle()
        self._prepare = self._capture_prepare()
        self._spin_s = 2e-3

    def _capture_prepare(self) -> list[list[torch.cuda.CUDAGraph]]:
        """Per input set and poison: a graph that poisons the outputs and flushes the L2."""
        graphs = []
        for chosen in self.sets:
            of_set = []
            for poison in chosen.poisons:
                self._fill(chosen, poison)
                torch.cuda.synchronize(self.device)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self._pool, stream=self.stream):
                    self._fill(chosen, poison)
                of_set.append(graph)
            graphs.append(of_set)
        return graphs

    def _fill(self, chosen: InputSet, poison: torch.Tensor) -> None:
        chosen.inputs.arena.fill(poison)
        if self.flush_bytes:
            self._write.fill_(1)
            torch.sum(self._read, dim=0, out=self._sum)

    def _reset_persisting(self) -> bool:
        """Whether lines that a step marked as persisting have to be reset before each rep."""
        return self.l2 == "cold" and (probes.persisting_l2_limit() or 0) > 0

    def capture(self, kernel: Kernel) -> Replays:
        """One graph per input set, without what a peer wants done beforehand.

        Raises:
            _CaptureError: If the call cannot be captured, with the reason.
        """
        graphs = []
        for chosen in self.sets:
            self.announce("graph capture", self.call_limit_s)
            self._do_beforehand(kernel, chosen)
            try:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self._pool, stream=self.stream):
                    result = kernel(chosen.inputs.data)
            except Exception as error:
                torch.cuda.synchronize(self.device)
                raise _CaptureError(" ".join(str(error).split()).split(". ")[0][:120]) from error
            graphs.append((graph, self.problem.outputs_of(result, chosen.inputs)))
        return graphs

    def _do_beforehand(self, kernel: Kernel, chosen: InputSet) -> None:
        """What a peer wants done before its call, of which no part is timed."""
        if (beforehand := beforehand_of(kernel)) is not None:
            torch.cuda.synchronize(self.device)
            with torch.cuda.stream(self.stream):
                beforehand(chosen.inputs.data)
            torch.cuda.synchronize(self.device)

    # -- device time --------------------------------------------------------------------------

    def device_time(
        self, kernels: Sequence[Kernel], order: Sequence[Sequence[int]], warmups: int
    ) -> Measurement:
        """Device time of each arm: graph replay, or the profiler where capture fails.

        Graphs are captured anew for every block, the arms in an order drawn by coin. Where a
        graph's temporaries and instance lie changes its time by some 0.1 %, the same way in every
        replay: left alone, two graphs of one kernel differ significantly. Drawn per block, it is
        noise between blocks, which the paired test accounts for.
        """
        with torch.cuda.stream(self.stream):
            self._warm_up(kernels, min(warmups, 3 * len(self.sets)))
        try:
            for kernel in kernels:
                self.capture(kernel)
        except _CaptureError as error:
            measurement = self._profiled(kernels, order, warmups)
            measurement.notes.append(f"device time from the profiler: capture failed: {error}")
            return measurement
        coin = random.Random(derive(self.seed, "capture order"))
        replays: dict[int, Replays] = {}

        def prepare() -> None:
            replays.clear()
            arms = list(range(len(kernels)))
            coin.shuffle(arms)
            for arm in arms:
                replays[arm] = self.capture(kernels[arm])
            for which in range(len(self.sets)):
                for arm in arms:
                    launch(arm, which)

        def launch(arm: int, which: int) -> Any:
            for offset in range(self.batch):
                graph, outputs = replays[arm][(which + offset) % len(self.sets)]
                graph.replay()
            return outputs

        return self._queued("device", "graph", prepare, launch, len(kernels), order, warmups)

    def _queued(
        self,
        metric: Metric,
        method: str,
        prepare: Callable[[], None],
        launch: Callable[[int, int], Any],
        arms: int,
        order: Sequence[Sequence[int]],
        warmups: int,
    ) -> Measurement:
        """Blocks of repetitions queued without a host synchronization inside."""
        rng = random.Random(derive(self.seed, metric, "order"))
        sampled = SampledOutputs(order, rng)
        measurement = Measurement(metric, method)
        reset = self._reset_persisting()
        with torch.cuda.stream(self.stream):
            self.announce("warm-up", self.call_limit_s)
            prepare()
            for index in range(warmups * arms):
                which = index % len(self.sets)
                self._prepare[which][index % 2].replay()
                launch(index % arms, which)
                if index % 64 == 63:
                    self.stream.synchronize()
            self.stream.synchronize()
            exchange = ValueExchange(self.sets, derive(self.seed, metric))
            for b, arms_of_block in enumerate(order):
                exchange()
                prepare()
                self.announce("timed block", self.call_limit_s)
                begin = CLOCK()
                block = self._queued_block(b, arms_of_block, launch, rng, sampled, reset)
                measurement.busy_s += CLOCK() - begin
                measurement.blocks.append(block)
        sampled.verify(self.problem, self.shape, self.input_class)
        require_untouched_timers()
        return measurement

    def _queued_block(
        self,
        b: int,
        arms_of_block: Sequence[int],
        launch: Callable[[int, int], Any],
        rng: random.Random,
        sampled: SampledOutputs,
        reset: bool,
    ) -> TimedBlock:
        block = TimedBlock(list(arms_of_block), [], [])
        events = []
        queueing = CLOCK()
        if not reset:
            probes.spin(self._spin_s, self.stream)
        if self._stamps is not None:
            self._stamps.stamp(0, self.stream)
        for r, arm in enumerate(arms_of_block):
            which = rng.randrange(len(self.sets))
            start, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
            if self.l2 == "cold":
                self._prepare[which][r % 2].replay()
            if reset:
                self.stream.synchronize()
                probes.reset_persisting_l2()
                probes.spin(20e-6, self.stream)
            start.record(self.stream)
            outputs = launch(arm, which)
            end.record(self.stream)
            events.append((start, end))
            block.input_set.append(which)
            last = (which + self.batch - 1) % len(self.sets)
            sampled.keep((b, r), arm, self.sets[last], outputs)
        if self._stamps is not None:
            self._stamps.stamp(1, self.stream)
        queueing = CLOCK() - queueing
        self.stream.synchronize()
        # The spin of the next block covers the part of the queueing that flushes do not hide.
        self._spin_s = min(20e-3, max(0.2e-3, 0.5 * queueing))
        block.time_us = [start.elapsed_time(end) * 1e3 / self.batch for start, end in events]
        self._finish_block(block)
        return block

    def _finish_block(self, block: TimedBlock) -> None:
        """Read the clock at the block's end and hand the block on."""
        if self._stamps is not None:
            block.sm_mhz = self._stamps.sm_mhz()
        if self.clocks is not None:
            mhz, block.throttle = self.clocks()
            block.sm_mhz = block.sm_mhz or mhz
        if self.on_block is not None:
            self.on_block(block)

    # -- call time ----------------------------------------------------------------------------

    def call_time(
        self,
        kernels: Sequence[Kernel],
        order: Sequence[Sequence[int]],
        warmups: int,
        mode: Literal["single", "competition"] = "single",
    ) -> Measurement:
        """Time of one Python call on a drained queue (or of 15 in one event pair, per call).

        Raises:
            TimingFault: If a timed output is wrong, or work of the step goes on after its end event
                (host time to a device-wide synchronization exceeds event time by far).
            MachineFault: If the second cannot be told, because a call of nothing takes long, too.
        """
        rng = random.Random(derive(self.seed, "call", "order"))
        sampled = SampledOutputs(order, rng)
        method = "events" if mode == "single" else "competition"
        measurement = Measurement("call", method)
        calls = 1 if mode == "single" else CALLS_PER_COMPETITION_REP
        reset = self._reset_persisting()
        excess: list[list[float]] = [[] for _ in kernels]
        with torch.cuda.stream(self.stream):
            self._warm_up(kernels, warmups)
            begin_s = CLOCK()
            exchange = ValueExchange(self.sets, derive(self.seed, "call"))
            for b, arms_of_block in enumerate(order):
                exchange()
                block = TimedBlock(list(arms_of_block), [], [])
                self.announce("timed block", self.call_limit_s)
                for r, arm in enumerate(arms_of_block):
                    which = rng.randrange(len(self.sets))
                    start, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
                    for call in range(calls):
                        self._do_beforehand(
                            kernels[arm], self.sets[(which + call) % len(self.sets)]
                        )
                    if self.l2 == "cold":
                        self._prepare[which][r % 2].replay()
                    SYNCHRONIZE(self.device)
                    if reset:
                        probes.reset_persisting_l2()
                    host = CLOCK()
                    start.record(self.stream)
                    for call in range(calls):
                        index = (which + call) % len(self.sets)
                        result = kernels[arm](self.sets[index].inputs.data)
                    end.record(self.stream)
                    SYNCHRONIZE(self.device)
                    host = CLOCK() - host
                    elapsed_us = start.elapsed_time(end) * 1e3
                    excess[arm].append(host * 1e6 - elapsed_us)
                    block.time_us.append(elapsed_us / calls)
                    block.input_set.append(which)
                    chosen = self.sets[index]
                    outputs = self.problem.outputs_of(result, chosen.inputs)
                    sampled.keep((b, r), arm, chosen, outputs)
                self._finish_block(block)
                measurement.blocks.append(block)
            measurement.busy_s = CLOCK() - begin_s
        sampled.verify(self.problem, self.shape, self.input_class)
        require_untouched_timers()
        for arm, values in enumerate(excess):
            self._require_joined(arm, statistics.median(values), measurement, calls)
        return measurement

    def _require_joined(
        self, arm: int, excess_us: float, measurement: Measurement, calls: int
    ) -> None:
        """Host time beyond the events is launch latency and synchronization, some 20–60 µs.

        Where other processes use the GPU, it is also their turn, of a call of nothing as well.
        """
        event_us = statistics.median(measurement.of(arm)) * calls
        allowed_us = 200 + 0.5 * event_us
        if excess_us <= allowed_us:
            return
        nothing_us = self._excess_of_nothing()
        if excess_us <= allowed_us + nothing_us:
            raise MachineFault(
                f"not judged: a synchronized call takes {excess_us:.0f} µs longer than its events "
                f"say, and one of nothing {nothing_us:.0f} µs; try again when nothing else uses "
                "this GPU"
            )
        raise TimingFault(
            f"device work goes on after the step's end event: a synchronized call takes "
            f"{excess_us:.0f} µs longer than the events say"
        )

    def _excess_of_nothing(self) -> float:
        """Median host time beyond the events of a call that does nothing, in microseconds."""
        excess: list[float] = []
        with torch.cuda.stream(self.stream):
            for r in range(_CALLS_OF_NOTHING):
                start, end = EVENT(enable_timing=True), EVENT(enable_timing=True)
                self._prepare[0][r % 2].replay()
                SYNCHRONIZE(self.device)
                host = CLOCK()
                start.record(self.stream)
                end.record(self.stream)
                SYNCHRONIZE(self.device)
                host = CLOCK() - host
                excess.append(host * 1e6 - start.elapsed_time(end) * 1e3)
        return statistics.median(excess)

    # -- profiler -----------------------------------------------------------------------------

    def _profiled(
        self, kernels: Sequence[Kernel], order: Sequence[Sequence[int]], warmups: int
    ) -> Measurement:
        """Sum of device activities per call, from the profiler.

        Marker kernels fence each repetition on the timeline; what lies between is the step's. One
        profiler session spans several blocks, because each costs a good part of a second.
        """
        rng = random.Random(derive(self.seed, "profiler", "order"))
        sampled = SampledOutputs(order, rng)
        measurement = Measurement("device", "profiler")
        with torch.cuda.stream(self.stream):
            self._warm_up(kernels, warmups)
            exchange = ValueExchange(self.sets, derive(self.seed, "profiler"), every=2)
            for first in range(0, len(order), _BLOCKS_PER_PROFILE):
                blocks = [
                    TimedBlock(list(arms), [], [])
                    for arms in order[first : first + _BLOCKS_PER_PROFILE]
                ]
                exchange()
                self.announce("profiled blocks", self.call_limit_s)

                def body(first: int = first, blocks: Sequence[TimedBlock] = blocks) -> None:
                    begin = CLOCK()
                    for offset, block in enumerate(blocks):
                        self._profiled_block(first + offset, block, kernels, rng, sampled)
                    self.stream.synchronize()
                    measurement.busy_s += CLOCK() - begin

                sums = activity_sums(body, self.device, sum(len(block.arm) for block in blocks))
                for block in blocks:
                    block.time_us, sums = sums[: len(block.arm)], sums[len(block.arm) :]
                    self._finish_block(block)
                measurement.blocks += blocks
        sampled.verify(self.problem, self.shape, self.input_class)
        require_untouched_timers()
        return measurement

    def _profiled_block(
        self,
        b: int,
        block: TimedBlock,
        kernels: Sequence[Kernel],
        rng: random.Random,
        sampled: SampledOutputs,
    ) -> None:
        for r, arm in enumerate(block.arm):
            which = rng.randrange(len(self.sets))
            chosen = self.sets[which]
            self._do_beforehand(kernels[arm], chosen)
            if self.l2 == "cold":
                self._prepare[which][r % 2].replay()
            torch.cuda._sleep(1)
            result = kernels[arm](chosen.inputs.data)
            torch.cuda._sleep(1)
            block.input_set.append(which)
            sampled.keep((b, r), arm, chosen, self.problem.outputs_of(result, chosen.inputs))

    def _warm_up(self, kernels: Sequence[Kernel], warmups: int) -> None:
        """``warmups`` plain calls of each arm, in turn."""
        for index in range(warmups * len(kernels)):
            self.announce("warm-up", self.call_limit_s)
            kernel = with_beforehand(kernels[index % len(kernels)])
            kernel(self.sets[index % len(self.sets)].inputs.data)
        torch.cuda.synchronize(self.device)
