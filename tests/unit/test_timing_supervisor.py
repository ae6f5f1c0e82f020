"""A series that is timed in a submission's process, with a stand-in for the timer of a GPU."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_isolation import Doubling

from kernelbench.base.errors import EnvironmentProblem, MachineFault, UsageError
from kernelbench.executors import targets
from kernelbench.executors.targets import GPU
from kernelbench.isolation import sandbox_child, shared_data, timing_supervisor
from kernelbench.isolation.isolated_kernel import Submissions
from kernelbench.isolation.isolated_timing import Ask, RemoteVerifier
from kernelbench.isolation.requests import Load, Once, Ping, Time, close
from kernelbench.isolation.sandbox import SandboxProcess
from kernelbench.isolation.timing_supervisor import SupervisedSeries, clock_fault, read_block
from kernelbench.kinds.callables import RaisedElsewhere
from kernelbench.measure.results import TimedBlock
from kernelbench.measure.timing import InputSet, Measurement, TimingFault, quiet_gc
from kernelbench.project.problem import Case
from kernelbench.worker import job_runner
from kernelbench.worker.jobs import JUDGE_ON_GPU, Arm, RunJob, processes_apart

BLOCKS, REPS = 4, 6


def timer(say: Callable[[float], float] = lambda took: took) -> Callable[..., dict[str, Any]]:
    """What times a series by the host's clock, and says what ``say`` makes of each time in µs."""

    def series(
        kernels: Sequence[Any], request: Time, sets: Any, device: torch.device, ask: Ask
    ) -> dict[str, Any]:
        verifier = RemoteVerifier(ask, lambda: None)

        def launch(arm: int, which: int) -> Any:
            return kernels[arm](sets[which][0].data)

        ask({"at": "phase", "name": "warm-up"}, None)
        for b, arms in enumerate(request.order):
            verifier.renew(launch)
            block = TimedBlock(list(arms), [], [])
            for r, arm in enumerate(arms):
                which = (b + r) % len(sets)
                begin = time.perf_counter()
                result = launch(arm, which)
                block.values.append(say((time.perf_counter() - begin) * 1e6))
                block.input_set.append(which)
                verifier.keep((b, r), arm, which, result)
            verifier.tell(block)
        return {"at": "measured", "method": "graph", "notes": []}

    return series


def right(data: torch.Tensor) -> torch.Tensor:
    """Twice the values."""
    return data * 2


def slow(data: torch.Tensor) -> torch.Tensor:
    """The same, after far longer than it takes to be asked."""
    time.sleep(0.02)
    return data * 2


@dataclass(frozen=True)
class Loads:
    """An executor that loads what the test names."""

    kernel: Any

    def load(self, *given: object) -> Any:
        """It."""
        return self.kernel


@dataclass(frozen=True)
class Target:
    """A target of the host's."""

    executor: Loads
    gpu: None = None
    device: str = "cpu"


@pytest.fixture
def made() -> Iterator[list[SandboxProcess]]:
    processes: list[SandboxProcess] = []
    yield processes
    for process in processes:
        process._link.close()
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)


def timed(
    made: list[SandboxProcess],
    monkeypatch: pytest.MonkeyPatch,
    kernels: Sequence[Any],
    series: Callable[..., dict[str, Any]],
    asking_s: float = 60.0,
) -> Measurement:
    """What the judge makes of a series of these kernels.

    Args:
        asking_s: What asking may take: a busy machine's clock is no test's.
    """
    monkeypatch.setattr(timing_supervisor, "_ASKING_S", asking_s)
    problem: Any = Doubling()
    monkeypatch.setattr(sandbox_child, "load_problem", lambda lineage: problem)
    monkeypatch.setattr(sandbox_child, "time_series", series)
    made += [SandboxProcess() for _ in range(2)]
    apart = Submissions(made[0], made[1])
    nobody: Any = None
    loaded: Any = [apart.load(Load(nobody, nobody, Target(Loads(k)), 1.0)) for k in kernels]  # type: ignore[arg-type]
    sets = []
    for seed in (1, 2, 3):
        inputs = problem.make_inputs(None, "", seed, "cpu")
        poison = torch.empty(inputs.arena.flat.shape, dtype=torch.int64)
        sets.append(InputSet(inputs, problem.reference(inputs, None, ""), [poison, poison]))
    order = [[r % len(kernels) for r in range(REPS)] for _ in range(BLOCKS)]
    with quiet_gc():
        return SupervisedSeries(
            loaded, order, sets, Case(problem, None, ""), "device", "warm", "single", 2, 1, 5,
            lambda *given: None, 1.0,
        ).run()  # fmt: skip


