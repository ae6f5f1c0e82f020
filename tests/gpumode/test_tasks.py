"""Fifteen tasks in GPU MODE's format: each judges its reference and what is right as right.

Beside them, in every folder, ``wrong.py`` computes something else and ``cheat.py`` tries to be
right without computing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelbench.executors.targets import TORCH
from kernelbench.problems.task_folder import task_context
from kernelbench.records.run_record import Result
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import Runner
from kernelbench.worker.launcher import Launcher

TASKS = Path(__file__).parent / "tasks"
NAMES = sorted(path.parent.name for path in TASKS.glob("*/task.yml"))
#: Replaces a builtin function, in its own process, and is right.
HARMLESS = "no_seed"
#: What the first failing row says of a cheat. What it replaces in torch is its own process's.
CAUGHT = {
    "conv2d": "shape (), expected",
    "gated": "is a Anything: expected a tensor",
    "gemm_fp16": "overwrote its inputs",
    "gemm_fp8": "elements differ",
    "group_gemm": "elements differ",
    "histogram": "mismatch found: 256 elements differ",
    "kv_append": "elements differ",
    "prefixsum": "elements differ",
    "qr": "residual",
    "quantize": "output elements were never written",
    "relu": "overwrote its inputs",
    "sort": "check_implementation says so",
    "vectoradd": "elements differ",
    "vectorsum": "is not",
}


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as launcher:
        yield launcher


def rows(launcher: Launcher, task: str, step: str, executor: str = TORCH.name) -> list[Result]:
    """The rows of every test and benchmark of a task."""
    context = task_context(TASKS / task)
    spec = step if step == "reference" else str(TASKS / task / f"{step}.py")
    (run,) = plan(context, [spec], ["every"], executor, [], 0, warn=print)
    runner = Runner(launcher, seed=7, timing=None, call_limit_s=60)
    return list(runner.run(run))


def test_there_are_tasks_of_many_kinds() -> None:
    assert len(NAMES) >= 10
    assert sorted([*CAUGHT, HARMLESS]) == NAMES


@pytest.mark.parametrize("task", NAMES)
@pytest.mark.parametrize("step", ["reference", "right"])
def test_right(launcher: Launcher, task: str, step: str) -> None:
    found = rows(launcher, task, step)
    shapes = task_context(TASKS / task).task.shapes
    assert {row.shape for row in found} == {shape.name for shape in shapes}
    assert [(row.shape, row.status, row.reason) for row in found if row.status != "pass"] == []


@pytest.mark.parametrize("task", NAMES)
def test_wrong(launcher: Launcher, task: str) -> None:
    found = rows(launcher, task, "wrong")
    assert {row.status for row in found} <= {"wrong", "pass"}
    # A task's smallest test need not show the fault; most do.
    failed = [row for row in found if row.status == "wrong"]
    assert len(failed) * 2 >= len(found), [(row.shape, row.reason) for row in found]
    assert all(row.reason for row in failed)


@pytest.mark.parametrize("task", CAUGHT)
def test_cheat(launcher: Launcher, task: str) -> None:
    found = rows(launcher, task, "cheat")
    fresh = [row for row in found if row.inputs == "fresh-seed"]
    assert {row.status for row in fresh} == {"wrong"}, [(r.shape, r.reason) for r in fresh]
    assert CAUGHT[task] in fresh[0].reason


def test_what_a_submission_replaces_is_its_own(launcher: Launcher) -> None:
    found = rows(launcher, HARMLESS, "cheat")
    assert {row.status for row in found} == {"pass"}, [(r.shape, r.reason) for r in found]
