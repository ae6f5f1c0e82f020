"""Sessions that are prepared side by side: each waits at its gate, and they are timed in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.compare import comparer
from kernelbench.compare.comparer import ArmFailure, Comparer
from kernelbench.compare.session_samples import SessionSamples
from kernelbench.executors.targets import Target
from kernelbench.executors.torch_cpu import TORCH
from kernelbench.project.context import Context
from kernelbench.project.project_file import project_at
from kernelbench.project.shapes import ShapeTable, resolve_shape
from kernelbench.project.step_files import read_submission
from kernelbench.worker.jobs import Arm, CompareJob, Timing
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import ArmChecked, BlockTimed, MetricMeasured, WorkCounted

TIMING = Timing(8, 1, "cold", "single", ("call",), 5.0)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as found:
        yield found


@pytest.fixture
def job(submissions: Path) -> CompareJob:
    context = Context(project_at(ROOT))
    problem = context.problems["group_gemm"]
    arm = Arm(read_submission(submissions / "right.py"))
    return CompareJob(
        base=arm,
        cand=arm,
        lineage=context.lineages.lineage("group_gemm"),
        shape=resolve_shape("m=4:n=128:k=256", problem, ShapeTable()),
        classes=("gpu-mode", "full", "structured"),
        target=Target(TORCH, "cpu", None),
        seed=1,
        timing=TIMING,
        blocks=4,
        quads=1,
        check=True,
        call_limit_s=20.0,
        own_stream=True,
        gated=True,
    )


def test_nothing_is_timed_before_the_word(launcher: Launcher, job: CompareJob) -> None:
    workers = [launcher.start(replace(job, share=(i, 2), seed=i)) for i in range(2)]
    try:
        before = [list(worker.until_prepared()) for worker in workers]
        assert not any(isinstance(m, BlockTimed) for messages in before for m in messages)
        assert all(any(isinstance(m, WorkCounted) for m in messages) for messages in before)
        # Each check is made once, by one of them.
        made = [(m.arm, m.inputs) for found in before for m in found if isinstance(m, ArmChecked)]
        assert sorted(made) == sorted((a, c) for a in ("base", "cand") for c in job.classes)
        for worker in reversed(workers):
            worker.go()
            timed = [m for m in worker.messages() if isinstance(m, BlockTimed)]
            assert len(timed) == 4
            assert worker.ending is not None
            assert worker.ending.kind == "done"
    finally:
        for worker in workers:
            worker.close()


def test_one_that_is_not_told_to_go_on_ends_with_its_reader(
    launcher: Launcher, job: CompareJob
) -> None:
    worker = launcher.start(replace(job, check=False))
    list(worker.until_prepared())
    worker.release()
    assert not list(worker.messages())
    ending = worker.ending
    assert ending is not None
    assert ending.kind == "died"
    worker.close()


def a_comparer(launcher: Launcher, job: CompareJob, cand: Path | None = None) -> Comparer:
    step = read_submission(cand) if cand else job.cand.step
    return Comparer(
        launcher, job.base.step, step, job.lineage, job.target, job.classes, TIMING, 1, 20.0
    )


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    monkeypatch.setattr(comparer, "prepared_together", lambda _target: 2)


@pytest.mark.usefixtures("side_by_side")
def test_every_session_has_its_times(launcher: Launcher, job: CompareJob) -> None:
    collected = SessionSamples(job.shape)
    with a_comparer(launcher, job) as found:
        found.collect(collected, 3)
    assert len(collected.sessions["call"]) == len(collected.session_s) == 3
    assert [each["session"] for each in collected.raw] == [0, 1, 2]


@pytest.mark.usefixtures("side_by_side")
def test_what_is_wrong_is_found_whoever_checks_it(
    launcher: Launcher, job: CompareJob, submissions: Path
) -> None:
    wrong = a_comparer(launcher, job, submissions / "ignores_scales.py")
    with pytest.raises(ArmFailure, match="ignores_scales"):
        wrong.collect(SessionSamples(job.shape), 2)


@pytest.mark.usefixtures("side_by_side")
def test_without_memory_for_several_they_are_prepared_one_by_one(
    launcher: Launcher, job: CompareJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = a_comparer(launcher, job)
    real, groups = Comparer._sessions, []

    def sessions(self: Comparer, collected: SessionSamples, group: range, of: int) -> None:
        groups.append(group)
        if len(group) > 1:
            raise comparer._NotPrepared
        real(self, collected, group, of)

    monkeypatch.setattr(Comparer, "_sessions", sessions)
    collected = SessionSamples(job.shape)
    with found:
        found.collect(collected, 2)
    assert [len(group) for group in groups] == [2, 1, 1]
    assert len(collected.sessions["call"]) == 2


def test_arms_without_a_time_are_not_compared(launcher: Launcher, job: CompareJob) -> None:
    """A submission that no graph can hold, judged apart: there is nothing to compare."""
    told = MetricMeasured("s", "device", "none", ("no device time: capture failed",), 0.0)
    with pytest.raises(ArmFailure, match=r"no device time: capture failed; compare call times"):
        a_comparer(launcher, job)._take(SessionSamples(job.shape), told)
