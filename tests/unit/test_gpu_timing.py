"""What is between the calls of CUDA in GPU timing, with stand-ins for CUDA on a CPU.

A stand-in of a graph runs its body once, when it is recorded; of an event, it takes the host's
clock. What the times are worth is shown on a GPU (``tests/gpu``).
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kernelbench.isolation import isolated_timing
from kernelbench.isolation.requests import Go, Once, Time
from kernelbench.isolation.shared_data import DataMessage
from kernelbench.isolation.timing_supervisor import read_block
from kernelbench.measure import gpu_call_time, gpu_device_time, probes
from kernelbench.measure.gpu_call_time import call_time
from kernelbench.measure.gpu_device_time import device_time
from kernelbench.measure.gpu_timing import GpuTiming
from kernelbench.measure.timing import Measurement, TimedBlock, TimingFault, abba, draw_input_sets
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.problem import Case

SHAPE = PROBLEM.parse_shape("s", {"m": 2, "n": 8, "k": 64})
CASE = Case(PROBLEM, SHAPE, "gpu-mode")
BLOCKS, REPS = 6, 8


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, _stream: object) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1e3


class Stream:
    def __init__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Graph:
    replays = 0

    def replay(self) -> None:
        Graph.replays += 1


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's calls, as far as timing makes them."""

    class Properties:
        L2_cache_size = 1024

    stand_ins: dict[str, Any] = {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": lambda *_, **__: contextlib.nullcontext(),
        "stream": lambda _stream: contextlib.nullcontext(),
        "synchronize": lambda *_: None,
        "get_device_properties": lambda _device: Properties,
        "graph_pool_handle": lambda: None,
        "_sleep": lambda _cycles: None,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(probes.ClockStamps, "create", lambda _device: None)
    monkeypatch.setattr(probes, "spin", lambda _seconds, _stream: None)
    monkeypatch.setattr(probes, "persisting_l2_limit", lambda: 0)
    for module in (gpu_call_time, gpu_device_time):
        monkeypatch.setattr(module, "EVENT", Event)
        monkeypatch.setattr(module, "require_untouched_timers", lambda: None)
    monkeypatch.setattr(gpu_call_time, "SYNCHRONIZE", lambda _device: None)


@pytest.fixture
def seen() -> list[TimedBlock]:
    """The blocks as they were finished."""
    return []


@pytest.fixture
def gpu(cuda: None, seen: list[TimedBlock]) -> GpuTiming:
    sets = draw_input_sets(CASE, 1, "cpu")
    return GpuTiming(
        torch.device("cpu"), CASE, sets, "cold", 1, lambda *_: None, 5.0,
        clocks=lambda: (1980.0, ()), on_block=seen.append,
    )  # fmt: skip


def step_of(gpu: GpuTiming, spoil: Callable[[], bool] = lambda: False) -> Any:
    """A step that knows the answers, but where ``spoil`` says so."""
    of_data = {id(chosen.inputs.data): chosen for chosen in gpu.sets}

    def step(data: Any) -> Any:
        for (_, _, c), answer in zip(data[0], of_data[id(data)].reference, strict=True):
            c[:, :, 0] = 0 if spoil() else answer.rounded
        return [c for _, _, c in data[0]]

    return step


def order() -> list[list[int]]:
    return abba(BLOCKS, REPS // 4, random.Random(1))


def all_of(measured: Measurement) -> Iterator[float]:
    for block in measured.blocks:
        yield from block.values


def test_device_time_by_graphs(gpu: GpuTiming, seen: list[TimedBlock]) -> None:
    before = Graph.replays
    measured = device_time(gpu, [step_of(gpu), step_of(gpu)], order(), warmups=2)
    assert (measured.metric, measured.method, measured.notes) == ("device", "graph", [])
    assert len(measured.blocks) == BLOCKS
    assert seen == measured.blocks
    assert {block.sm_mhz for block in seen} == {1980.0}
    assert all(0 < t < 1e6 for t in all_of(measured))
    # A flush and a step for each repetition; more for what is warmed up.
    assert Graph.replays - before > 2 * BLOCKS * len(measured.blocks[0].arm)


def test_device_time_by_the_profiler_where_nothing_can_be_recorded(
    gpu: GpuTiming, monkeypatch: pytest.MonkeyPatch, seen: list[TimedBlock]
) -> None:
    @contextlib.contextmanager
    def refused(*_: object, **__: object) -> Iterator[None]:
        raise RuntimeError("not while recording. See the manual")
        yield

    def sums(body: Callable[[], None], _device: object, count: int) -> list[float]:
        body()
        return [float(i) for i in range(count)]

    monkeypatch.setattr(torch.cuda, "graph", refused)
    monkeypatch.setattr(gpu_device_time, "activity_sums", sums)
    measured = device_time(gpu, [step_of(gpu)], [[0] * 4] * 7, warmups=2)
    assert measured.method == "profiler"
    assert measured.notes == ["device time from the profiler: capture failed: not while recording"]
    # Five blocks share a session of the profiler, in order.
    assert [block.values[0] for block in measured.blocks] == [0, 4, 8, 12, 16, 0, 4]
    assert seen == measured.blocks


@pytest.mark.parametrize(("mode", "calls"), [("single", 1), ("competition", 15)])
def test_call_time(gpu: GpuTiming, seen: list[TimedBlock], mode: Any, calls: int) -> None:
    made = 0

    def counted() -> bool:
        nonlocal made
        made += 1
        return False

    measured = call_time(gpu, [step_of(gpu, counted)], [[0] * 4] * 3, 2, mode)
    assert measured.method == ("events" if mode == "single" else mode)
    assert made == 2 + calls * 12
    assert seen == measured.blocks
    assert measured.busy_s > 0


@pytest.mark.parametrize("time_it", [device_time, call_time])
def test_what_is_wrong_while_it_is_timed_is_found(gpu: GpuTiming, time_it: Any) -> None:
    with pytest.raises(TimingFault):
        time_it(gpu, [step_of(gpu, lambda: True)], [[0] * 4] * 3, 2)


def test_work_that_escapes_the_events_is_found(
    gpu: GpuTiming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_call_time, "SYNCHRONIZE", lambda _device: time.sleep(1e-3))
    monkeypatch.setattr(gpu_call_time, "_excess_of_nothing", lambda _gpu: 20.0)
    with pytest.raises(TimingFault, match="device work goes on after the step's end event"):
        call_time(gpu, [step_of(gpu)], [[0] * 4] * 3, 2)


@pytest.mark.parametrize("metric", ["device", "call"])
def test_a_series_in_a_submissions_process_asks_its_judge(
    gpu: GpuTiming, monkeypatch: pytest.MonkeyPatch, metric: Any
) -> None:
    """What it says it is at, and the repetition that it makes when it is asked for one."""
    monkeypatch.setattr(isolated_timing, "SYNCHRONIZE", lambda _device: None)
    asked: list[tuple[dict[str, Any], Any]] = []

    def ask(answer: dict[str, Any], results: Any) -> Any:
        first = answer["at"] == "renew" and not any(a["at"] == "once" for a, _ in asked)
        asked.append((answer, results))
        return Once(1, 1) if first else Go()

    nothing = DataMessage(b"", (), (), (), (), ())
    request = Time(
        metric, (0, 1), tuple(map(tuple, order())), 2, "cold", "single", 1, 3, 5.0, nothing
    )
    sets = [(chosen.inputs, chosen.poisons) for chosen in gpu.sets]
    steps = [step_of(gpu), step_of(gpu)]
    said = isolated_timing.time_series(steps, request, sets, torch.device("cpu"), ask)
    assert (said["at"], said["notes"]) == ("measured", [])
    at = [answer["at"] for answer, _ in asked]
    assert at.count("renew") == at.count("block") == BLOCKS
    assert at.count("once") == 1
    blocks = [(answer["block"], results) for answer, results in asked if answer["at"] == "block"]
    for (block, results), arms in zip(blocks, order(), strict=True):
        assert read_block(block, [arms], 0, len(sets)).arm == arms
        assert set(results) == set(block["input_set"])
