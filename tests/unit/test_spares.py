"""Workers that wait for a job: what they do before there is one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT

from kernelbench import cli
from kernelbench.executors.targets import Target
from kernelbench.executors.torch_cpu import TORCH
from kernelbench.measure import timing
from kernelbench.project.context import Context
from kernelbench.project.model import Lineage
from kernelbench.project.project_file import project_at
from kernelbench.worker import ahead, spares
from kernelbench.worker.jobs import Arm, RunJob
from kernelbench.worker.launcher import Launcher


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes of inputs that are drawn; on a CPU here."""
    found: list[str] = []
    real = timing.draw_input_sets

    def on_cpu(problem: Any, shape: Any, input_class: str, seed: int, _: str, most: int) -> Any:
        found.append(input_class)
        return real(problem, shape, input_class, seed, "cpu", most)

    monkeypatch.setattr(timing, "draw_input_sets", on_cpu)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    return found


def job_file(lineage: Lineage) -> bytes:
    """A job as the launcher gives it to a worker."""
    context = Context(project_at(ROOT))
    shape = context.problems["group_gemm"].parse_shape("s", {"m": 2, "n": 8, "k": 64})
    step = context.lineages.select(["v00"])[0]
    target = Target(TORCH, "cpu", None)
    job = RunJob(Arm(step), lineage, (shape,), ("gpu-mode",), target, 1, None, 1.0, True)
    return b"".join(pickle.dumps(each) for each in (None, lineage, job))


def test_the_problem_of_the_last_job_is_rehearsed(drawn: list[str]) -> None:
    lineage = Context(project_at(ROOT)).lineages.lineage("group_gemm")
    spares.rehearse(job_file(lineage))
    assert drawn == ["gpu-mode"]


def test_no_file_of_a_project_is_run_for_that(drawn: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('was run')\n")
    lineage = Context(project_at(ROOT)).lineages.lineage("group_gemm")
    spares.rehearse(job_file(replace(lineage, path=tmp_path, problem="mine.py:PROBLEM")))
    assert drawn == []


def test_a_launcher_whose_spares_end_starts_workers_all_the_same() -> None:
    """Here is no GPU for them."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    ahead._ahead.append(ahead._begin(1))
    with Launcher() as launcher:
        launcher._start()
        assert ahead._ahead == []
        assert launcher._process is not None
        assert launcher._process.poll() is None


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        (["ab", "v01", "v02"], 1),
        (["ab", "--help"], 0),
        (["ab", "v01", "v02", "--device", "1"], 0),
        (["list"], 0),
        ([], 0),
    ],
)
def test_only_what_times_begins_ahead(
    words: list[str], begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    monkeypatch.setattr(ahead, "begin_ahead", found.append)
    cli._begin_ahead(words)
    assert len(found) == begun
