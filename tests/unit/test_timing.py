"""Timing on the CPU: order, budget, sampled outputs, timers that were replaced."""

from __future__ import annotations

import contextlib
import gc
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelbench.base.errors import MachineFault
from kernelbench.measure import gpu_call_time, timing
from kernelbench.measure.gpu_timing import GpuTiming
from kernelbench.measure.timing import (
    Measurement,
    SampledOutputs,
    TimedBlock,
    TimingFault,
    abba,
    draw_input_sets,
    quiet_gc,
    require_untouched_timers,
    single_arm,
    time_on_cpu,
)
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.problem import Case

SHAPE = PROBLEM.parse_shape("s", {"m": 2, "n": 8, "k": 64})
CASE = Case(PROBLEM, SHAPE, "gpu-mode")
Step = Callable[[Any], Any]


class CountedClock:
    """A clock that advances by 0.1 ms a look, and by what a step says that it took."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-4
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> CountedClock:
    """What is measured does not depend on what else the machine does."""
    counted = CountedClock()
    monkeypatch.setattr(timing, "CLOCK", counted)
    monkeypatch.setattr(time, "perf_counter", counted)
    return counted


@pytest.fixture(scope="module")
def sets() -> Any:
    """Two input sets with their references."""
    return draw_input_sets(CASE, 1, "cpu")


def right(sets: Any) -> Step:
    """A step that knows the answers, also after the values of the sets were exchanged."""
    of_data = {id(chosen.inputs.data): chosen for chosen in sets}

    def step(data: Any) -> Any:
        for (_, _, c), answer in zip(data[0], of_data[id(data)].reference, strict=True):
            c[:, :, 0] = answer.rounded
        return [c for _, _, c in data[0]]

    return step


def remembering(sets: Any) -> Step:
    """A step that goes by the address: it keeps the answers that were right when it was made."""
    answers = {id(chosen.inputs.data): chosen.reference for chosen in sets}

    def step(data: Any) -> Any:
        for (_, _, c), answer in zip(data[0], answers[id(data)], strict=True):
            c[:, :, 0] = answer.rounded
        return [c for _, _, c in data[0]]

    return step


def measure(steps: list[Step], order: list[list[int]], sets: Any, **more: Any) -> Any:
    settings: dict[str, Any] = {
        "seed": 1, "budget_s": 20.0, "warmups": 2, "announce": lambda *_: None,
        "call_limit_s": 5.0,
    }  # fmt: skip
    return time_on_cpu(steps, order, sets, CASE, **(settings | more))


def test_abba_is_balanced_in_each_quad_and_fair() -> None:
    order = abba(40, 10, random.Random(3))
    assert len(order) == 40
    quads = Counter()
    for block in order:
        assert len(block) == 40
        assert block.count(0) == block.count(1) == 20
        for start in range(0, 40, 4):
            quads[tuple(block[start : start + 4])] += 1
    assert set(quads) == {(0, 1, 1, 0), (1, 0, 0, 1)}
    assert 150 < quads[0, 1, 1, 0] < 250
    # A linear drift gives both arms the same sum.
    drift = {0: 0, 1: 0}
    for position, arm in enumerate(arm for block in order for arm in block):
        drift[arm] += position
    assert drift[0] == drift[1]


@pytest.mark.parametrize(("reps", "blocks"), [(1, [1]), (20, [20]), (45, [20, 20, 5])])
def test_single_arm(reps: int, blocks: list[int]) -> None:
    assert [len(block) for block in single_arm(reps)] == blocks
    assert len(single_arm(reps, 1)) == reps


def test_input_sets_differ_and_are_reproducible(sets: Any) -> None:
    assert len(sets) == 2
    first, second = (chosen.inputs.operands[0].view(torch.uint8) for chosen in sets)
    assert not torch.equal(first, second)
    again = draw_input_sets(CASE, 1, "cpu")
    assert torch.equal(again[1].inputs.operands[0].view(torch.uint8), second)
    poisons = [bits.view(torch.int16) for chosen in sets for bits in chosen.poisons]
    assert not any(torch.equal(poisons[0], other) for other in poisons[1:])


def test_answers_kept_by_address_are_found_out(sets: Any) -> None:
    with pytest.raises(TimingFault, match="timed output"):
        measure([remembering(sets)], single_arm(20, 1), sets)


def test_what_is_measured_is_the_call(sets: Any, clock: CountedClock) -> None:
    fast = right(sets)

    def slow(data: Any) -> Any:
        clock.now += 0.004
        return fast(data)

    blocks: list[TimedBlock] = []
    found = measure([fast, slow], abba(3, 2, random.Random(1)), sets, on_block=blocks.append)
    assert found.blocks == blocks
    assert found.method == "wall"
    assert len(found.of(0)) == len(found.of(1)) == 12
    assert found.of(0) == pytest.approx([100] * 12)
    assert found.of(1) == pytest.approx([4100] * 12)
    assert {i for block in blocks for i in block.input_set} == {0, 1}
    assert found.busy_s > 12 * 0.004
    assert found.notes == []


def test_the_budget_drops_whole_repetitions_and_is_noted(sets: Any, clock: CountedClock) -> None:
    fast = right(sets)

    def slow(data: Any) -> Any:
        clock.now += 0.02
        return fast(data)

    found = measure([slow], single_arm(500), sets, budget_s=0.15, warmups=50)
    assert 2 <= len(found.of(0)) <= 8
    assert found.notes == [f"{len(found.of(0))} reps: 0.15 s budget on a CPU"]
    pair = measure([slow, slow], abba(100, 1, random.Random(1)), sets, budget_s=0.15)
    assert len(pair.of(0)) == len(pair.of(1)) < 200


def test_one_repetition_is_measured_whatever_the_budget(sets: Any) -> None:
    found = measure([right(sets)], single_arm(500), sets, budget_s=1e-9)
    assert len(found.of(0)) >= 1


@pytest.mark.parametrize("bad_from", [4, 30, 61])
def test_a_step_that_becomes_wrong_is_found(bad_from: int, sets: Any) -> None:
    """Wrong from some call on, to the very last: 2 warm-ups and 60 repetitions."""
    inner, calls = right(sets), []

    def step(data: Any) -> Any:
        calls.append(1)
        outputs = inner(data)
        if len(calls) >= bad_from:
            outputs[0][1, 7] += 1
        return outputs

    with pytest.raises(TimingFault, match="timed output"):
        measure([step], single_arm(60), sets)


def test_a_step_that_does_nothing_is_found(sets: Any) -> None:
    inner, calls = right(sets), []

    def step(data: Any) -> Any:
        calls.append(1)
        return inner(data) if len(calls) < 10 else [c for _, _, c in data[0]]

    with pytest.raises(TimingFault, match="timed output is wrong"):
        measure([step], single_arm(60), sets)


def test_either_arm_may_be_the_wrong_one(sets: Any) -> None:
    inner = right(sets)

    def bad(data: Any) -> Any:
        outputs = inner(data)
        outputs[0][0, 0] += 1
        return outputs

    order = abba(5, 2, random.Random(2))
    with pytest.raises(TimingFault):
        measure([inner, bad], order, sets)
    with pytest.raises(TimingFault):
        measure([bad, inner], order, sets)
    measure([inner, inner], order, sets)


def test_outputs_are_sampled_from_every_arm_and_unpredictably() -> None:
    order = abba(10, 5, random.Random(1))
    chosen = [SampledOutputs(order, random.Random(seed))._chosen for seed in range(30)]
    for positions in chosen:
        arms = Counter(order[b][r] for b, r in positions)
        assert set(arms) == {0, 1}
        assert 3 <= arms[0] <= 4
        assert 3 <= arms[1] <= 4
    assert len({frozenset(positions) for positions in chosen}) == 30


@pytest.mark.parametrize(
    ("excess_us", "nothing_us", "others", "raised"),
    [
        (60.0, 40.0, 0, None),
        (60.0, 40.0, 3, None),
        (459.0, 40.0, 0, TimingFault),
        (459.0, 430.0, 0, MachineFault),
        (5000.0, 430.0, 0, TimingFault),
        (5000.0, 430.0, 3, MachineFault),
    ],
)
def test_a_call_that_ends_late_is_blamed_unless_one_of_nothing_does(
    monkeypatch: pytest.MonkeyPatch,
    excess_us: float,
    nothing_us: float,
    others: int,
    raised: type[Exception] | None,
) -> None:
    """Of a GPU that others use: their turns are not the step's work."""
    monkeypatch.setattr(gpu_call_time, "_excess_of_nothing", lambda _gpu: nothing_us)
    monkeypatch.setattr(gpu_call_time, "foreign_processes", lambda _index: others)
    gpu = object.__new__(GpuTiming)
    gpu.device = torch.device("cuda:0")
    measured = Measurement("call", "events", [TimedBlock([0], [0], [10.0])])
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        gpu_call_time._require_joined(gpu, 0, excess_us, measured, 1)


