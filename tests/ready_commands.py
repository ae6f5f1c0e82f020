"""Commands in a process that has imported what they import, as ``kernelbench serve`` keeps one.

Python and the modules of a command take 0.3 to 1 s of a core, and the tests start hundreds of
commands. Here one process of a session has the modules, and forks a process for each command. The
first command of an environment is started as a user starts it, and so is one whose process a test
looks for.
"""

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
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kernelbench.base.child_process import kill_group

#: Of what a process has read before a command comes.
_READ_AT_START = ("CUDA_", "NVIDIA_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "LD_", "PYTHON",
                  "LC_", "LANG")  # fmt: skip
#: By which tests find what a command has left.
MARK = "KERNELBENCH_TEST_MARK"
_RUNTIME = "XDG_RUNTIME_DIR"
_BEFORE = os.environ.get(_RUNTIME)
_LONGEST = 1 << 17

Facts = tuple[tuple[str, str], ...]

_sources: dict[Facts, socket.socket] = {}
_asked: Counter[Facts] = Counter()


def source(environment: Mapping[str, str]) -> socket.socket | None:
    """The process that forks commands of such an environment.

    None for the first command, where a test looks for processes by the environment that they began
    with, and in a test of what ``serve`` keeps.
    """
    if MARK in environment or environment.get(_RUNTIME) != _BEFORE:
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


def _end(process: subprocess.Popen[bytes], its: socket.socket) -> None:
    its.close()
    process.wait()


def run(
    its: socket.socket,
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None,
    timeout: float,
) -> subprocess.CompletedProcess[bytes]:
    """Have a process carry out a command line; as ``subprocess.run`` does it."""
    asked = {
        "arguments": [*words], "environment": dict(environment), "folder": str(folder or Path.cwd())
    }  # fmt: skip
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with theirs, open(os.devnull, "rb") as nothing:  # noqa: PTH123
            given = [nothing.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
            socket.send_fds(its, [json.dumps(asked).encode()], given)
        pid = int(ours.recv(64))
        ours.settimeout(timeout)
        try:
            code = os.waitstatus_to_exitcode(int(ours.recv(64)))
        except TimeoutError:
            kill_group(pid)
            raise subprocess.TimeoutExpired([*words], timeout) from None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([*words], code, out.read(), err.read())


def _carry_out(asked: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Fork the command, and tell its process and how it ended."""
    try:
        *files, reply = descriptors
        if not (pid := os.fork()):
            os.close(reply)
            tempfile.tempdir = None
            asked["encoding"] = sys.stdout.encoding
            command_server._command(asked, files)
        with socket.socket(fileno=reply) as tells:
            tells.send(b"%d" % pid)
            tells.send(b"%d" % os.waitpid(pid, 0)[1])
    finally:
        os._exit(0)


def main() -> None:
    """Fork a command for each that comes, until the tests have ended."""
    its = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(KernelbenchError):  # of what is installed: commands say it themselves
        for name in (*command_server._MODULES, *(f"kernelbench.cli.{each}" for each in COMMANDS)):
            importlib.import_module(name)
    assert "torch" not in sys.modules
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(its, _LONGEST, 4)
        if not data:
            return
        if not os.fork():
            its.close()
            _carry_out(json.loads(data), descriptors)
        for each in descriptors:
            os.close(each)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    import importlib

    from kernelbench.base.errors import KernelbenchError
    from kernelbench.cli import COMMANDS, command_server

    main()
