"""Finding and keeping what ``kernelbench serve`` leaves ready for a project.

That is a launcher of workers, and what runs command lines. Each has a socket in the user's runtime
folder, whose name says for which project, which Python, which kernelbench (a hash of its files) and
which environment of CUDA and torch it is: whatever differs has another, and finds none. A socket
that nobody listens at is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from kernelbench.base.child_process import python_module
from kernelbench.base.errors import EnvironmentProblem, KernelbenchError, UsageError
from kernelbench.project.project_file import find_project
from kernelbench.worker import served

#: A launcher's process, None if it is served, and its control socket.
Begun = tuple["subprocess.Popen[bytes] | None", socket.socket]

#: What was started ahead and nobody has taken yet.
_ahead: list[Begun] = []

_PACKAGE = Path(__file__).resolve().parent.parent
#: Variables that are read once, when torch or CUDA starts.
_READ_AT_START = ("CUDA_", "NVIDIA_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "LD_", "PYTHON")
_ANSWER_S = 2.0
#: How often an OpenMP thread of torch looks for work before it sleeps, half a millisecond. By
#: default it is 15 ms: on a machine with other work the others wait for one that has no core.
_SHORT_WAITS = {"GOMP_SPINCOUNT": "10000"}

Served = Literal["workers", "commands"]


def prefork() -> None:
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
    words = [*python_module("kernelbench.worker.fork_server"), str(theirs.fileno())]
    process = subprocess.Popen(
        words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, start_new_session=True, env=_environment(),
    )  # fmt: skip
    theirs.close()
    return process, ours


def _environment() -> dict[str, str]:
    """What a launcher is started with: this process's variables, and short waits."""
    chosen = "OMP_WAIT_POLICY" in os.environ
    return {**({} if chosen else _SHORT_WAITS), **os.environ}


def nothing_served() -> bool:
    """Whether this user serves nothing at all, as far as can be told without reading files."""
    return not _folder().is_dir()


def socket_file(kind: Served = "workers") -> Path:
    """The socket for the current folder's project, there or not; UsageError without a project."""
    facts = [sys.executable, sys.version, str(find_project().root), str(_PACKAGE)]
    facts += [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(_READ_AT_START)]
    for file in sorted(_PACKAGE.rglob("*.py")):
        found = file.stat()
        facts.append(f"{file} {found.st_mtime_ns} {found.st_size}")
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]
    return _folder() / f"{digest}.{kind}"


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"kernelbench-{os.getuid()}"


def listen(kind: Served = "workers") -> socket.socket:
    """A socket that listens for the commands of the project of the current folder.

    Raises:
        UsageError: If one is served already.
        EnvironmentProblem: If the folder is not this user's alone, or cannot be made.
    """
    file = socket_file(kind)
    folder = file.parent
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _ours(folder):
            raise EnvironmentProblem(f"{folder} is open to others", "remove it, or `chmod 700` it")
        if file.exists():
            if (other := connect(kind)) is not None:
                other.close()
                raise UsageError("this project is served already", "nothing more is needed")
            file.unlink()
        found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        found.bind(str(file))
        found.listen()
    except OSError as error:
        raise EnvironmentProblem(
            f"{file} cannot be made: {error}", "name another folder with XDG_RUNTIME_DIR"
        ) from error
    return found


def connect(kind: Served = "workers") -> socket.socket | None:
    """What is ready, as a socket that it listens to; None if there is none, or it is busy."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError, KernelbenchError):
        file = socket_file(kind)
        if _ours(file.parent):
            found.connect(str(file))
            ready, _, _ = select.select([found], [], [], _ANSWER_S)
            if ready and found.recv(64) == b"ready":
                return found
    found.close()
    return None


def is_ours(connection: socket.socket) -> bool:
    """Whether who connected is the same user."""
    asked = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", asked)[1]
    return user == os.getuid()


def _ours(folder: Path) -> bool:
    found = folder.lstat()
    others = stat.S_IMODE(found.st_mode) & 0o077
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not others
