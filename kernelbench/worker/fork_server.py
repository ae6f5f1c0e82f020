"""The launcher process and the workers that it forks; see ``launcher.py``.

Run as ``python -m kernelbench.worker.fork_server FD``, FD being the control socket, or, for many
command lines one after another, ``… --serve FD SECONDS``, FD being a socket that listens, until
nobody has come for so long.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import pickle
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kernelbench.base.child_process import (
    be_fork,
    drain,
    end_with_parent,
    kill_group,
    woken_by_children,
)
from kernelbench.isolation.sandbox import SandboxProcess, hide_memory
from kernelbench.machine.devices import gpus
from kernelbench.project.problem_loading import load_problem

# Imports torch, once for all workers; no CUDA context may exist before the fork.
from kernelbench.worker.job_runner import attempt, execute_job
from kernelbench.worker.messages import JobDone, to_pipe
from kernelbench.worker.served import is_ours

_PR_SET_CHILD_SUBREAPER = 36
#: As many as an ``ab`` has sessions.
_SPARES = 3


def _work(apart: int, messages: int, log: int, job_file: int, gate: int) -> None:
    """The body of a worker, with ``apart`` processes for submissions; it never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setsid()
    end_with_parent()
    os.dup2(log, 1)
    os.dup2(log, 2)
    report = to_pipe(messages, gate)

    gated = False

    def work() -> None:
        nonlocal gated
        # Unbuffered: nothing of the job, whose seed is none of a submission's, is read by then.
        with os.fdopen(job_file, "rb", buffering=0) as stream:
            here = pickle.load(stream)
            if here is not None:
                _be_in(*here)
            processes = [SandboxProcess() for _ in range(apart)]
            hide_memory(bool(processes))
            lineage = pickle.load(stream)
            if lineage is not None:
                load_problem(lineage)
            job = pickle.load(stream)
        gated = bool(getattr(job, "gated", False))
        execute_job(job, report, processes)

    attempt(work, report)
    report(JobDone())
    if gated:
        # Its context is given back when no other session is timed.
        report.wait()


def _be_in(environment: dict[str, str], folder: str) -> None:
    """Have the environment and the current folder of the command line."""
    os.environ.clear()
    os.environ.update(environment)
    with contextlib.suppress(OSError):
        os.chdir(folder)


class _Workers:
    """The workers that are alive, and those that are ready for a job."""

    def __init__(self, control: socket.socket | None, listening: socket.socket | None) -> None:
        self.control = control  #: The command line's socket; None while there is none.
        self._listening = listening
        #: With the number of processes that its submissions have.
        self._alive: dict[int, int] = {}
        self._spares: dict[int, socket.socket] = {}

    def start(self, descriptors: list[int], on_gpu: bool, apart: int) -> None:
        """Give a job to a worker, and tell its process id."""
        if apart:
            hide_memory()  # a submission could make the next worker another one
        pid = self._from_spares(descriptors) if on_gpu and not apart else None
        if pid is None:
            pid = self._fork(partial(_work, apart, *descriptors))
        self._alive[pid] = apart
        for descriptor in descriptors:
            os.close(descriptor)
        self._tell({"pid": pid})

    def make_spares(self, number: int) -> None:
        """Have so many workers with a CUDA context, each of which takes one job."""
        while len(self._spares) < number:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = self._fork(partial(_be_spare, ours, theirs))
            theirs.close()
            self._spares[pid] = ours

    def reap(self) -> None:
        """Tell how those ended that have."""
        for pid in [*self._alive, *self._spares]:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                continue
            # Processes that the step left behind go with it, while its id is still taken.
            kill_group(pid)
            _, status = os.waitpid(pid, 0)
            if pid in self._spares:
                self._spares.pop(pid).close()
            else:
                with contextlib.suppress(ChildProcessError):
                    while self._alive[pid]:  # what was killed is gone when the worker is said to be
                        os.waitpid(-pid, 0)
                del self._alive[pid]
                self._tell({"pid": pid, "status": status})

    def end_all(self) -> None:
        """End what the command line has left; spares stay."""
        for pid in self._alive:
            kill_group(pid)

    def _from_spares(self, descriptors: list[int]) -> int | None:
        while self._spares:
            pid, to_it = self._spares.popitem()
            with to_it, contextlib.suppress(OSError):
                socket.send_fds(to_it, [b"job"], descriptors)
                return pid
            self._alive[pid] = 0  # it has ended: to be waited for
        return None

    def _fork(self, body: Callable[[], None]) -> int:
        pid = os.fork()
        if not pid:
            for each in (self.control, self._listening, *self._spares.values()):
                if each is not None:
                    each.close()
            be_fork(body)
        return pid

    def _tell(self, what: dict[str, int]) -> None:
        if self.control is not None:
            with contextlib.suppress(OSError):
                self.control.send(json.dumps(what).encode())


