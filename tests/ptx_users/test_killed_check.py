"""A ``check`` of a file that is killed: the process that it started goes with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, environment_of

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


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_killed_check_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SCRIPT)
    command = subprocess.Popen(
        [sys.executable, "-m", "kernelbench", "check", "slow.py"],
        cwd=tmp_path, env=environment_of(ROOT), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    told = tmp_path / "pid"
    _wait_for("the script has not started", lambda: told.is_file() and told.read_text()[-1:])
    script = int(told.read_text())
    assert script != command.pid
    os.kill(command.pid, 9)
    command.wait()
    _wait_for("the script goes on", lambda: not _runs(script))
