"""Worker processes: one per step, isolated, watched.

The command line never imports torch or a step. It starts one *launcher* (``child.py``), a
process that imports torch once, before any CUDA context exists, and forks a fresh worker for each
job. A worker has its own process group, CUDA context and log; it reports messages, one JSON object
a line, through a pipe of its own. Before anything that may take long it announces the phase with a
time limit; the watchdog kills a worker that outlasts its phase. Whatever happens to a worker, its
messages up to then are kept, and the next job gets a fresh one.

What this protects from: crashes, CUDA faults, hangs, running out of memory, noise on stdout, and
state left behind by a step. On a CPU a worker has its submission in yet another process
(:mod:`kernelbench.worker.judge`), which cannot reach what judges it. What none of this protects
from: a step is code that runs as you, with your files and network; run only submissions that you
would run by hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.measure.outcomes import Whose
from kernelbench.records.run_record import ResultStatus
from kernelbench.worker.jobs import processes_apart
from kernelbench.worker.messages import JobDone, Message, PhaseBegins, decode_message

_START_LIMIT_S = 180.0
_REAP_LIMIT_S = 60.0
_LOG_TAIL = 4000
#: Phases in which a step's file is imported, and none of its kernels is called.
_LOADING = ("load", "build and load")


@dataclass(frozen=True)
class Ending:
    """How a worker ended.

    Attributes:
        kind: ``done``, ``hang`` (killed by the watchdog) or ``died``.
        phase: The phase that it was in.
        reason: Empty for ``done``; else one line.
        log: The end of what the worker and its step printed.
        status: What the ending is for a row: ``hang`` or ``fault`` of the step; the problem's, its
            reference's or the machine's, if theirs was the phase and no step's code is to blame.
    """

    kind: str
    phase: str
    reason: str
    log: str
    status: ResultStatus = "fault"


class Launcher:
    """The process that forks workers. Use as a context manager; one job runs at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.ending: Ending | None = None

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the launcher; a worker of it dies with it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None

    def _start(self) -> socket.socket:
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        if sys.platform != "linux":
            raise EnvironmentProblem(
                f"steps run in processes that take Linux (prctl, SOCK_SEQPACKET); this is "
                f"{sys.platform}",
                "use a Linux container or virtual machine; list, diff, lineage and show work here",
            )
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kernelbench.worker.child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        ready, _, _ = select.select([ours], [], [], _START_LIMIT_S)
        if not ready or not ours.recv(64):
            stderr = b""
            if self._process.stderr is not None:
                self._process.kill()
                stderr = self._process.stderr.read()
            self.close()
            lines = stderr.decode(errors="replace").strip().splitlines()
            if lines and lines[-1] == "ModuleNotFoundError: No module named 'torch'":
                raise EnvironmentProblem(
                    "running steps takes torch, which is not installed",
                    "pip install torch; without a GPU its CPU build is enough",
                )
            raise EnvironmentProblem(
                f"the worker process cannot start: {lines[-1] if lines else 'no answer'}",
                "see `kernelbench doctor`",
            )
        return ours

    def run(self, job: Any) -> Iterator[Message]:
        """Run a job (an object of ``jobs.py``) in a fresh worker and yield its messages.

        After the last message, :attr:`ending` says how the worker ended. Closing the iterator early
        (Ctrl-C included) kills the worker.

        Raises:
            EnvironmentProblem: If no worker can be started.
        """
        self.ending = None
        control = self._start()
        read_end, write_end = os.pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in the finally below)
        try:
            with tempfile.TemporaryFile() as job_file:
                # Before the job, whose shapes may be of a class from the lineage's problem file.
                pickle.dump(getattr(job, "lineage", None), job_file)
                pickle.dump(job, job_file)
                job_file.flush()
                job_file.seek(0)
                apart = str(processes_apart(job)).encode()
                socket.send_fds(control, [apart], [write_end, log.fileno(), job_file.fileno()])
            os.close(write_end)
            write_end = -1
            pid = int(json.loads(control.recv(256))["pid"])
            yield from self._watch(control, read_end, pid, log)
        finally:
            if write_end >= 0:
                os.close(write_end)
            os.close(read_end)
            log.close()

    def _watch(
        self, control: socket.socket, read_end: int, pid: int, log: IO[bytes]
    ) -> Iterator[Message]:
        phase, limit, began = "start", _START_LIMIT_S, time.monotonic()
        whose: Whose = "machine"
        stepped = False
        buffer = b""
        finished = False
        reaped = False
        try:
            while True:
                left = began + limit - time.monotonic()
                ready, _, _ = select.select([read_end], [], [], max(0.0, left))
                if not ready:
                    _kill(pid)
                    self._reap(control)
                    reaped = True
                    reason = f"no answer within {limit:g} s in phase '{phase}'"
                    status: ResultStatus = "hang" if whose == "step" else whose
                    self.ending = Ending("hang", phase, reason, _tail(log), status)
                    return
                chunk = os.read(read_end, 1 << 16)
                if not chunk:
                    break
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    message = decode_message(line)
                    if isinstance(message, PhaseBegins):
                        phase, limit, whose = message.name, message.limit_s, message.whose
                        stepped = stepped or (whose == "step" and phase not in _LOADING)
                        began = time.monotonic()
                    elif isinstance(message, JobDone):
                        finished = True
                        break
                    yield message
                    if not isinstance(message, PhaseBegins):
                        # The reader's own work between messages is not the worker's time.
                        began = time.monotonic()
                if finished:
                    # No waiting for the pipe's end: a process that the step left behind holds it.
                    break
            code = self._reap(control)
            reaped = True
            if finished:
                self.ending = Ending("done", phase, "", _tail(log))
            else:
                text = _tail(log)
                reason = _describe_death(code, phase, text)
                # Once a step's code has run, others' code may trip over what it has broken.
                of = "fault" if stepped or whose == "step" else whose
                self.ending = Ending("died", phase, reason, text, of)
        finally:
            if not reaped:
                _kill(pid)
                with contextlib.suppress(OSError, ValueError):
                    self._reap(control)

    @staticmethod
    def _reap(control: socket.socket) -> int:
        """The wait status of the worker, from the launcher."""
        control.settimeout(_REAP_LIMIT_S)
        try:
            return int(json.loads(control.recv(256) or b'{"status": 9}')["status"])
        except TimeoutError as error:
            # A killed process can linger in the driver; nothing more can run beside it.
            raise EnvironmentProblem(
                f"a killed worker has not gone within {_REAP_LIMIT_S:g} s",
                "the GPU may be hung: see `nvidia-smi`",
            ) from error
        finally:
            control.settimeout(None)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _tail(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LOG_TAIL))
    return log.read().decode(errors="replace").strip()


def _describe_death(status: int, phase: str, log: str) -> str:
    last = log.splitlines()[-1].strip()[:200] if log else ""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name
        why = " (killed from outside, or out of memory)" if number == signal.SIGKILL else ""
        text = f"the worker was ended by {name}{why} in phase '{phase}'"
    else:
        text = f"the worker left with code {os.waitstatus_to_exitcode(status)} in phase '{phase}'"
    return f"{text}: {last}" if last else text