def _be_spare(parents_end: socket.socket, control: socket.socket) -> None:
    """Have a CUDA context and what references load, and wait for a job."""
    import torch

    parents_end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    some = torch.ones((64, 64), dtype=torch.float64, device="cuda:0")
    (some @ some).sum().item()
    data, descriptors, _, _ = socket.recv_fds(control, 16, 4)
    control.close()
    if data:
        _work(0, *descriptors)


def _fork_for(control: socket.socket, workers: _Workers) -> bool:
    """Take one job; False if the command line has gone."""
    try:
        data, descriptors, _, _ = socket.recv_fds(control, 64, 4)
    except ConnectionError:
        return False
    if data:
        where, apart = data.split()
        workers.start(descriptors, where == b"gpu", int(apart))
    return bool(data)


def launch(control: socket.socket) -> None:
    """Say that torch is imported, then fork a worker for each job until the socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The command line may be killed while a worker never ends.
    end_with_parent()
    woken = woken_by_children()
    workers = _Workers(control, None)
    control.send(b"ready")
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            drain(woken)
            workers.reap()
        if control in ready and not _fork_for(control, workers):
            return


def serve_command_lines(listening: socket.socket, idle_s: float) -> None:
    """Be the launcher of one command line after another; others are told that it is busy."""
    woken = woken_by_children()
    workers = _Workers(None, listening)
    spares = _SPARES if gpus() else 0
    workers.make_spares(spares)
    until = time.monotonic() + idle_s
    while workers.control is not None or time.monotonic() < until:
        control = workers.control
        sockets = [listening, woken, *([control] if control else [])]
        left = None if control else max(0.0, until - time.monotonic())
        ready, _, _ = select.select(sockets, [], [], left)
        if woken in ready:
            drain(woken)
            workers.reap()
        if control in ready and control is not None and not _fork_for(control, workers):
            workers.end_all()
            control.close()
            workers.control = None
            workers.make_spares(spares)
            until = time.monotonic() + idle_s
        if listening in ready:
            asks, _ = listening.accept()
            mine = workers.control is None and is_ours(asks)
            with contextlib.suppress(OSError):
                asks.send(b"ready" if mine else b"busy")
            if mine:
                workers.control = asks
            else:
                asks.close()


def main() -> None:
    """Serve one command line, or many."""
    # A worker's own children are the launcher's, once it is gone.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # What is imported is not garbage: workers collect before each series, some 80 ms of torch's.
    gc.collect()
    gc.freeze()
    if sys.argv[1] != "--serve":
        launch(socket.socket(fileno=int(sys.argv[1])))
        os._exit(0)  # sooner than Python takes leave of torch, which somebody waits for
    listening = socket.socket(fileno=int(sys.argv[2]))
    file = Path(listening.getsockname())
    try:
        serve_command_lines(listening, float(sys.argv[3]))
    except KeyboardInterrupt:
        pass
    finally:
        # What runs commands beside this process ends with it, and cannot tidy up.
        for each in (file, file.with_suffix(".commands")):
            with contextlib.suppress(OSError):
                each.unlink()


if __name__ == "__main__":
    main()
