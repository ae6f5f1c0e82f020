"""The launcher process and the workers that it forks; see ``launcher.py``.

Run as ``python -m kernelbench.worker.child FD``, FD being the control socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import socket
import sys

from kernelbench.project.problem_loading import load_problem

# Imports torch, once for all workers; no CUDA context may exist before the fork.
from kernelbench.worker.body import attempt, execute_job
from kernelbench.worker.judge import SubmissionProcess, hide_memory
from kernelbench.worker.messages import JobDone
from kernelbench.worker.reporter import to_pipe

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _work(apart: int, messages: int, log: int, job_file: int) -> None:
    """The body of a worker; never returns to the launcher's loop.

    Args:
        apart: How many processes submissions take; see :mod:`kernelbench.worker.judge`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setsid()
    _die_with_parent()
    os.dup2(log, 1)
    os.dup2(log, 2)
    report = to_pipe(messages)

    def work() -> None:
        # Before the job is read: its seed is none of theirs.
        processes = [SubmissionProcess() for _ in range(apart)]
        hide_memory(bool(processes))
        with os.fdopen(job_file, "rb") as stream:
            lineage = pickle.load(stream)
            if lineage is not None:
                load_problem(lineage)
            job = pickle.load(stream)
        execute_job(job, report, processes)

    attempt(work, report)
    report(JobDone())


def main() -> None:
    """Say that torch is imported, then fork a worker for each job until the socket closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The command line may be killed while the launcher waits for a worker that never ends.
    _die_with_parent()
    # A worker's own children, once it is gone.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control.send(b"ready")
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 64, 3)
        if not data:
            return
        apart = int(data)
        if apart:
            hide_memory()  # a submission could make the next worker another one
        pid = os.fork()
        if pid == 0:
            control.close()
            code = 1
            try:
                _work(apart, *descriptors)
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(json.dumps({"pid": pid}).encode())
        # Processes that the step left behind go with it, while its id is still taken.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(ChildProcessError):
            while apart:  # what was killed is gone when the worker is said to be
                os.waitpid(-pid, 0)
        control.send(json.dumps({"status": status}).encode())


if __name__ == "__main__":
    main()
