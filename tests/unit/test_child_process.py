"""A call in a process of its own: what comes back, and how its end is told."""

from __future__ import annotations

import math
import operator
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelbench.base.child_process import Outcome, run_in_child
from kernelbench.base.errors import EnvironmentProblem


def test_what_a_call_returns_and_prints() -> None:
    found = run_in_child(math.factorial, [5], int)
    assert found == Outcome(120, 0)
    printed = run_in_child(print, ["a", "b\n", "last  line"], int)
    assert (printed.value, printed.code) == (None, 0)
    assert printed.last_line == "last line"


def test_what_is_not_the_type_is_no_value() -> None:
    assert run_in_child(operator.add, ["a", "b"], int).value is None


def test_how_a_process_ended() -> None:
    aborted = run_in_child(os.abort, [], int)
    assert (aborted.value, aborted.ended_with) == (None, "SIGABRT")
    left = run_in_child(sys.exit, [3], int)
    assert (left.value, left.ended_with, left.timed_out) == (None, "exit code 3", False)
    raised = run_in_child(operator.truediv, [1, 0], float)
    assert raised.last_line == "ZeroDivisionError: division by zero"


def test_an_exit_that_has_no_end_takes_nothing_away() -> None:
    code = "import atexit, time; atexit.register(time.sleep, 600)"
    found = run_in_child(eval, [f"exec({code!r}) or 5"], int)
    assert (found.value, found.ended_with) == (5, "SIGALRM")


def test_no_process_is_left() -> None:
    hung = run_in_child(time.sleep, [600], int, 1.0)
    assert (hung.value, hung.timed_out, hung.ended_with) == (None, True, "SIGKILL")
    started = run_in_child(os.system, ["sleep 600 & echo $!"], int)
    assert started.value == 0
    until = time.monotonic() + 30
    while Path(f"/proc/{started.last_line}/cmdline").exists() and time.monotonic() < until:
        if not Path(f"/proc/{started.last_line}/cmdline").read_bytes():
            return  # a zombie, whose new parent has not asked for it
        time.sleep(0.05)
    assert not Path(f"/proc/{started.last_line}").exists()


def test_what_goes_before_and_around(tmp_path: Path) -> None:
    before = run_in_child(os.getcwd, [], str, before=(os.chdir, tmp_path))
    assert before.value == str(tmp_path)
    around = run_in_child(math.factorial, [3], int, prefix=["env", "KB_TEST=1"])
    assert around.value == 6
    seen = run_in_child(os.getenv, ["KB_TEST"], str, environment=os.environ | {"KB_TEST": "x"})
    assert seen.value == "x"
    with pytest.raises(EnvironmentProblem, match="/no/tool does not run"):
        run_in_child(math.factorial, [3], int, prefix=["/no/tool"])


def test_what_is_shown_goes_to_stderr_at_once() -> None:
    code = (
        "import io, sys; from kernelbench.base.child_process import run_in_child\n"
        "if sys.argv[1:]: sys.stderr = io.StringIO()\n"
        "assert run_in_child(print, ['seen'], int, shown=list).output == ''"
    )
    for arguments in ([], ["notebook"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"seen\n")
