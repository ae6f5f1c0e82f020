"""The process in which a command checks a CUDA program or a PTX file, forked by one that is ready.

Python and the modules of such a call take a third of a second of a core; :mod:`ready_commands` has
them already. A command's threads may hold locks, so that what forks is a process of its own, which
the command forks before it begins.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from kernelbench.base import child_process
from kernelbench.cli import command_server
from kernelbench.ptx.hosts.cuda_build import SOURCES

#: What a call imports while it runs.
MODULES = (
    "kernelbench.checks.files", "kernelbench.ptx.hosts.cuda_program", "numpy",
    "elftools.elf.elffile",
)  # fmt: skip
_LONGEST = 1 << 17


def are_for(arguments: Sequence[str]) -> bool:
    """Whether a command line checks a program or PTX, and runs no Python of a user's."""
    kinds = {Path(each).suffix for each in arguments[1:]}
    return "check" in arguments[1:2] and ".py" not in kinds and bool({*SOURCES, ".ptx"} & kinds)


def begin() -> None:
    """In a command that has no thread yet: have its calls made by forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        _fork_each(theirs)
    theirs.close()
    usual = child_process._run
    call = child_process.python_module(child_process._MODULE)

    def run(
        command: Sequence[str], limit_s: float | None, **how: Any
    ) -> tuple[int, BaseException | None]:
        if [*command[: len(call)]] != call:
            return usual(command, limit_s, **how)
        return _asked(ours, command[len(call) :], limit_s, **how)

    child_process._run = run


def _asked(
    source: socket.socket, words: Sequence[str], limit_s: float | None, *, stdout: Any, stderr: Any,
    env: dict[str, str] | None = None, stdin: int = 0, pass_fds: Sequence[int] = (),
) -> tuple[int, BaseException | None]:  # fmt: skip
    """As ``child_process._run``."""
    asked = {
        "arguments": [child_process.__file__, *words], "environment": env or {**os.environ},
        "folder": str(Path.cwd()), "encoding": sys.stdout.encoding, "numbers": [*pass_fds],
    }  # fmt: skip
    numbers = [each if isinstance(each, int) else each.fileno() for each in (stdout, stderr)]
    with open(os.devnull) if stdin else open(0, closefd=False) as file:  # noqa: PTH123
        given = [file.fileno(), *numbers, *pass_fds]
        socket.send_fds(source, [json.dumps(asked).encode()], given)
    pid = int(source.recv(64))
    source.settimeout(limit_s)
    try:
        return os.waitstatus_to_exitcode(int(source.recv(64))), None
    except TimeoutError:
        return -signal.SIGKILL, subprocess.TimeoutExpired(words, limit_s or 0)
    finally:
        child_process.kill_group(pid)
        source.settimeout(None)


def _fork_each(source: socket.socket) -> NoReturn:
    """Make the calls that are asked for, one after the other, until the command has ended."""
    child_process.end_with_parent()
    try:
        while True:
            data, descriptors, _, _ = socket.recv_fds(source, _LONGEST, 8)
            if not data:
                break
            if not (pid := os.fork()):
                source.close()
                _call(json.loads(data), descriptors)
            for each in descriptors:
                os.close(each)
            source.send(b"%d" % pid)
            source.send(b"%d" % os.waitpid(pid, 0)[1])
    finally:
        os._exit(0)


def _call(asked: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Be the process of a call."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor, number in zip(descriptors, (0, 1, 2, *asked["numbers"]), strict=True):
            os.dup2(descriptor, number)
        for descriptor in {*descriptors} - {0, 1, 2, *asked["numbers"]}:
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        command_server._reopen(asked["encoding"])
        sys.path[:] = filter(None, sys.path)  # python -P
        sys.argv = asked["arguments"]
        child_process.main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
