"""A function call in a process of its own: of what may crash, hang, print, or runs under a tool.

The call is pickled, ``python -m kernelbench.base.child_process JOB RESULT`` makes it, and the
result comes back as JSON, since the process may have run anybody's code. Long conversations with a
process are :mod:`kernelbench.worker`'s; both end processes with the functions here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from kernelbench.base import schema
from kernelbench.base.errors import EnvironmentProblem, RecordError
from kernelbench.base.json_file import read_json, write_json

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_KILL_LIMIT_S = 20
_EXIT_S = 3
_ANSWER_S = 10  # of a process that is told to end
_MODULE = "kernelbench.base.child_process"
_TELLS = "KERNELBENCH_TELLS"  # a variable: the descriptor of a socket to the parent


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it is gone.

    On Linux (``man 2 prctl``); elsewhere nothing happens.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def queued_s(task: str) -> float:
    """Seconds that a task below ``/proc`` has been ready to run, and has not run; else 0."""
    try:
        with open(f"/proc/{task}/schedstat") as file:  # noqa: PTH123 (between two clocks)
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):  # a kernel that does not count it
        return 0.0


def python_module(name: str) -> list[str]:
    """The command that runs a module of this package in another process.

    No file of the working folder is taken for a module: it may be called as one.
    """
    return [sys.executable, "-P", "-m", name]


def kill_group(pid: int) -> None:
    """Kill a process and all of its group, as far as they are there."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def woken_by_children() -> socket.socket:
    """What can be read from when a child of this process has ended."""
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wakes.detach())
    return woken


def drain(woken: socket.socket) -> None:
    """Take all that is there to be read."""
    with contextlib.suppress(BlockingIOError):
        woken.recv(4096)


def be_fork(body: Callable[[], int | None]) -> NoReturn:
    """Do what a forked process is for, and end it with the code that this returns, 0 for None.

    It ends with 1 and a traceback if that raises: it never goes on in its parent's code.
    """
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = body() or 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code)


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How a call in a child process ended."""

    value: T | None  #: What it returned; None if the process did not come to that.
    code: int  #: Exit code of the process; negative: the signal that ended it.
    #: What the process printed, and a tool around it; empty if that was shown at once.
    output: str = ""
    timed_out: bool = False  #: Whether it was killed for taking too long.
    #: Whether Ctrl-C came, and the process has answered when it was told to end.
    interrupted: bool = False

    @property
    def last_line(self) -> str:
        """The last thing printed, for messages."""
        lines = self.output.strip().splitlines()
        return " ".join(lines[-1].split())[:200] if lines else ""

    @property
    def ended_with(self) -> str:
        """``SIGSEGV``, or ``exit code 3``."""
        return signal.Signals(-self.code).name if self.code < 0 else f"exit code {self.code}"


#: The descriptor, since ``sys.stderr`` of a notebook or a test has none.
_STDERR = 2


def run_in_child(
    function: Callable[..., T],
    arguments: Sequence[Any],
    returns: type[T],
    limit_s: float | None = None,
    *,
    before: tuple[Callable[..., object], Any] | None = None,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    shown: Callable[[], object] | None = None,
    answers_when_told: bool = False,
) -> Outcome[T]:
    """Call a function in a fresh process, of which no process is left afterwards.

    Args:
        function: At the top level of a module.
        arguments: What it is called with; they pickle.
        returns: The dataclass (or plain type) that it returns, decoded by :mod:`base.schema`.
        limit_s: Seconds after which the process is killed; None for no limit.
        before: A function and its argument that make the arguments' classes importable.
        prefix: A tool's command up to the program that it runs; empty for no tool.
        environment: Variables in place of those of this process; None for the same.
        shown: If given, what it prints goes to this process's stderr at once, and it reads this
            process's stdin; called in a thread once the process :func:`is_about_to_print`.
        answers_when_told: Whether the function may return early when SIGTERM comes: after Ctrl-C
            that answer is returned.

    Raises:
        EnvironmentProblem: If the process cannot be started.
        KeyboardInterrupt: After Ctrl-C, if there is no such answer.
    """
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as name:
        job, result, printed = (Path(name) / each for each in ("job", "result", "output"))
        with job.open("wb") as stream:
            pickle.dump(before, stream)
            pickle.dump((function, tuple(arguments), not prefix), stream)
        command = [*prefix, *python_module(_MODULE), str(job), str(result)]
        with printed.open("w+b") as own, contextlib.ExitStack() as stack:
            how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": own, "stderr": own}
            if shown is not None:
                ours, theirs = socket.socketpair()
                stack.enter_context(theirs)
                threading.Thread(target=_hear, args=(ours, shown), daemon=True).start()
                environment = {**(environment or os.environ), _TELLS: str(theirs.fileno())}
                how = {"stdout": _STDERR, "stderr": _STDERR, "pass_fds": [theirs.fileno()]}
            code, stopped = _run(command, limit_s, env=environment, **how)
            own.seek(0)
            text = own.read().decode(errors="replace")
        value = None
        with contextlib.suppress(RecordError, schema.SchemaError):
            value = schema.decode(returns, read_json(result))
        if isinstance(stopped, KeyboardInterrupt) and (value is None or not answers_when_told):
            raise stopped
        timed_out = isinstance(stopped, subprocess.TimeoutExpired)
        return Outcome(value, code, text, timed_out, stopped is not None and not timed_out)


def _run(
    command: Sequence[str], limit_s: float | None, **how: Any
) -> tuple[int, BaseException | None]:
    """Run a command until it ends or its time is up: its exit code, and what stopped it."""
    try:
        process = subprocess.Popen(command, start_new_session=True, **how)
    except OSError as error:
        raise EnvironmentProblem(f"{command[0]} does not run: {error.strerror}") from error
    try:
        return process.wait(limit_s), None
    except subprocess.TimeoutExpired as error:
        return -signal.SIGKILL, error
    except KeyboardInterrupt as error:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_ANSWER_S), error
        raise
    finally:
        # Its own children are in its session, whether it is still there or not.
        kill_group(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_LIMIT_S)


def _hear(child: socket.socket, shown: Callable[[], object]) -> None:
    with child:  # its end is the answer
        if child.recv(1):
            shown()


def is_about_to_print() -> None:
    """In a process whose prints are shown: say so, and return when the parent has heard it."""
    if descriptor := os.environ.pop(_TELLS, ""):
        with socket.socket(fileno=int(descriptor)) as parent:
            parent.send(b".")
            parent.recv(1)


def main() -> None:
    """Make the call of the first argument's file, write what it returns to the second."""
    job, result = map(Path, sys.argv[1:])
    with job.open("rb") as stream:
        if before := pickle.load(stream):
            before[0](before[1])
        function, arguments, with_parent = pickle.load(stream)
    if with_parent:
        end_with_parent()
    write_json(result, function(*arguments))
    ctypes.CDLL(None).fflush(None)  # what C code has printed
    if with_parent:
        # An exit destroys what a thread of somebody's code may still wait for, and waits in turn.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_EXIT_S)


if __name__ == "__main__":
    main()
