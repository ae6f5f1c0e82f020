"""Workers: isolation, the watchdog, and what is left when one ends badly."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.executors.targets import Target
from kernelbench.executors.torch_cpu import TORCH
from kernelbench.measure.results import CheckResult
from kernelbench.project.context import Context
from kernelbench.project.project_file import project_at
from kernelbench.project.shapes import ShapeTable, resolve_shape
from kernelbench.project.step_files import read_submission
from kernelbench.worker.jobs import Arm, RunJob, Timing
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import (
    BlockTimed,
    ClassChecked,
    EnvironmentRead,
    Message,
    MetricMeasured,
    PhaseBegins,
    ShapeBegins,
    WorkCounted,
)

Make = Callable[..., RunJob]


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """One launcher for all tests: each of them must leave it usable."""
    with Launcher() as found:
        yield found


@pytest.fixture
def job(submissions: Path, tmp_path: Path) -> Make:
    """Makes a job for a submission of the suite, or for source text."""
    context = Context(project_at(ROOT))
    problem = context.problems["group_gemm"]

    def make(what: str, limit_s: float = 20.0, timing: Timing | None = None) -> RunJob:
        file = submissions / f"{what}.py"
        if "\n" in what:
            file = tmp_path / "step.py"
            file.write_text(what)
        return RunJob(
            Arm(read_submission(file)),
            context.lineages.lineage("group_gemm"),
            (resolve_shape("m=4:n=128:k=256", problem, ShapeTable()),),
            ("gpu-mode",),
            Target(TORCH, "cpu", None),
            1,
            timing,
            limit_s,
            own_stream=True,
        )

    return make


def last_check(messages: list[Message]) -> CheckResult:
    """What the check of the last class found."""
    last = messages[-1]
    assert isinstance(last, ClassChecked)
    return last.result


def status_of(messages: list[Message]) -> str:
    """How the last class was checked."""
    return last_check(messages).status


def kinds(messages: list[Message]) -> list[type[Any]]:
    return [type(message) for message in messages if not isinstance(message, PhaseBegins)]


def test_a_job_is_done_and_says_what_it_found(launcher: Launcher, job: Make) -> None:
    messages = list(launcher.run(job("right")))
    assert kinds(messages) == [EnvironmentRead, ShapeBegins, ClassChecked]
    assert status_of(messages) == "pass"
    assert launcher.ending is not None
    assert (launcher.ending.kind, launcher.ending.reason) == ("done", "")
    phases = [m.name for m in messages if isinstance(m, PhaseBegins)]
    assert phases[0] == "environment"
    assert "gpu-mode: first call" in phases


def test_timing_reports_each_block_and_the_work(launcher: Launcher, job: Make) -> None:
    timing = Timing(45, 3, "cold", "single", ("call",), 30.0)
    messages = list(launcher.run(job("right", timing=timing)))
    found = kinds(messages)
    assert found[:4] == [EnvironmentRead, ShapeBegins, ClassChecked, WorkCounted]
    assert found[-1] is MetricMeasured
    blocks = [m.block for m in messages if isinstance(m, BlockTimed)]
    assert sum(len(block.values) for block in blocks) == 45
    assert all(t > 0 for block in blocks for t in block.values)
    work = next(m.work for m in messages if isinstance(m, WorkCounted))
    assert work.flops == 2 * 4 * 128 * 256


@pytest.mark.parametrize(
    ("what", "kind", "phase", "said"),
    [
        ("segfault", "died", "gpu-mode: first call", "ended by SIGSEGV"),
        ("exits", "died", "gpu-mode: first call", "left with code 0"),
        ("exits_on_import", "died", "load", "left with code 1 in phase 'load': SystemExit: not t"),
        ("killed", "died", "gpu-mode: first call", "SIGKILL (killed from outside, or out of mem"),
        ("loops_on_import", "hang", "load", "no answer within 1 s in phase 'load'"),
        ("loops_forever", "hang", "gpu-mode: first call", "no answer within 1 s"),
        ("stops_itself", "hang", "gpu-mode: first call", "no answer within 1 s"),
    ],
)
def test_bad_endings_and_the_next_job_still_works(
    what: str, kind: str, phase: str, said: str, launcher: Launcher, job: Make
) -> None:
    messages = list(launcher.run(job(what, 1.0)))
    ending = launcher.ending
    assert ending is not None
    assert (ending.kind, ending.phase) == (kind, phase)
    assert said in ending.reason
    first = messages[0]
    assert isinstance(first, PhaseBegins), "what came before is kept"
    assert first.name == "environment"
    assert status_of(list(launcher.run(job("right")))) == "pass"


def test_the_reason_ends_with_what_the_step_printed_last(launcher: Launcher, job: Make) -> None:
    source = (
        "import os, sys\n"
        "def custom_kernel(data):\n"
        "    print('x' * 100_000)\n"
        "    print('first'); print('device-side assert', flush=True)\n"
        "    os._exit(7)\n"
    )
    list(launcher.run(job(source)))
    assert launcher.ending is not None
    assert launcher.ending.reason.endswith("left with code 7 in phase 'gpu-mode: first call': "
                                           "device-side assert")  # fmt: skip
    assert len(launcher.ending.log) <= 4000
    assert launcher.ending.log.endswith("first\ndevice-side assert")


def test_nothing_of_one_job_reaches_the_next(launcher: Launcher, job: Make) -> None:
    dirty = """