@pytest.mark.parametrize("name", ["Event", "synchronize"])
def test_a_replaced_cuda_timer_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_untouched_timers()
    monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    with pytest.raises(TimingFault, match="replaced a timer"):
        require_untouched_timers()


def test_a_replaced_clock_is_found_and_not_used(sets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    assert timing.CLOCK() > 0
    with pytest.raises(TimingFault, match="replaced a timer"):
        measure([right(sets)], single_arm(4), sets)


def test_every_call_is_announced_with_its_limit(sets: Any) -> None:
    phases: list[tuple[str, float]] = []
    measure(
        [right(sets)], single_arm(5), sets,
        announce=lambda name, limit, whose="step": phases.append((name, limit)),
    )  # fmt: skip
    assert phases == [("warm-up", 5.0)] * 2 + [("timed call", 5.0)] * 5


def test_a_block_as_json() -> None:
    block = TimedBlock([0, 1], [1, 0], [1.23456, 2.0], 1980.0, ("power",))
    assert block.to_json("device") == {
        "arm": [0, 1], "input": [1, 0], "t_us": [1.2346, 2.0], "sm_mhz": 1980.0,
        "throttle": ["power"],
    }  # fmt: skip
    assert block.of(1) == [2.0]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_quiet_and_comes_back(enabled: bool) -> None:
    try:
        if not enabled:
            gc.disable()
        with pytest.raises(ValueError), quiet_gc():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
