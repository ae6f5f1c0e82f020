"""Starting the process that starts workers, also before whoever needs it has been imported.

It imports next to nothing, so that a command can begin with it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from kernelbench.worker import served

#: A launcher's process, None if it is served, and its control socket.
Begun = tuple["subprocess.Popen[bytes] | None", socket.socket]

#: What was started ahead and nobody has taken yet.
_ahead: list[Begun] = []


def begin_ahead() -> None:
    """Start the launcher that is used next in this process.

    For a command that has slow imports of its own before it. Only where there is an NVIDIA driver:
    without one, what is asked may have an answer that takes no worker.
    """
    if Path("/dev/nvidiactl").exists() and not _ahead:
        _ahead.append(_begin())


def begun() -> Begun:
    """The launcher that was started ahead, or the one that is served, or a new process."""
    return _ahead.pop() if _ahead else _begin()


def _begin() -> Begun:
    found = served.connect()
    if found is not None:
        return None, found
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, "-m", "kernelbench.worker.child", str(theirs.fileno())]
    process = subprocess.Popen(
        words,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    theirs.close()
    return process, ours
