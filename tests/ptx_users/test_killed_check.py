"""A ``check`` of a file that is killed: the process that it started goes with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, environment_of

from kernelbench.machine import toolchain

SCRIPT = """
import os, time
from pathlib import Path

Path("pid").write_text(f"{os.getpid()}\\n")
time.sleep(600)
"""
#: Far more than it takes; a process that stays fails the test, however long.
LIMIT_S = 120


def _wait_for(what: str, fulfilled: Callable[[], object]) -> None:
    until = time.monotonic() + LIMIT_S
    while not fulfilled():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A check of a script that sleeps, and the script's process; temporary files lie in tmp."""
    (tmp_path / "slow.py").write_text(SCRIPT)
    (tmp_path / "tmp").mkdir()
    command = subprocess.Popen(
        [sys.executable, "-m", "kernelbench", "check", "slow.py"],
        cwd=tmp_path, env=environment_of(ROOT) | {"TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # nohup ignores it
    )  # fmt: skip
    told = tmp_path / "pid"
    _wait_for("the script has not started", lambda: told.is_file() and told.read_text()[-1:])
    script = int(told.read_text())
    assert script != command.pid
    yield command, script
    command.kill()
    command.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_killed_check_leaves_no_process(started: tuple[subprocess.Popen[bytes], int]) -> None:
    command, script = started
    command.kill()
    command.wait()
    _wait_for("the script goes on", lambda: not _runs(script))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_check_that_is_told_to_end_leaves_nothing(
    started: tuple[subprocess.Popen[bytes], int], tmp_path: Path, number: int
) -> None:
    """As after Ctrl-C: no process, no file."""
    command, script = started
    command.send_signal(number)
    assert command.wait(LIMIT_S) == 130
    assert not _runs(script)
    assert not [each for each in (tmp_path / "tmp").glob("kernelbench-*") if any(each.iterdir())]


def test_a_build_ends_with_its_check(tmp_path: Path) -> None:
    build = f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 600; true"
    command = subprocess.Popen(
        [sys.executable, "-m", "kernelbench", "check", "--build", build],
        env=environment_of(ROOT), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    told = tmp_path / "pid"
    _wait_for("the build has not started", lambda: told.is_file() or command.poll() is not None)
    if not told.is_file():
        pytest.skip("no nvcc")
    command.send_signal(signal.SIGTERM)
    assert command.wait(LIMIT_S) == 130
    assert not _runs(int(told.read_text()))


_ENDLESS = """
#include <cstdio>
__global__ void step(int* x) { x[threadIdx.x] = 1; }
int main() {
  int* x;
  cudaMalloc(&x, 4);
  for (int i = 0;; ++i) {
    step<<<1, 2>>>(x);  // one more than there are
    cudaDeviceSynchronize();
    cudaGetLastError();
    if (i == 3) std::fclose(std::fopen("begun", "w"));
  }
}
"""


@pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
def test_what_was_found_is_said_of_a_main_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "endless.cu").write_text(_ENDLESS)
    command = subprocess.Popen(
        [sys.executable, "-m", "kernelbench", "check", "endless.cu"],
        cwd=tmp_path, env=environment_of(ROOT), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_for("main has not begun", lambda: (tmp_path / "begun").exists() or command.poll())
    command.send_signal(signal.SIGINT)
    out, _ = command.communicate(timeout=LIMIT_S)
    assert command.returncode == 130, out
    assert "error[out-of-bounds]" in out and "interrupted: main had not ended: " in out, out
