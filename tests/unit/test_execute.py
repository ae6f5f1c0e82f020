"""From jobs to messages, and from messages to rows."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from conftest import ROOT

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.compare.comparer import (
    SessionSamples,
    block_samples,
    identical,
    impossible,
    protocol_size,
)
from kernelbench.executors.emulated import EMULATOR, EmulatedKernel, EmulatorExecutor
from kernelbench.executors.targets import Target
from kernelbench.executors.torch_cpu import TORCH
from kernelbench.kinds import python_step
from kernelbench.machine.environment import read_environment
from kernelbench.measure.results import CheckResult, TimedBlock
from kernelbench.project.context import Context
from kernelbench.project.problem import Kernel, Work
from kernelbench.project.project_file import project_at
from kernelbench.project.step_files import read_submission
from kernelbench.records import metrics
from kernelbench.records.run_record import ResultStatus
from kernelbench.runs.runner import Runner, StepRun
from kernelbench.stats.blocks import BlockSamples
from kernelbench.worker.job_runner import execute_job
from kernelbench.worker.jobs import Arm, CompareJob, RunJob, Timing
from kernelbench.worker.launcher import WorkerExit
from kernelbench.worker.messages import (
    ArmChecked,
    ArmFailed,
    BlockTimed,
    ClassChecked,
    EnvironmentRead,
    Message,
    MetricMeasured,
    PhaseBegins,
    Reporter,
    ShapeBegins,
    TimingFailed,
    WorkCounted,
    decode_message,
    encode_message,
)

CPU = Target(TORCH, "cpu", None)
CONTEXT = Context(project_at(ROOT))
PROBLEM = CONTEXT.problems["group_gemm"]
SHAPES = tuple(
    PROBLEM.parse_shape(name, {"m": m, "n": 8, "k": 64}) for name, m in (("x", 1), ("y", 3))
)
TIMING = Timing(8, 1, "cold", "single", ("call",), 30.0)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """What a job changes in its process, which is this one here."""
    path, enabled = list(sys.path), torch.is_grad_enabled()
    yield
    sys.path[:] = path
    torch.set_grad_enabled(enabled)


Kind = TypeVar("Kind")


class Messages(Reporter):
    """Stands for a worker's pipe; what goes through it is encoded and decoded, as there."""

    def __init__(self) -> None:
        self.kept: list[Message] = []
        super().__init__(lambda message: self.kept.append(decode_message(encode_message(message))))

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The messages of one kind."""
        return [message for message in self.kept if isinstance(message, kind)]

    @property
    def kinds(self) -> list[type[Any]]:
        """What was reported besides phases."""
        return [type(message) for message in self.kept if not isinstance(message, PhaseBegins)]


def arm(submissions: Path, name: str) -> Arm:
    return Arm(read_submission(submissions / f"{name}.py"))


def run_job(found: Arm, **more: Any) -> RunJob:
    values: dict[str, Any] = {
        "lineage": CONTEXT.lineages.lineage("group_gemm"), "shapes": SHAPES,
        "classes": ("gpu-mode", "structured"), "target": CPU, "seed": 1, "timing": None,
        "call_limit_s": 9.0, "own_stream": True,
    }  # fmt: skip
    return RunJob(found, **(values | more))


def test_a_run_checks_every_class_of_every_shape_then_times_the_first(submissions: Path) -> None:
    messages = Messages()
    execute_job(run_job(arm(submissions, "right"), timing=TIMING), messages)
    checked_twice = [ShapeBegins, ClassChecked, ClassChecked]
    per_shape = [*checked_twice, WorkCounted, *[BlockTimed] * 8, MetricMeasured]
    assert messages.kinds == [EnvironmentRead, *per_shape, *per_shape]
    checks = [(m.shape, m.inputs) for m in messages.of(ClassChecked)]
    assert checks == [(s, c) for s in ("x", "y") for c in ("gpu-mode", "structured")]
    assert {m.limit_s for m in messages.of(PhaseBegins) if "first call" in m.name} == {9.0}


def test_a_wrong_step_is_not_timed(submissions: Path) -> None:
    messages = Messages()
    execute_job(run_job(arm(submissions, "writes_zeros"), timing=TIMING), messages)
    assert messages.kinds == [EnvironmentRead, *[ShapeBegins, ClassChecked, ClassChecked] * 2]


def test_a_step_that_cannot_be_loaded_gets_a_row_for_every_shape_and_class(
    submissions: Path,
) -> None:
    messages = Messages()
    execute_job(run_job(arm(submissions, "import_error")), messages)
    rows = messages.of(ClassChecked)
    assert len(rows) == 4
    assert {m.result.status for m in rows} == {"fault"}


class Sped(EmulatedKernel):
    """A step whose calls take a second less each time: 100 s, 99 s, …"""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._seconds, self._next = kernel, [], 100.0

    def __call__(self, data: Any) -> Any:
        self._seconds.append(self._next)
        self._next -= 1
        return self._kernel(data)


def test_how_long_a_call_took_to_emulate_is_said_of_its_own_class(
    submissions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = Messages()
    right = arm(submissions, "right")
    sped = Sped(python_step.load_python_step(right.step))
    monkeypatch.setattr(EmulatorExecutor, "load", lambda *_: sped)
    execute_job(run_job(right, target=Target(EMULATOR, "cpu", None)), messages)
    notes = [m.result.notes for m in messages.of(ClassChecked)]
    assert notes == [("emulated in 1e+02 s a call",), (), ("emulated in 94 s a call",), ()]


def compare_job(base: Arm, cand: Arm, **more: Any) -> CompareJob:
    values: dict[str, Any] = {
        "lineage": CONTEXT.lineages.lineage("group_gemm"), "shape": SHAPES[0],
        "classes": ("gpu-mode",), "target": CPU, "seed": 1, "timing": TIMING, "blocks": 3,
        "quads": 1, "check": True, "call_limit_s": 9.0, "own_stream": True,
    }  # fmt: skip
    return CompareJob(base, cand, **(values | more))


def test_a_comparison_interleaves_both_arms(submissions: Path) -> None:
    messages = Messages()
    execute_job(compare_job(arm(submissions, "right"), arm(submissions, "slow")), messages)
    expected = [ArmChecked, ArmChecked, WorkCounted, *[BlockTimed] * 3, MetricMeasured]
    assert messages.kinds == [EnvironmentRead, *expected]
    blocks = [m.block for m in messages.of(BlockTimed)]
    samples = block_samples(blocks, "x")
    assert samples.base.shape == samples.cand.shape == (3, 2)
    assert samples.cand.min() > 10_000
    assert samples.base.min() < 10_000


def test_the_negative_control_takes_one_arm_after_the_other(submissions: Path) -> None:
    messages = Messages()
    right = arm(submissions, "right")
    execute_job(compare_job(right, right, sequential=True, repeats=2, check=False), messages)
    blocks = [m.block.arm for m in messages.of(BlockTimed)]
    assert blocks == [[0] * 6, [1] * 6] * 2
    assert [m.round for m in messages.of(MetricMeasured)] == [0, 1]


@pytest.mark.parametrize(("base", "cand", "which"), [
    ("right", "one_nan", "cand"), ("one_nan", "right", "base"), ("right", "import_error", "cand"),
])  # fmt: skip
def test_a_wrong_arm_is_named_and_nothing_is_timed(
    base: str, cand: str, which: str, submissions: Path
) -> None:
    messages = Messages()
    execute_job(compare_job(arm(submissions, base), arm(submissions, cand)), messages)
    failed = messages.kept[-1]
    assert isinstance(failed, ArmFailed)
    assert failed.arm == which
    assert BlockTimed not in messages.kinds


def test_protocol_sizes() -> None:
    assert protocol_size(500, True) == (25, 10)
    assert protocol_size(500, False) == (250, 1)
    for reps in (1, 2, 10, 100, 499, 3000):
        for on_gpu in (True, False):
            blocks, quads = protocol_size(reps, on_gpu)
            assert blocks >= 2
            assert blocks * quads * 2 >= reps


def test_incomplete_blocks_are_left_out_and_two_are_needed() -> None:
    def block(arms: list[int], times: list[float]) -> TimedBlock:
        return TimedBlock(arms, [0] * len(arms), times)

    whole = block([0, 1, 1, 0], [1.0, 2.0, 2.0, 1.0])
    samples = block_samples([whole, whole, block([0, 1, 1], [1.0, 2.0, 2.0])], "x")
    assert samples.base.tolist() == [[1.0, 1.0]] * 2
    with pytest.raises(EnvironmentProblem, match="fewer than two blocks"):
        block_samples([whole], "x")


def test_an_arm_faster_than_its_device_allows_is_found() -> None:
    """1 GB at 4.8 TB/s takes 208 us from DRAM; where it may stay in the L2, 60 MB less."""
    times = {"base": np.full((2, 2), 300.0), "cand": np.full((2, 2), 200.0)}
    collected = SessionSamples(
        SHAPES[0], {"device": [BlockSamples(**times)]}, work=Work(1.0, 1e9, 0.0, "fp8")
    )
    cold, batched = (replace(TIMING, batch=batch) for batch in (1, 8))
    assert impossible(collected, "base", "NVIDIA H200", cold) == ""
    assert "device time 200.00 µs, possible are 20" in impossible(
        collected, "cand", "NVIDIA H200", cold
    )
    assert impossible(collected, "cand", "NVIDIA H200", batched) == ""
    assert impossible(collected, "cand", "CPU of some kind", cold) == ""


def test_what_a_submission_imports_from_beside_it_is_its_code(tmp_path: Path) -> None:
    """Else a change there would be called SAME without being timed."""
    steps = []
    for name, factor in (("one", 1), ("same", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sub.py").write_text("from sib import custom_kernel\n")
        (tmp_path / name / "sib.py").write_text("import deeper\ndef custom_kernel(d):\n    pass\n")
        (tmp_path / name / "deeper.py").write_text(f"FACTOR = {factor}\n")
        (tmp_path / name / "unrelated.py").write_text(f"# {name}\n")
        steps.append(read_submission(tmp_path / name / "sub.py"))
    one, same, other = steps
    assert identical(one, same)
    assert not identical(one, other)


# -- messages to rows


class Scripted:
    """A launcher whose workers say what the test wrote down, one script a worker."""

    def __init__(self, *scripts: tuple[list[Any], WorkerExit | None]) -> None:
        self._scripts = list(scripts)
        self.ending: WorkerExit | None = None
        self.jobs: list[Any] = []

    def run(self, job: Any) -> Iterator[Message]:
        """Play the next script; a KeyboardInterrupt in it is raised."""
        self.jobs.append(job)
        messages, ending = self._scripts.pop(0)
        for message in messages:
            if message is KeyboardInterrupt:
                raise KeyboardInterrupt
            yield message
        self.ending = ending


DONE = WorkerExit("done", "x", "", "")
HANG = WorkerExit(
    "hang", "timed call", "no answer within 9 s in phase 'timed call'", "", status="hang"
)
DIED = WorkerExit("died", "gpu-mode: second call", "the worker was ended by SIGSEGV", "")


def environment() -> Message:
    return EnvironmentRead(read_environment(CPU.device, CPU.gpu))


def shape(name: str) -> Message:
    return ShapeBegins(name)


def checked(name: str, status: ResultStatus = "pass", inputs: str = "gpu-mode") -> Message:
    reason = "" if status == "pass" else "the check's own reason"
    return ClassChecked(name, inputs, CheckResult(status, True, 0.0, reason, rel_rms_err=0.0))


def block(*times: float) -> Message:
    return BlockTimed("x", "call", TimedBlock([0] * len(times), [0] * len(times), list(times)))


WORK = WorkCounted("x", Work(1.0, 1.0, 1.0, "fp4"))
MEASURED = MetricMeasured("x", "call", "wall", (), 1.0)
Rows = Callable[..., tuple[list[Any], Scripted]]


@pytest.fixture
def rows(submissions: Path) -> Rows:
    """Plays scripts to a runner; its rows."""

    def play(*scripts: Any, classes: tuple[str, ...] = ("gpu-mode",), **more: Any) -> Any:
        launcher = Scripted(*scripts)
        runner = Runner(launcher, seed=1, timing=TIMING, call_limit_s=9.0)  # type: ignore[arg-type]
        step = arm(submissions, "right").step
        lineage = CONTEXT.lineages.lineage("group_gemm")
        plan = StepRun(step, lineage, PROBLEM, SHAPES, classes, CPU, **more)
        found: list[Any] = []
        try:
            for row in runner.run(plan):
                found.append(row)
        except KeyboardInterrupt:
            found.append(KeyboardInterrupt)
        return found, launcher

    return play


def whole(name: str) -> list[Any]:
    return [shape(name), checked(name), WORK, block(1.0, 2.0, 3.0), block(4.0), MEASURED]


def test_a_whole_run(rows: Rows) -> None:
    (first, second), launcher = rows(([environment(), *whole("x"), *whole("y")], DONE))
    assert (first.shape, second.shape) == ("x", "y")
    assert (first.status, first.metrics["call"].median, first.metrics["call"].reps) == (
        "pass",
        2.5,
        4,
    )
    assert first.metrics["call"].method == "wall"
    assert first.notes == ()
    assert len(launcher.jobs) == 1


def test_a_hang_while_timed_loses_the_time_not_the_next_shape(rows: Rows) -> None:
    (first, second), launcher = rows(
        ([environment(), shape("x"), checked("x"), WORK, block(1.0)], HANG),
        ([environment(), *whole("y")], DONE),
    )
    assert (first.status, first.metrics.get("call")) == ("hang", None)
    assert first.reason == HANG.reason
    assert (second.status, second.metrics["call"].reps) == ("pass", 4)
    assert [s.name for s in launcher.jobs[1].shapes] == ["y"]


def test_a_death_in_the_second_class_keeps_the_first(rows: Rows) -> None:
    found, _ = rows(
        ([environment(), shape("x"), checked("x")], DIED),
        ([environment(), shape("y"), checked("y"), checked("y", inputs="full"),
          checked("y", inputs="structured")], DONE),
        classes=("gpu-mode", "full", "structured"),
    )  # fmt: skip
    assert [(r.shape, r.inputs, r.status) for r in found] == [
        ("x", "gpu-mode", "pass"), ("x", "full", "fault"), ("x", "structured", "skipped"),
        ("y", "gpu-mode", "pass"), ("y", "full", "pass"), ("y", "structured", "pass"),
    ]  # fmt: skip
    assert found[1].reason == DIED.reason
    assert found[2].reason == "not run after the fault"


@pytest.mark.parametrize(("ending", "after"), [
    (DIED, "not run after the fault"), (HANG, "not run after the hang"),
])  # fmt: skip
def test_a_long_reason_is_given_once(ending: WorkerExit, after: str, rows: Rows) -> None:
    classes = ("gpu-mode", "full", "structured")
    found, _ = rows(([environment(), shape("x")], ending), ([*whole("y")], DONE), classes=classes)
    assert [row.reason for row in found[:3]] == [ending.reason, after, after]


def test_what_an_interrupt_leaves_out_says_so(rows: Rows) -> None:
    script = [environment(), shape("x"), checked("x"), KeyboardInterrupt]
    found, _ = rows((script, None), classes=("gpu-mode", "full", "structured"))
    assert [row.reason for row in found[:3]] == ["", "interrupted", "not run: interrupted"]


def test_classes_after_a_fault_that_the_check_reports(rows: Rows) -> None:
    found, _ = rows(
        ([environment(), shape("x"), checked("x", "fault")], DIED), ([*whole("y")], DONE),
        classes=("gpu-mode", "full", "structured"),
    )  # fmt: skip
    after = "not run after the fault"
    assert [row.reason for row in found[:3]] == ["the check's own reason", after, after]


def test_the_checks_reason_outlives_the_worker(rows: Rows) -> None:
    """A CUDA fault is a row, and then the worker dies of it while it cleans up."""
    (first, second), _ = rows(
        ([environment(), shape("x"), checked("x", "fault")], DIED),
        ([environment(), *whole("y")], DONE),
    )
    assert (first.status, first.reason) == ("fault", "the check's own reason")
    assert second.status == "pass"


def test_a_death_while_loading_costs_every_shape(rows: Rows) -> None:
    found, launcher = rows(([environment()], WorkerExit("died", "load", "gone", "")))
    assert [(r.shape, r.status, r.reason) for r in found] == [
        ("x", "fault", "gone"),
        ("y", "fault", "gone"),
    ]
    assert len(launcher.jobs) == 1


def test_a_worker_that_fails_before_the_step_is_no_fault_of_the_step(rows: Rows) -> None:
    with pytest.raises(EnvironmentProblem, match="before it reached the step: no driver"):
        rows(([], WorkerExit("died", "environment", "no driver", "")))


def test_a_wrong_timed_output_fails_the_row(rows: Rows) -> None:
    fault = TimingFailed("x", "wrong", "a timed output")
    (first, _), _ = rows(
        ([environment(), shape("x"), checked("x"), WORK, block(1.0), fault, *whole("y")], DONE)
    )
    assert (first.status, first.reason, first.metrics.get("call")) == (
        "wrong",
        "a timed output",
        None,
    )


def test_an_interrupt_keeps_what_was_measured(rows: Rows) -> None:
    found, _ = rows(
        ([environment(), *whole("x"), shape("y"), checked("y"), WORK, block(1.0, 3.0),
          KeyboardInterrupt], None)
    )  # fmt: skip
    first, second, raised = found
    assert raised is KeyboardInterrupt
    assert first.metrics["call"].reps == 4
    assert second.status == "pass"
    assert (second.metrics["call"].reps, second.metrics["call"].method) == (2, "incomplete")
    assert any("interrupted" in note for note in second.notes)


def test_an_interrupt_while_a_row_is_made_waits_for_it(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first import of numpy was cut in two there, could not be repeated, and the row was lost."""
    begun: list[str] = []

    def interrupted(samples: Any, method: str) -> Any:
        assert not begun, "summarized twice"
        begun.append(method)
        signal.raise_signal(signal.SIGINT)
        return metrics.summarize(samples, method)

    monkeypatch.setattr("kernelbench.runs.shape_rows.summarize", interrupted)
    found, _ = rows(([environment(), *whole("x"), *whole("y")], DONE))
    first, raised = found
    assert raised is KeyboardInterrupt
    assert (first.status, first.metrics["call"].reps, begun) == ("pass", 4, ["wall"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_shapes_beyond_the_steps_limits_need_no_worker(rows: Rows) -> None:
    found, launcher = rows(skip={"x": "n differs", "y": "n differs"})
    assert [(r.status, r.reason) for r in found] == [("skipped", "n differs")] * 2
    assert launcher.jobs == []
