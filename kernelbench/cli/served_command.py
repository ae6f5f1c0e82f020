"""A command line that another process carries out: the one that ``kernelbench serve`` keeps.

Here is the side of the command line, which imports next to nothing; ``serve.py`` is the
other. Folder, environment and the three standard files go there, signals follow, and the exit code
comes back.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from kernelbench.base.errors import EnvironmentProblem

#: Those that spend their time in what such a process has done already.
COMMANDS = ("run", "ab")


def run_elsewhere(arguments: Sequence[str]) -> int | None:
    """Have the process that is kept for it carry out a command line.

    Returns:
        Its exit code; None if nobody is there to do it, and nothing has happened.

    Raises:
        EnvironmentProblem: If that process goes in the middle.
    """
    if not arguments or arguments[0] not in COMMANDS:
        return None
    from kernelbench.worker import served

    if served.nothing_served() or (connection := served.connect("commands")) is None:
        return None
    with connection, contextlib.suppress(ConnectionError):
        sys.stdout.flush()
        asked = {
            "arguments": [sys.argv[0], *arguments],
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
            "encoding": sys.stdout.encoding,
        }
        try:
            socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2])
            pid = int(connection.recv(64))
        except (OSError, ValueError):
            return None
        with _signals_to(pid):
            if answer := connection.recv(64):
                code = os.waitstatus_to_exitcode(int(answer))
                return code if code >= 0 else 128 - code
    raise EnvironmentProblem(
        "the process of `kernelbench serve` has gone, and this command with it", "try again"
    )


@contextlib.contextmanager
def _signals_to(pid: int) -> Iterator[None]:
    """Hand on Ctrl-C; whoever ends this process otherwise closes the connection, which ends it."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    before = signal.signal(signal.SIGINT, hand_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
