"""Timing one or two arms under one protocol.

Two figures (design §6). *Call* time is what a Python caller sees: the queue is drained, then event,
Python call, event, so host overhead that the device waits for is in it. *Device* time is one replay
of the captured call between events; where the call cannot be captured, the sum of its device
activities from the profiler.

Cold L2 (the default): before every repetition the outputs are poisoned, then twice the L2's size is
written and another twice its size is read, so that neither input lines nor dirty lines are left.
Each repetition takes one of several input sets, drawn at random. Randomly chosen timed outputs are
checked afterwards: a step that is right only when it is not timed is found.

This module holds what both kinds of device share, and timing on the CPU; the rest is in
``gpu_timing.py``, ``gpu_device_time.py`` and ``gpu_call_time.py``.
"""

from __future__ import annotations

import contextlib
import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelbench.base.seeds import derive
from kernelbench.measure.correctness import Announce
from kernelbench.measure.results import TimedBlock
from kernelbench.project.arena import bits
from kernelbench.project.problem import Case, Inputs, Kernel, copied, interchangeable, refill
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import L2Mode

#: Bound when this module is imported, before any step is: a step that replaces them is found.
EVENT = torch.cuda.Event
SYNCHRONIZE = torch.cuda.synchronize
CLOCK = time.perf_counter
_ELAPSED = torch.cuda.Event.elapsed_time

#: Output samples that are checked per arm and metric, besides the last repetition.
CHECKED_REPS = 3
_MAX_INPUT_BYTES = 6 * 2**30
_MAX_INPUT_SETS = 4


class TimingFault(Exception):
    """A timed output was wrong, or the step's work escaped the timer; one line."""


def require_untouched_timers() -> None:
    """Raise :class:`TimingFault` if a step has replaced what measures it."""
    if (
        torch.cuda.Event is not EVENT
        or torch.cuda.synchronize is not SYNCHRONIZE
        or time.perf_counter is not CLOCK
        or torch.cuda.Event.elapsed_time is not _ELAPSED
    ):
        raise TimingFault("the step replaced a timer function")


