"""Commands where torch is not installed: what needs none works, and the rest says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import ROOT, Outcome, launch, python_path

from kernelbench.base.errors import TORCH_HINT
from kernelbench.machine import toolchain

#: As Python is where torch is absent.
ABSENT = """
import importlib.machinery
import sys

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
"""
LAUNCHES = """
[arrays]
a = "float32[100] random"

[[launch]]
kernel = "add"
grid = 4
block = 32
args = ["a", "a", "a", 100]
"""
PROGRAM = "__global__ void k() {}\nint main() { k<<<1, 1>>>(); return cudaDeviceSynchronize(); }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of every kind that is checked."""
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "sitecustomize.py").write_text(ABSENT)
    shutil.copy(ROOT / "tests" / "ptx_frontend" / "small.ptx", tmp_path / "k.ptx")
    (tmp_path / "k.toml").write_text(LAUNCHES)
    (tmp_path / "k.cu").write_text(PROGRAM)
    (tmp_path / "script.py").write_text("import triton\n")
    (tmp_path / "submission.py").write_text("def custom_kernel(data):\n    return data\n")
    return tmp_path


def called(folder: Path, words: str) -> Outcome:
    arguments = [folder / each if (folder / each).is_file() else each for each in words.split()]
    path = {"PYTHONPATH": python_path(folder / "absent", ROOT)}
    return launch(*arguments, env=path)


@pytest.mark.parametrize(
    "words",
    [
        "list", "lineage", "diff v06 v07", "log", "roofline", "cache", "inspect --help",
        "check k.ptx --schedules 1",
        pytest.param(
            "check k.cu --schedules 1",
            marks=pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc"),
        ),
    ],
)  # fmt: skip
def test_what_needs_no_torch(folder: Path, words: str) -> None:
    outcome = called(folder, words)
    assert outcome.code == 0, outcome.out + outcome.err


@pytest.mark.parametrize(
    "words",
    [
        "run v22 --shape D", "check v22 --shape D", "check script.py",
        "run submission.py --shape D",
        "doctor --problem group_gemm", "serve",
    ],
)  # fmt: skip
def test_what_takes_torch_says_how_to_have_it(folder: Path, words: str) -> None:
    outcome = called(folder, words)
    assert outcome.code == 5, outcome.out + outcome.err
    assert "takes torch, which is not installed" in outcome.error
    assert outcome.error.endswith(TORCH_HINT)


def test_a_project_whose_problem_imports_torch(folder: Path) -> None:
    """It is the environment that lacks something, and not the problem that is wrong."""
    assert called(folder, f"init {folder / 'mine'}").code == 0
    path = {"PYTHONPATH": python_path(folder / "absent", ROOT)}
    outcome = launch("run", "rmsnorm", root=folder / "mine", env=path)
    assert outcome.code == 5, outcome.out + outcome.err
    assert "takes torch, which is not installed" in outcome.error
    assert outcome.error.endswith(TORCH_HINT)


def test_nothing_is_built_for_what_cannot_run(folder: Path) -> None:
    path = {"PYTHONPATH": python_path(folder / "absent", ROOT)}
    env = path | {"KERNELBENCH_CACHE": str(folder / "cache")}
    for words in (("run", "v22", "--shape", "D"), ("check", "v22", "--shape", "D"), ("demo",)):
        outcome = launch(*words, env=env)
        assert outcome.code == 5 and "takes torch" in outcome.error, words
        assert words != ("demo",) or not outcome.out
    assert not list(folder.glob("cache/builds/*"))


def test_list_says_that_no_step_runs(folder: Path) -> None:
    out = called(folder, "list v06 v07").out
    assert out.count(" no (torch) ") == 2 and "emulator" not in out
    assert "`kernelbench doctor` says why" in out


def test_doctor_says_that_it_is_missing(folder: Path) -> None:
    outcome = called(folder, "doctor")
    assert outcome.code == 5 and "not installed: steps, scripts" in " ".join(outcome.out.split())
    assert "steps need torch" in " ".join(outcome.out.split())
    assert "no step can run here: no executor works; .cu and .ptx files need none" in outcome.out
