"""The process of ``kernelbench serve`` that runs command lines: it has imported what they import.

Each command is a fork of it, with the folder, environment and standard files of whoever asked
(``served_command.py``). It never has torch or a CUDA context: workers come from the launcher that
is kept beside it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from kernelbench.base import console
from kernelbench.base.child_process import (
    be_fork,
    drain,
    end_with_parent,
    kill_group,
    python_module,
    woken_by_children,
)
from kernelbench.machine.devices import require_torch
from kernelbench.worker import served

#: Environment and arguments; the kernel's limit for one message is about as much.
_LONGEST = 1 << 18
#: What the commands import while they run.
_MODULES = (
    "kernelbench.cli.ab_view", "kernelbench.cli.run", "kernelbench.compare.api",
    "kernelbench.runs.api", "scipy.stats",
)  # fmt: skip


def keep_workers(idle_s: float, on_listening: Callable[[], None]) -> NoReturn:
    """Be the launcher of command lines until none has come for so many seconds.

    The same process goes on, so that it is what a shell waits for and Ctrl-C reaches; one beside it
    carries out commands, and ends with it.

    Args:
        on_listening: Called when commands find it.

    Raises:
        UsageError: If another process serves the project already.
        EnvironmentProblem: Without torch.
    """
    require_torch("running steps")
    listening = served.listen()
    on_listening()
    if not os.fork():
        listening.close()
        serve_commands()
    listening.set_inheritable(True)
    words = [*python_module("kernelbench.worker.fork_server"), "--serve"]
    os.execv(sys.executable, [*words, str(listening.fileno()), str(idle_s)])


def serve_commands() -> NoReturn:
    """Fork a command for each that asks, until the process that started this one is gone."""
    from kernelbench.cli import served_command

    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in (*_MODULES, *(f"kernelbench.cli.{each}" for each in served_command.COMMANDS)):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    listening = served.listen("commands")
    woken = woken_by_children()
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listening, woken, *running.values()], [], [])
        if woken in ready:
            drain(woken)
            _tell_of_ends(running)
        for pid, connection in running.items():
            if connection in ready:  # nothing is ever said: whoever asked has gone
                kill_group(pid)
        if listening in ready:
            asks, _ = listening.accept()
            begun = _begun(asks, (listening, woken, *running.values()))
            if begun is not None:
                running[begun] = asks


def _tell_of_ends(running: dict[int, socket.socket]) -> None:
    for pid in [*running]:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with running.pop(pid) as connection, contextlib.suppress(OSError):
                connection.send(b"%d" % status)


def _begun(asks: socket.socket, others: tuple[socket.socket, ...]) -> int | None:
    """Fork the command that somebody asks for; its process, or None if there is none."""
    descriptors: list[int] = []
    try:
        if not served.is_ours(asks):
            raise ConnectionError
        asks.send(b"ready")
        asks.settimeout(1.0)
        data, descriptors, _, _ = socket.recv_fds(asks, _LONGEST, 3)
        asked = json.loads(data)
        if len(descriptors) != 3:
            raise ConnectionError
        pid = os.fork()
        if not pid:
            for each in (*others, asks):
                each.close()
            be_fork(partial(_command, asked, descriptors))
        asks.settimeout(None)
        asks.send(b"%d" % pid)
        return pid
    except (OSError, ValueError):
        asks.close()
        return None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _command(asked: dict[str, Any], descriptors: list[int]) -> int:
    """Be the command line: its exit code."""
    os.setsid()
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    _reopen(asked["encoding"])
    console.renew()
    from kernelbench import cli

    sys.argv = asked["arguments"]
    try:
        code = cli.invoke(sys.argv[1:])
    except SystemExit as left:  # click's, of what completes words in a shell
        return int(left.code or 0)
    atexit._run_exitfuncs()
    return code


def _reopen(encoding: str) -> None:
    """Have the standard files as Python itself would have opened them."""
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(  # noqa: SIM115
            number, "w", encoding=encoding, errors="backslashreplace" if number == 2 else None,
            closefd=False,
        )  # fmt: skip
        stream.reconfigure(line_buffering=number == 2 or os.isatty(number))
        setattr(sys, name, stream)
