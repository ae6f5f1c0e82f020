"""The worker's side of a submission: the process that has it, and what is asked of that.

The worker holds inputs, references, expected results, verdict and messages; the other process
(:mod:`kernelbench.isolation.sandbox_child`) has the submission and nothing else. Only bytes in
shared memory and a description in JSON come back.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from kernelbench.base.child_process import be_fork, end_with_parent
from kernelbench.isolation.requests import (
    MAX_REPLY_BYTES,
    Closed,
    PeerMismatch,
    Ping,
    Request,
    close,
    encode_request,
    receive_frame,
    send_frame,
)
from kernelbench.isolation.sandbox_child import serve
from kernelbench.kinds.callables import RaisedElsewhere

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 4, 24
#: CAP_SYS_PTRACE opens other processes' memory; CAP_SYS_ADMIN and CAP_PERFMON let it be read.
_REACHING = (19, 21, 38)
_CAPABILITY_VERSION_3 = 0x20080522
_CLOCK = time.perf_counter


def hide_memory(hidden: bool = True) -> None:
    """Say whether processes of the same user may look into this one (or attach a debugger).

    Linux refuses ``/proc/PID/mem``, ``ptrace``, ``process_vm_writev`` and ``pidfd_getfd`` for a
    process that is not *dumpable*, but for who has the capabilities of :func:`_without_reach`.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0 if hidden else 1, 0, 0, 0)


def _without_reach() -> None:
    """Give up root's right to look into other processes, here and in whatever this starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    if libc.capget(header, sets) != 0:
        return
    for capability in _REACHING:
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        word, bit = divmod(capability, 32)
        for index in range(3):
            sets[3 * word + index] &= ~(1 << bit)
    libc.capset(header, sets)


class SandboxProcess:
    """A process that has nothing yet, and may load one submission.

    It is forked before the job is read, so no seed is in its memory. What the submission prints
    goes where this process prints.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.pid = os.fork()
        if self.pid == 0:
            be_fork(partial(_be_submission, theirs))
        theirs.close()
        self._link = ours

    def ask(
        self, request: Request, descriptors: Sequence[int] = ()
    ) -> tuple[bytes, list[int], str]:
        """Send a request and wait: the answer as it came, its descriptors, and its nonce.

        If the process has gone, this one goes the same way: that is how a worker's death is told.
        """
        nonce = secrets.token_hex(8)
        try:
            send_frame(self._link, encode_request(nonce, request), descriptors)
            answer, found = receive_frame(self._link, MAX_REPLY_BYTES, self.pid)
        except Closed:
            self._end()
        except PeerMismatch as error:
            print(f"the submission's process: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        return answer, found, nonce

    def answer(self, request: Request, descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """The answer to a request for which no memory comes back."""
        answer, found, nonce = self.ask(request, descriptors)
        close(found)
        return read_answer(answer, nonce)

    def ping(self, question: Ping) -> float:
        """Seconds that a question takes until it is answered."""
        begin = _CLOCK()
        _, found, _ = self.ask(question)
        passed = _CLOCK() - begin
        close(found)
        return passed

    def _end(self) -> NoReturn:
        """Wait for the process, and end as it did."""
        self._link.close()
        _, status = os.waitpid(self.pid, 0)
        sys.stdout.flush()
        sys.stderr.flush()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def _be_submission(link: socket.socket) -> None:
    """What the forked process does; it has its socket, the log, and no other descriptor."""
    end_with_parent()
    hide_memory(False)
    _without_reach()
    for file in list(Path("/proc/self/fd").iterdir()):
        if int(file.name) > 2 and int(file.name) != link.fileno():
            with contextlib.suppress(OSError):
                os.close(int(file.name))
    serve(link)


def read_answer(answer: bytes, nonce: str) -> dict[str, Any]:
    """An answer as what it says.

    Raises:
        RaisedElsewhere: If it is none to what was asked.
    """
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.pop("nonce", None) != nonce:
        raise RaisedElsewhere("the submission's process answered what was not asked")
    return found
