"""The launcher process and the workers that it forks; see ``launcher.py``.

Run as ``python -m kernelbench.worker.child FD``, FD being the control socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import select
import signal
import socket
import sys

from kernelbench.project.problem_loading import load_problem

# Imports torch, once for all workers; no CUDA context may exist before the fork.
from kernelbench.worker.body import attempt, execute_job
from kernelbench.worker.messages import JobDone
from kernelbench.worker.reporter import to_pipe

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _work(messages: int, log: int, job_file: int, gate: int) -> None:
    """The body of a worker; never returns to the launcher's loop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setsid()
    _die_with_parent()
    os.dup2(log, 1)
    os.dup2(log, 2)
    report = to_pipe(messages, gate)

    gated = False

    def work() -> None:
        nonlocal gated
        with os.fdopen(job_file, "rb") as stream:
            lineage = pickle.load(stream)
            if lineage is not None:
                load_problem(lineage)
            job = pickle.load(stream)
        gated = bool(getattr(job, "gated", False))
        execute_job(job, report)

    attempt(work, report)
    report(JobDone())
    if gated:
        # Its context is given back when no other session is timed.
        report.wait()


class _Workers:
    """The workers that are alive."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._alive: set[int] = set()

    def start(self, descriptors: list[int]) -> None:
        """Fork one, and tell its process id."""
        pid = os.fork()
        if pid == 0:
            self._control.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                _work(*descriptors)
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        self._alive.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        self._control.send(json.dumps({"pid": pid}).encode())

    def reap(self) -> None:
        """Tell how those ended that have."""
        for pid in [*self._alive]:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                continue
            # Processes that the step left behind go with it, while its id is still taken.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            self._alive.remove(pid)
            self._control.send(json.dumps({"pid": pid, "status": status}).encode())


def main() -> None:
    """Say that torch is imported, then fork a worker for each job until the socket closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The command line may be killed while a worker never ends.
    _die_with_parent()
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wakes.fileno())
    workers = _Workers(control)
    control.send(b"ready")
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
            workers.reap()
        if control in ready:
            data, descriptors, _, _ = socket.recv_fds(control, 64, 4)
            if not data:
                return
            workers.start(descriptors)


if __name__ == "__main__":
    main()