def test_an_idle_process_returns_as_many_bytes_as_a_call(made: list[SandboxProcess]) -> None:
    made.append(SandboxProcess())
    for returned in (8192, 8192, 256):
        _, descriptors, _ = made[0].ask(Ping(read=4096, returned=returned))
        assert [os.fstat(one).st_size for one in descriptors] == [returned]
        close(descriptors)
    free = os.dup(0)
    os.close(free)
    assert made[0].ping(Ping(read=4096, returned=8192)) > 0
    assert made[0].ask(Ping())[1] == []
    assert os.dup(0) == free, "nothing stays open"
    os.close(free)


def test_a_series_of_right_results_is_believed(
    made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = timed(made, monkeypatch, [right, right], timer())
    assert [len(block.arm) for block in found.blocks] == [REPS] * BLOCKS
    assert len(found.of(0)) == len(found.of(1)) == BLOCKS * REPS / 2
    assert found.method == "graph"


def uncapturable(*given: object) -> dict[str, Any]:
    """What is answered where no graph can be captured."""
    return {"at": "unmeasured", "reason": "operation not permitted"}


def test_a_call_that_cannot_be_captured_has_no_device_time(
    made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = timed(made, monkeypatch, [right], uncapturable)
    assert (found.method, found.blocks) == ("none", [])
    assert "no device time: capture failed (operation not permitted)" in found.notes[0]


def test_a_generator_left_behind_ends_no_process(
    made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in one process: the shape stands, and the next one has another worker."""
    judged: list[Any] = []
    load = Submissions.load

    def kept(self: Submissions, request: Load) -> Any:
        judged.append(load(self, request))
        return judged[-1]

    monkeypatch.setattr(Submissions, "load", kept)
    monkeypatch.setattr(sandbox_child, "generator_lost", lambda device: True)
    timed(made, monkeypatch, [right], uncapturable)
    assert not judged[0].lost and judged[0].generator_lost
    gpu: Any = targets.Target(GPU, "cuda:0", None)
    assert job_runner._generator_lost(gpu, judged[0])


class Keeps:
    """Right on the values that it has first had at an address."""

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        """What was right there."""
        return self.kept.setdefault(data.data_ptr(), data * 2)


def test_results_kept_by_address_are_found(
    made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TimingFault, match="a timed output is wrong: differs"):
        timed(made, monkeypatch, [Keeps()], timer())


def test_a_false_time_is_found(made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimingFault, match=r"its timer says 1 µs, but by the judge's clock"):
        timed(made, monkeypatch, [slow], timer(lambda took: 1.0), asking_s=0.0)


def raises(data: torch.Tensor) -> torch.Tensor:
    """Nothing."""
    raise ValueError("on purpose")


@pytest.mark.parametrize(
    ("series", "pattern"),
    [
        (lambda *given: {"at": "measured", "method": "graph"}, "what was not asked"),
        (lambda *given: {"at": "nonsense"}, "what was not asked"),
        (timer(lambda took: float("nan")), "times that cannot be"),
        (timer(lambda took: -1.0), "times that cannot be"),
        (lambda *given: timer()(*given) | {"method": "profiler"}, "what was not asked"),
        (lambda *given: timer()(*given) | {"at": "unmeasured"}, "what was not asked"),
    ],
)
def test_answers_that_cannot_be_are_refused(
    series: Any, pattern: str, made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RaisedElsewhere, match=pattern):
        timed(made, monkeypatch, [right], series)


def test_what_a_submission_raises_while_it_is_timed(
    made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raised(error: Exception, step: Any) -> dict[str, Any]:
        return {"raised": "other", "reason": f"ValueError: {error}"}

    monkeypatch.setattr(sandbox_child, "_raised", raised)
    with pytest.raises(RaisedElsewhere, match="ValueError: on purpose"):
        timed(made, monkeypatch, [raises], timer())


@pytest.mark.parametrize("at", ["phase", "renew"])
def test_answers_without_end_are_refused(
    at: str, made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(kernels: Any, request: Any, sets: Any, device: Any, ask: Ask) -> dict[str, Any]:
        while True:
            asked = ask({"at": at}, None)
            while isinstance(asked, Once):
                asked = ask({"at": "once"}, torch.ones(1))

    with pytest.raises(RaisedElsewhere, match="without end"):
        timed(made, monkeypatch, [right], endless)


def test_the_judges_clock_bounds_a_time_from_below() -> None:
    assert clock_fault([300.0] * 9, [320e-6] * 9) == ""
    assert clock_fault([300.0] * 9, [200e-6] * 9) == "", "a colder cache in a block"
    assert "its timer says 30 µs" in clock_fault([30.0] * 9, [320e-6] * 9)
    assert clock_fault([300.0] * 9, [320e-6] * 3 + [1.0] * 6) == "", "most had to wait"
    assert clock_fault([30.0] * 9, [320e-6] * 9, batch=10) == ""
    assert clock_fault([30.0] * 9, []) == ""


BLOCK = {"arm": [0, 1], "input_set": [0, 1], "time_us": [1.0, 2.0], "sm_mhz": None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"arm": [0, 0]}, {"arm": None}, {"input_set": [0, 2]}, {"input_set": [0, True]},
        {"time_us": [1.0]}, {"time_us": [1.0, 2]}, {"time_us": [1.0, float("inf")]},
        {"sm_mhz": "fast"},
    ],
)  # fmt: skip
def test_a_block_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    assert read_block(BLOCK, [[0, 1]], 0, 2).values == [1.0, 2.0]
    with pytest.raises(RaisedElsewhere, match="cannot be"):
        read_block(BLOCK | wrong, [[0, 1]], 0, 2)
    with pytest.raises(RaisedElsewhere, match="cannot be"):
        read_block(BLOCK, [[0, 1]], 1, 2)


def test_memory_that_is_not_shared_is_the_machines_fault(
    made: list[SandboxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On either side; the process lives on."""
    made.append(SandboxProcess())
    apart = Submissions(made[0], None)

    def refused(*given: object) -> Any:
        raise EnvironmentProblem("GPU memory cannot be shared between processes: not here")

    with monkeypatch.context() as patch, pytest.raises(EnvironmentProblem, match="not here"):
        patch.setattr(shared_data.HostRegion, "create", refused)
        apart.prepare(torch.ones(4))
    assert apart.process.ping(Ping()) > 0.0
    monkeypatch.setattr(shared_data.NewRegion, "opened", refused)
    made.append(SandboxProcess())
    with pytest.raises(MachineFault, match="not here"):
        Submissions(made[1], None).prepare(torch.ones(4))
    assert made[1].ping(Ping()) > 0.0


def test_on_a_gpu_the_judge_is_apart_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    anything: Any = SimpleNamespace(submission=True)
    job = RunJob(
        Arm(anything), anything, (), (), targets.Target(GPU, "cuda:0", None), 1, None, 1.0, True
    )
    monkeypatch.delenv(JUDGE_ON_GPU, raising=False)
    assert processes_apart(job) == 0
    monkeypatch.setenv(JUDGE_ON_GPU, "apart")
    assert processes_apart(job) == 2
    planted = dataclasses.replace(job, arm=Arm(anything, plant_us=0.0))
    assert processes_apart(planted) == 0
    step: Any = SimpleNamespace(submission=False)
    assert processes_apart(dataclasses.replace(job, arm=Arm(step))) == 0
    monkeypatch.setenv(JUDGE_ON_GPU, "yes")
    with pytest.raises(UsageError, match="KERNELBENCH_GPU_JUDGE=yes: expected 'apart'"):
        processes_apart(job)
