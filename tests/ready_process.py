"""Processes of a session that have imported what others need, and fork those: what
:mod:`ready_commands` and :mod:`ready_launchers` have in common."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

#: Of what a process has read before a command comes, as :mod:`kernelbench.worker.served` does.
READ_AT_START = ("CUDA_", "NVIDIA_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "LD_", "PYTHON")
#: By which tests find what a command has left.
_MARK = "KERNELBENCH_TEST_MARK"
RUNTIME = "XDG_RUNTIME_DIR"
_BEFORE = os.environ.get(RUNTIME)
_LONGEST = 1 << 17


def keeps_its_own(environment: Mapping[str, str]) -> bool:
    """Whether a command is of a test of what ``serve`` keeps."""
    return environment.get(RUNTIME) != _BEFORE


class Sources:
    """Processes that run a script, one for all commands whose environments read alike.

    Args:
        script: Its file; it calls :func:`begun` and :func:`serve`.
        read_at_start: Beginnings of the variables that tell environments apart.
    """

    def __init__(self, script: str, read_at_start: tuple[str, ...] = READ_AT_START) -> None:
        self._script, self._read = Path(script), read_at_start
        self._sources: dict[tuple[tuple[str, str], ...], socket.socket] = {}
        self._asked: Counter[tuple[tuple[str, str], ...]] = Counter()

    def of(self, environment: Mapping[str, str]) -> socket.socket | None:
        """The one for an environment.

        None for the first command, and where a test looks for processes by the environment that
        they began with.
        """
        if _MARK in environment:
            return None
        facts = tuple(sorted((k, v) for k, v in environment.items() if k.startswith(self._read)))
        self._asked[facts] += 1
        if facts not in self._sources and self._asked[facts] > 1:
            self._sources[facts] = self._start(environment)
        return self._sources.get(facts)

    def _start(self, environment: Mapping[str, str]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The current folder is where modules are looked for, as with `python -m`; the tests' own
        # only for this one.
        text = (
            f"import runpy, sys; sys.path.append({str(self._script.parent)!r}); "
            f"import {__name__}; sys.path.pop(); "
            f"runpy.run_path({str(self._script)!r}, run_name='__main__')"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", text, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        atexit.register(_end, process, ours)
        return ours


def _end(process: subprocess.Popen[bytes], source: socket.socket) -> None:
    source.close()
    process.wait()


def begun() -> socket.socket:
    """In such a process: where requests come from. Ctrl-C is for commands alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return socket.socket(fileno=int(sys.argv[1]))


def serve(
    source: socket.socket, files: int, fork: Callable[[socket.socket, Any, Sequence[int]], NoReturn]
) -> None:
    """Fork a process for each request, until the tests have ended.

    Args:
        files: Descriptors that come with a request, at most.
        fork: Is the new process: of the socket, the request and its descriptors.
    """
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(source, _LONGEST, files)
        if not data:
            return
        if not os.fork():
            fork(source, json.loads(data), descriptors)
        for each in descriptors:
            os.close(each)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # of commands that have ended
                pass
