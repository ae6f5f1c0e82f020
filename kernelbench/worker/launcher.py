"""Worker processes: one per step, isolated, watched.

The command line never imports torch or a step. It starts one *launcher* (``fork_server.py``), a
process that imports torch once, before any CUDA context exists, and forks a fresh worker for each
job. A worker has its own process group, CUDA context and log; it reports messages, one JSON object
a line, through a pipe of its own. Before anything that may take long it announces the phase with a
time limit; the watchdog kills a worker that outlasts its phase. Whatever happens to a worker, its
messages up to then are kept, and the next job gets a fresh one.

What this protects from: crashes, CUDA faults, hangs, running out of memory, noise on stdout, and
state left behind by a step. On a CPU a worker has its submission in yet another process
(:mod:`kernelbench.isolation.sandbox`), which cannot reach what judges it. What none of this
protects from: a step is code that runs as you, with your files and network; run only submissions
that you would run by hand.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, ProblemError
from kernelbench.machine.devices import require_torch
from kernelbench.worker import served
from kernelbench.worker.jobs import processes_apart
from kernelbench.worker.messages import Message
from kernelbench.worker.worker_handle import START_LIMIT_S, WorkerExit, WorkerHandle

__all__ = ["Launcher", "WorkerExit"]

_REAP_LIMIT_S = 60.0


class Launcher:
    """The process that forks workers: one of its own, or one that ``kernelbench serve`` keeps.

    Use as a context manager.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = False
        #: Wait statuses of workers that nobody has asked for yet.
        self._statuses: dict[int, int] = {}
        self.ending: WorkerExit | None = None

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
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

    def begin(self) -> None:
        """Start the launcher and wait for no import; EnvironmentProblem if not on Linux."""
        if self._control is not None and (self._process is None or self._process.poll() is None):
            return
        if sys.platform != "linux":
            raise EnvironmentProblem(
                f"steps run in processes that take Linux (prctl, SOCK_SEQPACKET); this is "
                f"{sys.platform}",
                "use a Linux container or virtual machine; list, diff, lineage and show work here",
            )
        self.close()
        self._process, self._control = served.begun()
        self._ready = self._process is None

    def _start(self) -> socket.socket:
        self.begin()
        ours, process = self._control, self._process
        assert ours is not None
        if self._ready:
            return ours
        assert process is not None
        ready, _, _ = select.select([ours], [], [], START_LIMIT_S)
        if not ready or not ours.recv(64):
            stderr = b""
            if process.stderr is not None:
                process.kill()
                stderr = process.stderr.read()
            self.close()
            lines = stderr.decode(errors="replace").strip().splitlines()
            require_torch("running steps")
            raise EnvironmentProblem(
                f"the worker process cannot start: {lines[-1] if lines else 'no answer'}",
                "see `kernelbench doctor`",
            )
        self._ready = True
        return ours

    def run(self, job: Any) -> Iterator[Message]:
        """Run a job (an object of ``jobs.py``) in a fresh worker and yield its messages.

        After the last message, :attr:`ending` says how the worker ended. Closing the iterator early
        (Ctrl-C included) kills the worker.

        Raises:
            EnvironmentProblem: If no worker can be started.
        """
        self.ending = None
        worker = self.start(job)
        try:
            yield from worker.messages()
            self.ending = worker.ending
        finally:
            worker.close()

    def start(self, job: Any) -> WorkerHandle:
        """Give a job to a fresh worker, to be closed later; EnvironmentProblem if none starts."""
        control = self._start()
        read_end, write_end = os.pipe()
        gate_read, gate_write = os.pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        try:
            with tempfile.TemporaryFile() as job_file:
                # A served launcher was started elsewhere.
                here = None if self._process else (dict(os.environ), str(Path.cwd()))
                pickle.dump(here, job_file)
                # Before the job, whose shapes may be of a class from the lineage's problem file.
                pickle.dump(getattr(job, "lineage", None), job_file)
                job_file.write(_pickled(job))
                job_file.flush()
                job_file.seek(0)
                given = [write_end, log.fileno(), job_file.fileno(), gate_read]
                target = getattr(job, "target", None)
                on_gpu = target is not None and target.gpu is not None
                where = "gpu" if on_gpu else "cpu"
                socket.send_fds(control, [f"{where} {processes_apart(job)}".encode()], given)
            try:
                while "status" in (found := self._receive()):
                    self._statuses[int(found["pid"])] = int(found["status"])
            except TimeoutError as error:
                raise _silent() from error
            if "gone" in found:
                raise EnvironmentProblem("the process that starts workers has gone", "try again")
            pid = int(found["pid"])
        except BaseException:
            os.close(read_end)
            os.close(gate_write)
            log.close()
            raise
        finally:
            os.close(write_end)
            os.close(gate_read)
        gated = bool(getattr(job, "gated", False))
        return WorkerHandle(pid, read_end, gate_write, log, gated, self._reap)

    def _receive(self) -> dict[str, Any]:
        """What the launcher says next; one that is gone took its workers with it."""
        assert self._control is not None
        self._control.settimeout(_REAP_LIMIT_S)
        try:
            found: dict[str, Any] = json.loads(self._control.recv(256) or b'{"gone": true}')
        except ConnectionError:
            found = {"gone": True}
        finally:
            self._control.settimeout(None)
        if "gone" in found and self._process is None:
            self.close()
        return found

    def _reap(self, pid: int) -> int:
        """The wait status of a worker, from the launcher."""
        try:
            while pid not in self._statuses:
                found = self._receive()
                if "gone" in found:
                    return 9
                self._statuses[int(found["pid"])] = int(found["status"])
        except TimeoutError as error:
            if _has_ended(pid):
                raise _silent() from error
            # A killed process can linger in the driver; nothing more can run beside it.
            raise EnvironmentProblem(
                f"a killed worker has not gone within {_REAP_LIMIT_S:g} s",
                "the GPU may be hung: see `nvidia-smi`",
            ) from error
        return self._statuses.pop(pid)


def _pickled(job: Any) -> bytes:
    """A job as a worker reads it; ProblemError if its shapes' class cannot be looked up there."""
    try:
        return pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        for shape in getattr(job, "shapes", None) or [getattr(job, "shape", None)]:
            try:
                pickle.dumps(shape)
            except Exception as reason:
                raise ProblemError(
                    f"a shape of class {type(shape).__qualname__} cannot be given to a worker: "
                    f"{reason}",
                    "define the class at the top level of the problem's file",
                ) from error
        raise


def _silent() -> EnvironmentProblem:
    return EnvironmentProblem(
        f"the process that starts workers does not answer within {_REAP_LIMIT_S:g} s",
        "it is stopped, or this machine has no memory or time for it: see `ps`, and try again",
    )


def _has_ended(pid: int) -> bool:
    """Whether a process runs no more, be it that nobody has asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
