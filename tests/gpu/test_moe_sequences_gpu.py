"""The calls in sequence of ``kernelbench check``, made of every MoE step on a Hopper GPU.

Each call changes something that an earlier one had and keeps something else. None is waited for
before the next, but for what a step waits for itself: outputs are copied in the stream's order and
judged at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from moe_cases import CAPTURED, OWN_WORKSPACE, Kernel
from test_moe_gpu import (
    DEVICE,
    Get,
    captured,
    draw,
    every_step,
    every_stream,
    hopper,
    kernels,
    needs_nvcc,
    poison,
    stream,
)

from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.problems.fused_moe.shape import MoeShape
from kernelbench.project.problem import Inputs, refill
from kernelbench.worker import call_sequence

__all__ = ["kernels", "stream"]
pytestmark = [pytest.mark.gpu, hopper, needs_nvcc]

FIRST = MoeShape("first", 130, 256, 512, 32, 4)
OTHER = MoeShape("other", 5, 384, 1152, 200, 8, softcap=9.0)
#: Some 3 ms, in which the host queues what comes behind it.
DELAY_CYCLES = 6_000_000
CLASSES = PROBLEM.input_classes


class Calls:
    """Queues calls of one step; what they wrote is judged when all are queued."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._made: list[tuple[str, torch.Tensor, MoeShape, int]] = []

    def call(self, name: str, inputs: Inputs, shape: MoeShape, seed: int) -> None:
        """One call on inputs that hold the values of a seed by then."""
        poison(inputs, seed)
        self.kernel(inputs.data)
        self.keep(name, inputs, shape, seed)

    def keep(self, name: str, inputs: Inputs, shape: MoeShape, seed: int) -> None:
        """A copy of what the outputs hold when the stream gets here."""
        self._made.append((name, inputs.outputs[0].clone(), shape, seed))

    def expect_right(self) -> None:
        """Judge by references from values that no step has seen."""
        torch.cuda.synchronize(DEVICE)
        for name, output, shape, seed in self._made:
            which = CLASSES[seed % len(CLASSES)]
            reference = PROBLEM.reference(values(shape, seed), shape, which)
            verdict = PROBLEM.compare([output], reference, shape, which)
            assert verdict.ok, f"{name}: {verdict.reason}"


def values(shape: MoeShape, seed: int) -> Inputs:
    """A draw of the class that the seed takes by turns."""
    return draw(shape, seed, CLASSES[seed % len(CLASSES)])


def behind_a_delay() -> None:
    torch.cuda._sleep(DELAY_CYCLES)


@pytest.fixture
def settled() -> Iterator[None]:
    torch.cuda.synchronize(DEVICE)
    yield
    torch.cuda.synchronize(DEVICE)


@every_step
@every_stream
def test_each_call_changes_one_thing(kernels: Get, step: str, own: bool, stream: None) -> None:
    calls = Calls(kernels(step))
    first = values(FIRST, 1)
    calls.call(call_sequence.NEW_ADDRESSES, first, FIRST, 1)
    calls.call(call_sequence.NEW_ADDRESSES, values(FIRST, 2), FIRST, 2)
    for seed in (3, 4):
        refill(first, values(FIRST, seed))
        calls.call(call_sequence.NEW_VALUES, first, FIRST, seed)
    fewer = PROBLEM.fewer_rows(FIRST)
    assert fewer is not None
    laid = call_sequence.laid_over(values(fewer, 5), first)
    assert laid is not None
    calls.call(call_sequence.FEWER_ROWS, laid, fewer, 5)
    kept = call_sequence.with_outputs_of(values(FIRST, 6), first)
    assert kept is not None
    calls.call(call_sequence.KEPT_OUTPUTS, kept, FIRST, 6)
    calls.call(call_sequence.OTHER_SHAPE, values(OTHER, 7), OTHER, 7)
    refill(first, values(FIRST, 8))
    calls.call(call_sequence.FIRST_AGAIN, first, FIRST, 8)
    calls.expect_right()


@every_step
@every_stream
def test_values_that_a_late_copy_brings(kernels: Get, step: str, own: bool, stream: None) -> None:
    """The host is through with two calls before the first has its values: what it copies or keeps
    for a call must lie still until that has run."""
    calls = Calls(kernels(step))
    inputs, other = values(FIRST, 1), values(OTHER, 2)
    calls.call("a first call", inputs, FIRST, 1)
    calls.call("a first call", other, OTHER, 2)
    later, theirs, last = values(FIRST, 4), values(OTHER, 5), values(FIRST, 6)
    behind_a_delay()
    refill(inputs, later)
    calls.call(call_sequence.QUEUED, inputs, FIRST, 4)
    refill(other, theirs)
    calls.call(call_sequence.QUEUED, other, OTHER, 5)
    refill(inputs, last)
    calls.call(call_sequence.QUEUED, inputs, FIRST, 6)
    calls.expect_right()


@pytest.mark.parametrize("step", CAPTURED)
@every_stream
def test_a_recorded_call_between_calls_at_other_addresses(
    kernels: Get, step: str, own: bool, stream: None
) -> None:
    calls = Calls(kernels(step))
    inputs = values(FIRST, 1)
    graph = captured(calls.kernel, inputs)
    for seed in (2, 3, 4):
        calls.call(call_sequence.NEW_ADDRESSES, values(FIRST, seed + 3), FIRST, seed + 3)
        refill(inputs, values(FIRST, seed))
        poison(inputs, seed)
        graph.replay()
        calls.keep(call_sequence.RECORDED, inputs, FIRST, seed)
    calls.expect_right()


@pytest.mark.parametrize("step", OWN_WORKSPACE)
def test_two_calls_on_two_streams(kernels: Get, step: str, settled: None) -> None:
    """The first is behind a delay, so that the second overtakes it."""
    calls = Calls(kernels(step))
    operands = [values(FIRST, seed) for seed in (1, 2)]
    streams = [torch.cuda.Stream(DEVICE) for _ in operands]
    torch.cuda.synchronize(DEVICE)
    for turn in range(4):
        for number, (inputs, where) in enumerate(zip(operands, streams, strict=True)):
            with torch.cuda.stream(where):
                if number == turn % 2:
                    behind_a_delay()
                calls.call(call_sequence.TWO_STREAMS, inputs, FIRST, number + 1)
    calls.expect_right()
