"""Launchers of workers that have torch already, as ``kernelbench serve`` keeps them.

A launcher imports torch, and nearly every command of the tests starts one: two seconds of a core
each time. Here one process of a session has done so, and forks a launcher for each command. What
starts a launcher itself is tested in ``unit/test_worker.py`` and ``cli/test_served_command.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import ready_process

from kernelbench.worker.served import Begun, _begin, listen

_IDLE_S = 600.0

_sources = ready_process.Sources(__file__)
_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def served(environment: Mapping[str, str], folder: Path | None) -> Iterator[dict[str, str]]:
    """The environment of a command for which a launcher is ready, if others came before it."""
    own = ready_process.keeps_its_own(environment)
    if own or (source := _sources.of(environment)) is None:
        yield dict(environment)
        return
    runtime = tempfile.mkdtemp(prefix="kb-")  # the path of a socket is short
    given = {**environment, ready_process.RUNTIME: runtime}
    asked = json.dumps({"environment": given, "folder": str(folder or Path.cwd())}).encode()
    answer = b""
    try:
        # Where torch cannot be imported, nobody answers.
        with _one_at_a_time, contextlib.suppress(OSError):
            source.send(asked)
            answer = source.recv(64)
        yield given if answer else dict(environment)
        if launcher := int(answer or 0):
            os.kill(launcher, signal.SIGKILL)
    finally:
        shutil.rmtree(runtime)


def begun() -> Begun:
    """For :mod:`kernelbench.worker.served`: a launcher for a command in this process."""
    source = _sources.of(os.environ)
    if source is None:
        return _begin()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _one_at_a_time, theirs:
        socket.send_fds(source, [b"{}"], [theirs.fileno()])
    assert ours.recv(64) == b"ready"
    return None, ours


def _launch(source: socket.socket, asked: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Be the launcher of one command, by the socket that came or by one that it listens at."""
    try:
        end_with_parent()
        ctypes.CDLL(None).prctl(fork_server._PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if descriptors:
            source.close()
            fork_server.launch(socket.socket(fileno=descriptors[0]))
            os._exit(0)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        try:
            listening = listen()
        except KernelbenchError:
            source.send(b"0")  # there is no project
        else:
            source.send(b"%d" % os.getpid())
            source.close()
            fork_server.serve_command_lines(listening, _IDLE_S)
    finally:
        os._exit(0)


if __name__ == "__main__":
    import ctypes

    from kernelbench.base.child_process import end_with_parent
    from kernelbench.base.errors import KernelbenchError
    from kernelbench.worker import fork_server

    ready_process.serve(ready_process.begun(), 1, _launch)
