"""Launchers of workers that have torch already, as ``kernelbench serve`` keeps them.

A launcher imports torch, and nearly every command of the tests starts one: two seconds of a core
each time. Here one process of a session has done so, and forks a launcher for each command. What
starts a launcher itself is tested in ``unit/test_worker.py`` and ``cli/test_served_command.py``.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from kernelbench.worker.served import Begun, _begin, listen

#: Of what launchers have read before a command comes, as :mod:`kernelbench.worker.served` does.
_READ_AT_START = ("CUDA_", "NVIDIA_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "LD_", "PYTHON")
#: By which tests find what a command has left.
MARK = "KERNELBENCH_TEST_MARK"
_RUNTIME = "XDG_RUNTIME_DIR"
_BEFORE = os.environ.get(_RUNTIME)
_LONGEST = 1 << 17
_IDLE_S = 600.0

Facts = tuple[tuple[str, str], ...]

_sources: dict[Facts, socket.socket] = {}
_asked: Counter[Facts] = Counter()
_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def served(environment: Mapping[str, str], folder: Path | None) -> Iterator[dict[str, str]]:
    """The environment of a command for which a launcher is ready, if others came before it."""
    own = environment.get(_RUNTIME) != _BEFORE  # a test of what `serve` keeps
    if own or (source := _source(environment)) is None:
        yield dict(environment)
        return
    runtime = tempfile.mkdtemp(prefix="kb-")  # the path of a socket is short
    given = {**environment, _RUNTIME: runtime}
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
    source = _source(os.environ)
    if source is None:
        return _begin()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _one_at_a_time, theirs:
        socket.send_fds(source, [b"{}"], [theirs.fileno()])
    assert ours.recv(64) == b"ready"
    return None, ours


def _source(environment: Mapping[str, str]) -> socket.socket | None:
    """The process that forks launchers of such an environment.

    None for the first command, and where a test looks for processes by the environment that they
    began with.
    """
    if MARK in environment:
        return None
    facts = tuple(sorted((k, v) for k, v in environment.items() if k.startswith(_READ_AT_START)))
    _asked[facts] += 1
    if facts not in _sources and _asked[facts] > 1:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The current folder is where modules are looked for, as with `python -m`.
        text = f"import runpy; runpy.run_path({__file__!r}, run_name='__main__')"
        process = subprocess.Popen(
            [sys.executable, "-c", text, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        atexit.register(_end, process, ours)
        _sources[facts] = ours
    return _sources.get(facts)


def _end(process: subprocess.Popen[bytes], source: socket.socket) -> None:
    source.close()
    process.wait()


def _launch(source: socket.socket, asked: dict[str, Any], descriptors: list[int]) -> NoReturn:
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


def main() -> None:
    """Fork a launcher for each command that comes, until the tests have ended."""
    source = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(source, _LONGEST, 1)
        if not data:
            return
        if not os.fork():
            _launch(source, json.loads(data), descriptors)
        for each in descriptors:
            os.close(each)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # launchers of commands that have ended
                pass


if __name__ == "__main__":
    import ctypes

    from kernelbench.base.child_process import end_with_parent
    from kernelbench.base.errors import KernelbenchError
    from kernelbench.worker import fork_server

    main()
