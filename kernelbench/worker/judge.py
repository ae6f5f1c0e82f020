"""The judge's side of a submission: a callable whose call happens in another process.

The judge holds inputs, references, expected results, verdict and messages; the other process
(:mod:`kernelbench.worker.submission`) has the submission and nothing else. Only bytes in shared
memory and a description in JSON come back. The time of a call is taken there, by a clock that was
bound before the submission was loaded, and compared with what has passed here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import secrets
import signal
import socket
import statistics
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from kernelbench.base.errors import ProblemError
from kernelbench.executors.callables import LoadError, RaisedElsewhere
from kernelbench.measure.outcomes import error_of
from kernelbench.project.problem import Kernel
from kernelbench.worker.returned_data import BadAnswer, Returned
from kernelbench.worker.shared_data import DataMessage, SharedData
from kernelbench.worker.submission import (
    Call,
    Load,
    Ping,
    Poison,
    Prepare,
    Request,
    encode_request,
    serve,
)
from kernelbench.worker.wire import MAX_REPLY_BYTES, Closed, Forged, receive_frame, send_frame

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
#: CAP_SYS_PTRACE opens other processes' memory; CAP_SYS_ADMIN and CAP_PERFMON let it be read.
_REACHING = (19, 21, 38)
_CAPABILITY_VERSION_3 = 0x20080522
#: A sleeping core and cold caches take up to some 200 µs to answer, however short the question.
_WAKING_S = 200e-6
#: Far slower than any machine copies memory.
_COPIED_PER_S = 1e9
#: Between calls other processes run, this one too. A short call would find their code and data in
#: the caches, which cost one of 0.5 ms some 20 %: it is made once before, without being timed.
_SHORT_S = 20e-3
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


class SubmissionProcess:
    """A process that has nothing yet, and may load one submission.

    It is forked before the job is read, so no seed is in its memory. What the submission prints
    goes where this process prints.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.pid = os.fork()
        if self.pid == 0:
            _be_submission(theirs)
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
        except Forged as error:
            print(f"the submission's process: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        return answer, found, nonce

    def answer(self, request: Request, descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """The answer to a request for which no memory comes back."""
        answer, found, nonce = self.ask(request, descriptors)
        for descriptor in found:
            os.close(descriptor)
        return read_answer(answer, nonce)

    def ping(self) -> float:
        """Seconds that a question and its answer take."""
        begin = _CLOCK()
        self.ask(Ping())
        return _CLOCK() - begin

    def load(self, request: Load, idle: SubmissionProcess | None) -> Kernel:
        """The submission's callable.

        Args:
            idle: A process without a submission, by which waiting is told from computing.

        Raises:
            LoadError: If its file cannot be loaded.
            KernelbenchError: If something else than it is to blame.
        """
        answer = self.answer(request)
        if "load_error" in answer:
            raise LoadError(str(answer["load_error"]))
        if "failed" in answer:
            raise error_of(answer["failed"], str(answer.get("reason", "")))
        kernel = JudgedKernel(self, idle)
        if answer.get("beforehand"):
            kernel.beforehand = kernel  # which the worker refuses
        return kernel

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


def _be_submission(link: socket.socket) -> NoReturn:
    """What the forked process does; it has its socket, the log, and no other descriptor."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        hide_memory(False)
        _without_reach()
        for file in list(Path("/proc/self/fd").iterdir()):
            if int(file.name) > 2 and int(file.name) != link.fileno():
                with contextlib.suppress(OSError):
                    os.close(int(file.name))
        serve(link)
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


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


class JudgedKernel:
    """A submission's callable as the judge calls it.

    Attributes:
        notes: What it says of its last call.
        beforehand: Set if the submission wants something done first.
    """

    beforehand: Any = None

    def __init__(self, process: SubmissionProcess, idle: SubmissionProcess | None) -> None:
        self._process = process
        self._idle = idle
        self._shared = SharedData()
        self._returned = Returned(self._shared)
        self.notes: tuple[str, ...] = ()
        self._passed: list[float] = []
        self._said: list[float] = []
        self._pings: list[float] = []
        self._excess: list[float] = []
        self._waited = 0.0

    def __call__(self, data: Any) -> Any:
        """What the submission returns for ``data``, its tensors the judge's own.

        Raises:
            RaisedElsewhere, NotImplementedError, torch.OutOfMemoryError: What it raised.
            ProblemError: If the data cannot be handed over.
        """
        return self._call(data)[0]

    def timed(self, data: Any) -> tuple[Any, float]:
        """The same, and the seconds that the call took by the other process's clock."""
        rehearse = bool(self._said) and self._said[-1] < _SHORT_S
        result, said, passed, copied = self._call(data, rehearse)
        self._said.append(said)
        self._passed.append(passed)
        self._excess.append(passed - said - self._waited - copied / _COPIED_PER_S)
        if self._idle is not None:
            self._pings.append(self._idle.ping())
        return result, said

    def clock_fault(self) -> str:
        """Why the times that it said since the last time cannot be; empty if they can.

        A call cannot take longer than what has passed here. Nor can much more have passed than the
        call, the waking of two processes, what they waited for a core (the kernel counts it), and
        the copying of the result. Looked at are the faster half of the calls, which decide the
        median, and of these the quarter that was disturbed least.
        """
        said, passed, pings = self._said, self._passed, self._pings
        excess = self._excess
        self._said, self._passed, self._pings, self._excess = [], [], [], []
        if not said or not pings:
            return ""
        for one, all_of_it in zip(said, passed, strict=True):
            if not 0 <= one <= all_of_it:
                return (
                    f"its clock says {one * 1e6:.0f} µs of a call for which the judge has waited "
                    f"{all_of_it * 1e6:.0f} µs"
                )
        faster = sorted(zip(said, excess, strict=True))[: (len(said) + 1) // 2]
        beyond = sorted(extra for _, extra in faster)[len(faster) // 4]
        waited = statistics.median(passed)
        if beyond <= _WAKING_S + 3 * statistics.median(pings) + 0.05 * waited:
            return ""
        return (
            f"its clock says {statistics.median(said) * 1e6:.0f} µs a call, the judge has waited "
            f"{waited * 1e6:.0f} µs, and waiting takes {statistics.median(pings) * 1e6:.0f} µs"
        )

    def poison_free_memory(self, like: Sequence[torch.Tensor], seed: int) -> None:
        """See :func:`kernelbench.measure.returned_memory.poison_free_memory`, in its process."""
        if like:
            specs = tuple((tuple(one.shape), one.dtype) for one in like)
            self._process.answer(Poison(specs, seed))

    def _call(self, data: Any, rehearse: bool = False) -> tuple[Any, float, float, int]:
        message = self._message(data)
        descriptors = [] if message.descriptor is None else [message.descriptor]
        self._process.answer(Prepare(message, self._returned.expired()), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if rehearse:  # on what the memory holds from the last call
            said_so = self._process.answer(Call(rehearsal=True))
            if "raised" in said_so:
                _raise(said_so)
        # Values come after everything else, and go before the answer is read: there is no other
        # time to compute in than that of the call.
        self._shared.copy_in(message.used)
        queued = self._queued_s()
        begin = _CLOCK()
        raw, found, nonce = self._process.ask(Call())
        passed = _CLOCK() - begin
        self._shared.copy_out(message.used)
        self._waited = self._queued_s() - queued
        try:
            answer = read_answer(raw, nonce)
            if "raised" in answer:
                _raise(answer)
            said = answer.get("elapsed")
            if type(said) is not float or not math.isfinite(said):
                raise BadAnswer("no time")
            copied = self._returned.take(answer.get("own"), found)
            result = self._returned.rebuilt(answer.get("result"))
        except BadAnswer as error:
            raise RaisedElsewhere(f"the submission's process answered {error}") from error
        finally:
            for descriptor in found:
                os.close(descriptor)
        notes = answer.get("notes")
        self.notes = tuple(map(str, notes)) if isinstance(notes, list) else ()
        return result, said, passed, copied + self._shared.touched_bytes(message.used)

    def _queued_s(self) -> float:
        """Seconds that this process and the other have been ready to run, and have not run."""
        return _queued_s("self") + _queued_s(str(self._process.pid))

    def _message(self, data: Any) -> DataMessage:
        try:
            return self._shared.message(data)
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise ProblemError(
                f"the data cannot be handed to a submission's process: {text}",
                "tensors, numbers, texts, and objects that pickle can",
            ) from error


def _queued_s(process: str) -> float:
    try:
        with open(f"/proc/{process}/schedstat") as file:  # noqa: PTH123 (between two clocks)
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):  # a kernel that does not count it
        return 0.0


def _raise(answer: dict[str, Any]) -> NoReturn:
    reason = " ".join(str(answer.get("reason", "")).split())[:500]
    match answer["raised"]:
        case "unable":
            raise NotImplementedError(reason)
        case "memory":
            raise torch.OutOfMemoryError(reason)
    raise RaisedElsewhere(reason)
