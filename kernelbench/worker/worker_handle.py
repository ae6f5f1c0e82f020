"""One worker, as the command line sees it: its messages, its gate, its end.

A worker of a *gated* job prepares everything and says so (``Prepared``); it goes on when it is told
to, and stays when it is done, until it is let go. So several can prepare at the same time, and no
process begins or ends while another one is timed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kernelbench.base.child_process import kill_group, queued_s
from kernelbench.measure.results import FaultOrigin
from kernelbench.records.run_record import ResultStatus
from kernelbench.worker.messages import JobDone, Message, PhaseBegins, Prepared, decode_message

START_LIMIT_S = 180.0
_LOG_TAIL = 4000
#: Phases in which a step's file is imported, and none of its kernels is called.
_LOADING = ("load", "build and load")


@dataclass(frozen=True)
class WorkerExit:
    """How a worker ended."""

    kind: str  #: ``done``, ``hang`` (killed by the watchdog) or ``died``.
    phase: str  #: The phase that it was in.
    reason: str  #: Empty for ``done``; else one line.
    log: str  #: The end of what the worker and its step printed.
    #: What the ending is for a row: ``hang`` or ``fault`` of the step; the problem's, its
    #: reference's or the machine's, if theirs was the phase and no step's code is to blame.
    status: ResultStatus = "fault"


class WorkerHandle:
    """A worker that has been given a job.

    Args:
        pid: Its process. messages: The end of its pipe that is read; gate: the end of its gate that
            is written; both are closed with it.
        log: What it and its step print.
        gated: Whether it waits at its gate before anything is timed, and when it is done.
        reap: Waits until the process has gone, and returns its wait status.
    """

    def __init__(
        self,
        pid: int,
        messages: int,
        gate: int,
        log: IO[bytes],
        gated: bool,
        reap: Callable[[int], int],
    ) -> None:
        self.ending: WorkerExit | None = None  #: How it ended; None until it has.
        self._pid = pid
        self._read_end = messages
        self._gate = gate
        self._log = log
        self._gated = gated
        self._reap = reap
        self._reaped = self._closed = False
        self._lines: list[bytes] = []
        self._part = b""
        self._phase, self._limit_s, self._began = "start", START_LIMIT_S, time.monotonic()
        self._queued: dict[str, float] = {}
        self._whose: FaultOrigin = "machine"
        self._stepped = False

    def until_prepared(self) -> Iterator[Message]:
        """Its messages until it waits at its gate, or has ended."""
        for message in self.messages():
            if isinstance(message, Prepared):
                return
            yield message

    def go(self) -> None:
        """Let it through its gate."""
        self._began = time.monotonic()
        with contextlib.suppress(OSError):
            os.write(self._gate, b"g")

    def messages(self) -> Iterator[Message]:
        """Its messages, from where the last reader stopped; after the last, there is an ending."""
        while self.ending is None:
            line = self._next_line()
            if line is None:
                return
            message = decode_message(line)
            if isinstance(message, PhaseBegins):
                self._phase, self._limit_s = message.name, message.limit_s
                self._whose = message.whose
                loading = self._phase in _LOADING
                self._stepped = self._stepped or (self._whose == "step" and not loading)
                self._queued = self._queued_by_thread()
                self._began = time.monotonic()
            elif isinstance(message, JobDone):
                # No waiting for the pipe's end: a process that the step left behind holds it.
                if not self._gated:
                    self._wait_for_its_end()
                self.ending = WorkerExit("done", self._phase, "", _tail(self._log))
                return
            yield message
            if not isinstance(message, PhaseBegins):
                # The reader's own work between messages is not the worker's time.
                self._began = time.monotonic()

    def release(self) -> None:
        """Let it end, without waiting for that."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def close(self) -> None:
        """Wait for its end; one that is not done is killed."""
        if self._closed:
            return
        self._closed = True
        self.release()
        try:
            if not self._reaped:
                if self.ending is None or self.ending.kind != "done":
                    kill_group(self._pid)
                with contextlib.suppress(OSError, ValueError):
                    self._wait_for_its_end()
        finally:
            os.close(self._read_end)
            self._log.close()

    def _next_line(self) -> bytes | None:
        """The next message; None if the worker has ended, and how is known."""
        while not self._lines:
            left = self._began + self._limit_s - time.monotonic()
            if left <= 0.0:  # a machine without a core for it is not its fault
                now = self._queued_by_thread()
                left += max((now[each] - self._queued.get(each, 0.0) for each in now), default=0.0)
            ready, _, _ = select.select([self._read_end], [], [], max(0.0, left))
            if not ready and left > 0.0:
                continue
            if not ready:
                kill_group(self._pid)
                self._wait_for_its_end()
                reason = f"no answer within {self._limit_s:g} s in phase '{self._phase}'"
                status: ResultStatus = "hang" if self._whose == "step" else self._whose
                self.ending = WorkerExit("hang", self._phase, reason, _tail(self._log), status)
                return None
            chunk = os.read(self._read_end, 1 << 16)
            if not chunk:
                code = self._wait_for_its_end()
                text = _tail(self._log)
                reason = _describe_death(code, self._phase, text)
                # Once a step's code has run, others' code may trip over what it has broken.
                of = "fault" if self._stepped or self._whose == "step" else self._whose
                self.ending = WorkerExit("died", self._phase, reason, text, of)
                return None
            *self._lines, self._part = (self._part + chunk).split(b"\n")
        return self._lines.pop(0)

    def _queued_by_thread(self) -> dict[str, float]:
        """Seconds that each of its threads has been ready to run, and has not run."""
        threads: list[Path] = []
        with contextlib.suppress(OSError):  # it may end meanwhile
            threads += Path(f"/proc/{self._pid}/task").iterdir()
        return {each.name: queued_s(f"{self._pid}/task/{each.name}") for each in threads}

    def _wait_for_its_end(self) -> int:
        self._reaped = True
        return self._reap(self._pid)


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
