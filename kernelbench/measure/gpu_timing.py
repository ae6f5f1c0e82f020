"""What every way of timing on a GPU shares: the stream, the flush of the L2, graphs and clocks.

See ``timing.py`` for what the two figures mean, ``gpu_device_time.py`` and ``gpu_call_time.py`` for
how each is measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from kernelbench.kinds.callables import untimed_setup_of, with_untimed_setup
from kernelbench.measure import probes
from kernelbench.measure.correctness import Announce
from kernelbench.measure.output_verifier import LocalVerifier, OutputVerifier
from kernelbench.measure.results import TimedBlock
from kernelbench.measure.timing import Flush, InputSet, OnBlock
from kernelbench.project.problem import Case, Kernel
from kernelbench.records.run_record import L2Mode

#: Per input set: the graph of one call, and what the call returned.
Replays = list[tuple[torch.cuda.CUDAGraph, Any]]


class CaptureError(RuntimeError):
    """A call cannot be captured in a CUDA graph."""


@dataclass
class GpuTiming:
    """One GPU on which arms are timed.

    Args:
        device: ``cuda:N``.
        sets: Input sets shared by all arms.
        l2: ``cold`` or ``warm``.
        seed: For the order of input sets and the sampled outputs.
        batch: Graph replays in one event pair, each on another input set; times are per replay.
    """

    device: torch.device
    case: Case
    sets: Sequence[InputSet]
    l2: L2Mode
    seed: int
    announce: Announce
    call_limit_s: float
    clocks: Callable[[], tuple[float | None, tuple[str, ...]]] | None = None
    on_block: OnBlock | None = None
    batch: int = 1
    #: Whether calls that cannot be captured are timed by the profiler.
    profiles: ClassVar[bool] = True
    #: Seconds that the spin kernel before the next block takes.
    spin_s: float = field(default=2e-3, init=False)

    def __post_init__(self) -> None:
        self.stream = torch.cuda.Stream(self.device)
        self._flush = Flush(self.device, self.l2)
        self.stamps = probes.ClockStamps.create(self.device)
        # One memory pool for every graph: temporaries of all arms lie at the same addresses. The
        # graphs of ``preparations`` live as long as the timer and keep the pool alive.
        self._pool = torch.cuda.graph_pool_handle()
        self.preparations = self._capture_preparations()

    def _capture_preparations(self) -> list[list[torch.cuda.CUDAGraph]]:
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
        self._flush()

    def resets_persisting(self) -> bool:
        """Whether lines that a step marked as persisting have to be reset before each rep."""
        return self.l2 == "cold" and (probes.persisting_l2_limit() or 0) > 0

    def capture(self, kernel: Kernel) -> Replays:
        """One graph per input set, without a peer's untimed setup; CaptureError with the reason."""
        graphs = []
        for chosen in self.sets:
            self.announce("graph capture", self.call_limit_s)
            self.do_untimed_setup(kernel, chosen)
            try:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self._pool, stream=self.stream):
                    result = kernel(chosen.inputs.data)
            except Exception as error:
                torch.cuda.synchronize(self.device)
                raise CaptureError(" ".join(str(error).split()).split(". ")[0][:120]) from error
            graphs.append((graph, result))
        return graphs

    def capture_calls(
        self, kernel: Kernel, count: int, before: Callable[[], None] | None = None
    ) -> tuple[torch.cuda.CUDAGraph, Any]:
        """One graph of ``count`` calls over the input sets in turn, and what the last returned.

        Args:
            kernel: What is called.
            count: Calls.
            before: Launches what goes before each call.

        Raises:
            CaptureError: If a call cannot be captured, with the reason.
        """
        for chosen in self.sets:
            self.do_untimed_setup(kernel, chosen)
        self.announce("graph capture", self.call_limit_s)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self.stream):
                for index in range(count):
                    if before is not None:
                        before()
                    result = kernel(self.sets[index % len(self.sets)].inputs.data)
        except Exception as error:
            torch.cuda.synchronize(self.device)
            raise CaptureError(" ".join(str(error).split()).split(". ")[0][:120]) from error
        return graph, result

    def do_untimed_setup(self, kernel: Kernel, chosen: InputSet) -> None:
        """What a peer wants done before its call, of which no part is timed."""
        if (setup := untimed_setup_of(kernel)) is not None:
            torch.cuda.synchronize(self.device)
            with torch.cuda.stream(self.stream):
                setup(chosen.inputs.data)
            torch.cuda.synchronize(self.device)

    def verifier(
        self, order: Sequence[Sequence[int]], rng: random.Random, seed: int, every: int = 5
    ) -> OutputVerifier:
        """Who looks at the timed outputs of a series.

        Args:
            order: Of the arms, a list for each block.
            rng: Draws the repetitions that are looked at, and then the order of the sets.
            seed: For when the sets get other values, before about one block in ``every``.
            every: In blocks, how often values are exchanged, about.
        """
        return LocalVerifier(self.sets, self.case, order, rng, seed, every)

    def finish_block(self, block: TimedBlock) -> None:
        """Read the clock at the block's end and hand the block on."""
        if self.stamps is not None:
            block.sm_mhz = self.stamps.sm_mhz()
        if self.clocks is not None:
            mhz, block.throttle = self.clocks()
            block.sm_mhz = block.sm_mhz or mhz
        if self.on_block is not None:
            self.on_block(block)

    def warm_up(self, kernels: Sequence[Kernel], warmups: int) -> None:
        """``warmups`` plain calls of each arm, in turn."""
        for index in range(warmups * len(kernels)):
            self.announce("warm-up", self.call_limit_s)
            kernel = with_untimed_setup(kernels[index % len(kernels)])
            kernel(self.sets[index % len(self.sets)].inputs.data)
        torch.cuda.synchronize(self.device)