import os, sys, torch
sys.modules["math"] = None
os.environ["KB_LEFT"] = "1"
torch.set_default_dtype(torch.float64)
os.chdir("/")
def custom_kernel(data):
    raise ValueError
"""
    clean = """
import math, os, torch
def custom_kernel(data):
    left = (os.environ.get("KB_LEFT"), str(torch.get_default_dtype()), os.getcwd() == "/")
    raise ValueError(left)
"""
    list(launcher.run(job(dirty)))
    messages = list(launcher.run(job(clean)))
    assert "(None, 'torch.float32', False)" in last_check(messages).reason


def test_each_job_has_a_process_of_its_own(launcher: Launcher, job: Make) -> None:
    source = "import os\ndef custom_kernel(data):\n    raise ValueError(f'pid={os.getpid()}')\n"
    reasons = {last_check(list(launcher.run(job(source)))).reason for _ in range(3)}
    assert len(reasons) == 3


def test_closing_the_messages_early_kills_the_worker(launcher: Launcher, job: Make) -> None:
    source = (
        "import os\n"
        "open(__file__ + '.pid', 'w').write(str(os.getpid()))\n"
        "def custom_kernel(data):\n"
        "    while True: pass\n"
    )
    made = job(source)
    messages = launcher.run(made)
    for message in messages:
        if isinstance(message, PhaseBegins) and message.name == "gpu-mode: first call":
            break
    messages.close()
    assert made.arm.step.entry is not None
    pid = int(made.arm.step.entry.with_name("step.py.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert status_of(list(launcher.run(job("right")))) == "pass"


def test_a_launcher_that_was_killed_is_replaced(launcher: Launcher, job: Make) -> None:
    list(launcher.run(job("kills_launcher")))
    assert launcher.ending is not None
    assert launcher.ending.kind == "died"
    assert status_of(list(launcher.run(job("right")))) == "pass"


def test_a_launcher_that_does_not_answer_is_named(
    job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It, and not the GPU: before a worker is started, and when one has ended."""
    monkeypatch.setattr("kernelbench.worker.launcher._REAP_LIMIT_S", 1.0)
    with Launcher() as frozen:
        worker = frozen.start(job("right"))
        process = frozen._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(EnvironmentProblem, match="process that starts workers does not answer"):
            list(worker.messages())
        worker.close()
        with pytest.raises(EnvironmentProblem, match="process that starts workers does not answer"):
            frozen.start(job("right"))
        process.kill()


def test_time_spent_by_the_reader_is_not_the_workers(launcher: Launcher, job: Make) -> None:
    """A slow terminal or disk must not look like a hang of the step."""
    seen = 0
    for message in launcher.run(job("right", 1.0)):
        if isinstance(message, EnvironmentRead | ShapeBegins):
            seen += 1
            time.sleep(1.2)
    assert seen == 2
    assert launcher.ending is not None
    assert launcher.ending.kind == "done"


def test_no_descriptor_is_left_open(launcher: Launcher, job: Make) -> None:
    list(launcher.run(job("right")))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for what in ("right", "segfault", "right"):
        list(launcher.run(job(what)))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_another_system_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, launcher: Launcher, job: Make
) -> None:
    launcher.close()
    monkeypatch.setattr("kernelbench.worker.launcher.sys.platform", "darwin")
    with pytest.raises(EnvironmentProblem, match=r"take Linux .*; this is darwin"):
        list(launcher.run(job("right")))