class Flush:
    """Empties the L2 of a GPU, if ``cold``: twice its size is written, and then as much is read."""

    def __init__(self, device: torch.device, l2: L2Mode = "cold") -> None:
        self._cold = l2 == "cold"
        size = 2 * torch.cuda.get_device_properties(device).L2_cache_size if self._cold else 0
        self._write = torch.empty(size // 4, dtype=torch.int32, device=device)
        self._read = torch.ones(size // 4, dtype=torch.int32, device=device)
        self._sum = torch.zeros((), dtype=torch.int64, device=device)

    def __call__(self) -> None:
        """Queue it in the current stream."""
        if self._cold:
            self._write.fill_(1)
            torch.sum(self._read, dim=0, out=self._sum)


@dataclass
class InputSet:
    """One set of operands with its references, used by every arm in turn."""

    inputs: Inputs
    reference: Any
    poisons: list[torch.Tensor]


#: Told about each finished block, so that an interrupted run keeps what it measured.
OnBlock = Callable[[TimedBlock], None]


@dataclass
class Measurement:
    """All blocks of one metric, with how they were taken.

    Where there is no time that could be believed, there are none, and a note says why.
    """

    metric: Metric
    method: str
    blocks: list[TimedBlock] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    busy_s: float = 0.0

    def of(self, arm: int) -> list[float]:
        """Every sample of one arm, in order, in the metric's unit."""
        return [t for block in self.blocks for t in block.of(arm)]

    def to_json(self) -> dict[str, Any]:
        """The raw samples as JSON, in order, with arm, block, input set and clock."""
        return {
            "metric": self.metric,
            "method": self.method,
            "blocks": [block.to_json(self.metric) for block in self.blocks],
        }


def draw_input_sets(case: Case, seed: int, device: str) -> list[InputSet]:
    """Up to four input sets with references, as many as fit in 6 GiB.

    Args:
        case: What is drawn.
        seed: From which that of each set is derived.
        device: ``cpu`` or ``cuda:N``.
    """
    sets: list[InputSet] = []
    used = 0
    while len(sets) < (_MAX_INPUT_SETS if device != "cpu" else 2):
        inputs = case.draw(derive(seed, "timed", case.input_class, len(sets)), device)
        used += sum(operand.numel() * operand.element_size() for operand in inputs.operands)
        poisons = [
            inputs.arena.draw_poison(derive(seed, "timed poison", len(sets), i)) for i in (0, 1)
        ]
        sets.append(InputSet(inputs, case.reference(inputs), poisons))
        if used > _MAX_INPUT_BYTES:
            break
    return sets


def abba(blocks: int, quads: int, rng: random.Random) -> list[list[int]]:
    """Arm order per block: ``quads`` quads, each ABBA or BAAB by coin; drift cancels in a quad.

    Args:
        blocks: How many lists.
        quads: Quads in each.
        rng: Tosses the coins.
    """
    order = []
    for _ in range(blocks):
        block: list[int] = []
        for _ in range(quads):
            block += [0, 1, 1, 0] if rng.random() < 0.5 else [1, 0, 0, 1]
        order.append(block)
    return order


def single_arm(reps: int, per_block: int = 20) -> list[list[int]]:
    """Order for one arm: blocks of ``per_block`` repetitions, ``reps`` in all."""
    return [[0] * min(per_block, reps - done) for done in range(0, reps, per_block)]


@dataclass
class Deferred:
    """A reference that is computed if it is asked for, from inputs that no step has seen."""

    case: Case
    inputs: Inputs

    def __call__(self) -> Any:
        """The reference."""
        return self.case.reference(self.inputs)


class FreshValues:
    """New values for every timed call, so that no result of an earlier one is right.

    For submissions, which are judged from another process: whoever keeps results by the values, or
    by a few bytes of them, keeps what does not come again. Where a problem's seeds give data of
    different forms, the sets keep their values, and :attr:`refused` is True.
    """

    def __init__(self, case: Case, seed: int, announce: Announce) -> None:
        self._case = case
        self._seed = seed
        self._announce = announce
        self._drawn = 0
        self.spent_s = 0.0  #: Seconds that drawing has taken.
        self.refused = False

    def __call__(self, chosen: InputSet) -> None:
        """Give a set values that no call has had."""
        begin = CLOCK()
        limit_s = getattr(self._case.problem, "hook_limit_s", 600.0)
        self._announce("timed values", limit_s, "problem")
        self._drawn += 1
        seed = derive(self._seed, "timed values", self._drawn)
        drawn = self._case.draw(seed, str(chosen.inputs.arena.flat.device))
        if interchangeable(chosen.inputs, drawn):
            refill(chosen.inputs, drawn)
            chosen.reference = Deferred(self._case, drawn)
        else:
            self.refused = True
        self.spent_s += CLOCK() - begin


class ValueExchange:
    """Swaps the values of two input sets now and then, in place, between blocks.

    A result that a step kept for an address is wrong from then on, and the sampled outputs show it.
    It happens once before the first block, after the warm-ups, and again before about one block in
    ``every``.
    """

    def __init__(self, sets: Sequence[InputSet], seed: int, every: int = 5) -> None:
        self._sets = sets
        self._every = every
        self._rng = random.Random(derive(seed, "value exchange"))
        self._first = True

    def __call__(self) -> None:
        """Perhaps exchange; on a GPU, in the current stream, which must be drained."""
        due = self._first or self._rng.randrange(self._every) == 0
        self._first = False
        if not due or len(self._sets) < 2:
            return
        one, other = self._rng.sample(list(self._sets), 2)
        if not interchangeable(one.inputs, other.inputs):
            return
        for a, b in zip(one.inputs.operands, other.inputs.operands, strict=True):
            kept = bits(a).clone()
            bits(a).copy_(bits(b))
            bits(b).copy_(kept)
        one.reference, other.reference = other.reference, one.reference


class SampledOutputs:
    """Copies of the outputs of unpredictable repetitions, checked after the loop."""

    def __init__(self, order: Sequence[Sequence[int]], rng: random.Random) -> None:
        positions: dict[int, list[tuple[int, int]]] = {}
        for b, block in enumerate(order):
            for r, arm in enumerate(block):
                positions.setdefault(arm, []).append((b, r))
        self._chosen: set[tuple[int, int]] = set()
        for of_arm in positions.values():
            self._chosen |= set(rng.sample(of_arm, min(CHECKED_REPS, len(of_arm))))
            self._chosen.add(of_arm[-1])
        self._kept: list[tuple[int, Any, list[torch.Tensor]]] = []
        self._last: dict[int, tuple[int, Any, list[torch.Tensor]]] = {}

    def wants(self, position: tuple[int, int]) -> bool:
        """Whether this repetition was chosen."""
        return position in self._chosen

    def keep(self, position: tuple[int, int], arm: int, chosen: InputSet, result: Any) -> None:
        """Queue a copy of the outputs if this repetition was chosen.

        Args:
            position: Block, and place in it.
            arm: Which arm.
            chosen: The input set.
            result: The outputs of the repetition.
        """
        if self.wants(position):
            self._kept.append((arm, chosen.reference, copied(result)))

    def keep_last(self, arm: int, chosen: InputSet, result: Any) -> None:
        """Keep the arm's newest outputs, for a series that may end anywhere.

        Args:
            arm: Which arm.
            chosen: The input set.
            result: The outputs of the repetition.
        """
        self._last[arm] = (arm, chosen.reference, copied(result))

    def verify(self, case: Case) -> None:
        """Compare every kept output; raises :class:`TimingFault` on the first wrong one."""
        kept = [("the last timed output", *entry) for entry in self._last.values()]
        kept += [("a timed output", *entry) for entry in self._kept]
        for what, arm, reference, outputs in kept:
            if isinstance(reference, Deferred):
                reference = reference()
            verdict = case.compare(outputs, reference)
            if not verdict.ok:
                which = f" of arm {arm}" if arm else ""
                raise TimingFault(f"{what}{which} is wrong: {verdict.reason}")


def time_on_cpu(
    arms: Sequence[Kernel],
    order: Sequence[Sequence[int]],
    sets: Sequence[InputSet],
    case: Case,
    *,
    seed: int,
    budget_s: float,
    warmups: int,
    announce: Announce,
    call_limit_s: float,
    on_block: OnBlock | None = None,
) -> Measurement:
    """Wall-clock call time on the CPU, within a time budget that drops whole blocks.

    The budget also bounds the warm-ups (at most a quarter of it). At least one block is measured.

    Args:
        arms: The callables.
        order: Of the arms, a list for each block.
        sets: Inputs with references.
        case: Of the inputs; compares outputs.
        seed: Of what is checked and exchanged.
        budget_s: Seconds of calls, warm-ups included.
        warmups: Untimed calls of each arm, at most.
        announce: Told of each phase and its limit.
        call_limit_s: Seconds after which a call counts as hung.
        on_block: Given each block as it ends.
    """
    rng = random.Random(derive(seed, "order"))
    sampled = SampledOutputs(order, rng)
    measurement = Measurement("call", "wall")
    # A submission's, in another process, are timed there.
    elsewhere = [kernel for kernel in arms if hasattr(kernel, "timed")]
    timed = [getattr(kernel, "timed", None) or _timed_here(kernel) for kernel in arms]
    fresh = FreshValues(case, seed, announce)
    started = CLOCK()
    for index in range(warmups):
        arm = index % len(arms)
        if elsewhere:
            fresh(sets[index % len(sets)])
        announce("warm-up", call_limit_s)
        arms[arm](sets[index % len(sets)].inputs.data)
        if CLOCK() - started > budget_s / 4 and index + 1 >= len(arms):
            break
    exchange = ValueExchange(sets, seed, every=max(5, len(order) // 4))
    started = CLOCK()
    for b, arms_of_block in enumerate(order):
        if not elsewhere:
            before = CLOCK()
            exchange()
            started += CLOCK() - before  # not part of the budget
        block = TimedBlock([], [], [])
        for r, arm in enumerate(arms_of_block):
            which = rng.randrange(len(sets))
            chosen = sets[which]
            if elsewhere:
                fresh(chosen)
            announce("timed call", call_limit_s)
            chosen.inputs.arena.fill(chosen.poisons[r % 2])
            result, elapsed = timed[arm](chosen.inputs.data)
            block.arm.append(arm)
            block.input_set.append(which)
            block.values.append(elapsed * 1e6)
            out_of_time = _out_of_time(started, fresh, budget_s)
            outputs = case.problem.outputs_of(result, chosen.inputs)
            sampled.keep((b, r), arm, chosen, outputs)
            sampled.keep_last(arm, chosen, outputs)
            # A single arm may stop anywhere; two arms only where both have the same count.
            if out_of_time and (len(arms) == 1 or (r + 1) % 4 == 0):
                break
        measurement.blocks.append(block)
        if on_block is not None:
            on_block(block)
        if _out_of_time(started, fresh, budget_s):
            break
    measurement.busy_s = CLOCK() - started
    total = sum(len(block.values) for block in measurement.blocks)
    wanted = sum(len(block) for block in order)
    if total < wanted:
        measurement.notes.append(f"{total // len(arms)} reps: {budget_s:g} s budget on a CPU")
    if fresh.refused:
        measurement.notes.append("seeds give data of different forms: timed on the same values")
    sampled.verify(case)
    require_untouched_timers()
    for kernel in elsewhere:
        if fault := kernel.clock_fault():  # type: ignore[attr-defined]
            raise TimingFault(fault)
    return measurement


def _timed_here(kernel: Kernel) -> Callable[[Any], tuple[Any, float]]:
    def timed(data: Any) -> tuple[Any, float]:
        begin = CLOCK()
        result = kernel(data)
        return result, CLOCK() - begin

    return timed


def _out_of_time(started: float, fresh: FreshValues, budget_s: float) -> bool:
    """Drawing has a budget of its own, as long as that of the calls."""
    calls_s = CLOCK() - started - fresh.spent_s
    return calls_s > budget_s or fresh.spent_s > budget_s


@contextlib.contextmanager
def quiet_gc() -> Any:
    """Keep Python's garbage collector out of the timed region."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
