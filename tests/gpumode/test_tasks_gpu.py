"""The tasks of ``test_tasks.py`` on a GPU, and cheats that only a GPU allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_tasks import NAMES, TASKS, rows

from kernelbench.executors.targets import GPU
from kernelbench.machine import devices
from kernelbench.worker.launcher import Launcher

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not devices.gpus(), reason=devices.gpu_problem() or "no GPU"),
]


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as launcher:
        yield launcher


@pytest.mark.parametrize("task", NAMES)
@pytest.mark.parametrize("step", ["reference", "right"])
def test_right(launcher: Launcher, task: str, step: str) -> None:
    found = rows(launcher, task, step, GPU.name)
    assert [(row.shape, row.status, row.reason) for row in found if row.status != "pass"] == []


@pytest.mark.parametrize("task", NAMES)
def test_cheat(launcher: Launcher, task: str) -> None:
    found = rows(launcher, task, "cheat", GPU.name)
    fresh = [row for row in found if row.inputs == "fresh-seed"]
    assert {row.status for row in fresh} == {"wrong"}, [(r.shape, r.reason) for r in fresh]


@pytest.mark.parametrize("step", sorted(path.stem for path in TASKS.glob("*/gpu_*.py")))
def test_work_that_goes_on_elsewhere(launcher: Launcher, step: str) -> None:
    found = rows(launcher, "vectoradd", step, GPU.name)
    assert "wrong" in {row.status for row in found}
    reasons = [row.reason for row in found if row.status == "wrong"]
    assert all("not ordered with the current stream" in reason for reason in reasons)
