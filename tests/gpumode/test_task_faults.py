"""A task that raises, hangs or contradicts itself is at fault itself, in one line."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import launch
from test_tasks import TASKS

from kernelbench.executors.targets import TORCH
from kernelbench.problems.task_folder import task_context
from kernelbench.records.run_record import Result
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import Runner
from kernelbench.worker.launcher import Launcher


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as launcher:
        yield launcher


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the ``relu`` task with the ``utils.py`` beside it."""
    shutil.copytree(TASKS / "relu", tmp_path / "relu")
    shutil.copy(TASKS / "utils.py", tmp_path)
    return tmp_path / "relu"


def rows(launcher: Launcher, folder: Path, step: str = "right") -> list[Result]:
    """The rows of the first test."""
    context = task_context(folder)
    spec = step if step == "reference" else str(folder / f"{step}.py")
    (run,) = plan(context, [spec], ["test0"], TORCH.name, [], 0, warn=print)
    return list(Runner(launcher, seed=7, timing=None, call_limit_s=60).run(run))


GENERATE, CHECK = "    torch.manual_seed(seed)\n", "    if output.dtype != torch.float32:\n"
REFER = "    return torch.relu(data)\n"
#: By what the task does: what is replaced by what, the status, and what is said.
FAULTS = {
    "the generator raises": (
        GENERATE, "    raise RuntimeError('no such thing')\n", "problem",
        "reference.py:6: generate_input(n=1000 seed=1) raised RuntimeError: no such thing",
    ),
    "the generator leaves": (
        GENERATE, "    raise SystemExit(3)\n", "problem", "raised SystemExit: 3",
    ),
    "importing raises": (
        "import torch\n", "import torch\n\n1 / 0\n", "problem",
        "importing reference.py raised ZeroDivisionError",
    ),
    "the reference needs what a CPU lacks": (
        REFER, "    raise ValueError('x' * 400 + ' Got mat_a.dtype()=Float4_e2m1fn_x2')\n",
        "reference", "xxx...; the task may need a GPU",
    ),
    "the reference raises": (
        REFER, "    return torch.rleu(data)\n", "reference",
        "ref_kernel raised AttributeError: module 'torch' has no attribute 'rleu'",
    ),
    "the check raises": (
        CHECK, "    output = output + nothing\n" + CHECK, "problem",
        "check_implementation raised NameError",
    ),
    "the check gives no verdict": (
        CHECK, "    return 3.5\n" + CHECK, "problem",
        "check_implementation returned float: expected (bool, str), str or bool",
    ),
    "the reference is wrong": (
        CHECK, "    return 'never right'\n" + CHECK, "reference",
        "the task's own ref_kernel is wrong by its check_implementation (test0): never right",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_task_at_fault(name: str, launcher: Launcher, folder: Path) -> None:
    old, new, status, said = FAULTS[name]
    text = (folder / "reference.py").read_text()
    assert old in text
    (folder / "reference.py").write_text(text.replace(old, new))
    found = rows(launcher, folder)
    assert found[0].status == status, found[0].reason
    assert said in found[0].reason
    assert "\n" not in found[0].reason


def test_a_task_that_hangs(launcher: Launcher, folder: Path) -> None:
    text = (folder / "task.yml").read_text() + "test_timeout: 1\nbenchmark_timeout: 1\n"
    (folder / "task.yml").write_text(text)
    endless = "    while True:\n        pass\n"
    text = (folder / "reference.py").read_text().replace(GENERATE, endless)
    (folder / "reference.py").write_text(text)
    found = rows(launcher, folder)
    assert found[0].status == "problem"
    assert "no answer within 1 s in phase 'fresh-seed: inputs'" in found[0].reason


def test_the_command_leaves_with_2(folder: Path) -> None:
    text = (folder / "reference.py").read_text().replace(REFER, "    raise ValueError('never')\n")
    (folder / "reference.py").write_text(text)
    done = launch("run", "reference", "--task", folder, "--shape", "test0", "--no-save")
    assert done.code == 2
    assert "ref_kernel raised ValueError: never" in done.error


def test_data_whose_form_depends_on_the_seed(launcher: Launcher, folder: Path) -> None:
    text = (folder / "reference.py").read_text()
    text = text.replace("return torch.randn(n,", "return torch.randn(n + seed % 50,")
    (folder / "reference.py").write_text(text)
    found = rows(launcher, folder, "reference")
    assert [row.status for row in found] == ["pass", "pass"]
    assert "data of different forms" in found[0].notes[0]


def test_a_generator_that_ignores_its_seed(launcher: Launcher, folder: Path) -> None:
    text = (folder / "reference.py").read_text()
    text = text.replace(GENERATE, "    torch.seed()\n").replace("import torch\n", "import torch\n")
    (folder / "reference.py").write_text(text)
    found = rows(launcher, folder, "reference")
    assert [(row.status, row.reason) for row in found] == [("pass", ""), ("pass", "")]


def test_a_result_in_memory_of_the_submissions_own(launcher: Launcher, folder: Path) -> None:
    (folder / "keeps.py").write_text(
        "import torch\n\n_kept = {}\n\n\ndef custom_kernel(data):\n"
        "    out = _kept.setdefault(data.shape, torch.empty_like(data))\n"
        "    return torch.clamp(data, min=0, out=out)\n"
    )
    found = rows(launcher, folder, "keeps")
    assert [(row.status, row.reason) for row in found] == [("pass", ""), ("pass", "")]
