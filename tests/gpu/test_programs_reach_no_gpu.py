"""``check`` of a program reaches no GPU on a machine that has one: what is opened is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from cuda_programs import PROGRAMS

from kernelbench.machine import devices, toolchain

NVCC = toolchain.nvcc()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not devices.gpus() or NVCC is None, reason="no GPU, or no nvcc"),
]

#: Right ones, that any GPU since Ampere runs.
NAMES = (
    "exits", "flags", "graphs", "groups", "mapped", "norm", "order", "streams", "sums", "variables",
)  # fmt: skip


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("opens") / "opens.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", library, ROOT / "tests" / "gpu" / "opens.c"]
    subprocess.run(command, check=True)
    return library


def opened(counter: Path, folder: Path, *command: object) -> tuple[int, int]:
    """The exit code of a command, and how often it opened one of NVIDIA's device files."""
    log = folder / "opens.log"
    log.unlink(missing_ok=True)
    words = [str(word) for word in command]
    more = {"LD_PRELOAD": str(counter), "OPENS_LOG": str(log), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env={**os.environ, **more}, capture_output=True)
    return done.returncode, len(log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.parametrize("name", NAMES)
def test_a_program(counter: Path, tmp_path: Path, name: str) -> None:
    source = PROGRAMS / f"{name}.cu"
    assert NVCC is not None
    build = [str(NVCC.path), "-arch=native", "-std=c++20", str(source), "-o", str(tmp_path / name)]
    subprocess.run(build, check=True, timeout=200)
    _, natively = opened(counter, tmp_path, tmp_path / name)
    assert natively > 0, "the counter sees what reaches the GPU"
    code, checked = opened(
        counter, tmp_path, sys.executable, "-m", "kernelbench", "check", source,
        "--seed", 1, "--schedules", 1,
    )  # fmt: skip
    assert (code, checked) == (0, 0)


def test_a_script_of_triton(counter: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    script = ROOT / "tests" / "ptx_users" / "scripts" / "vector_add.py"
    code, checked = opened(
        counter, tmp_path, sys.executable, "-m", "kernelbench", "check", script,
        "--seed", 1, "--schedules", 1,
    )  # fmt: skip
    assert (code, checked) == (0, 0)
