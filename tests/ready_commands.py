"""Commands in a process that has imported what they import, as ``kernelbench serve`` keeps one.

Python and the modules of a command take 0.3 to 1 s of a core, and the tests start hundreds of
commands. Here one process of a session has the modules, and forks a process for each command. The
first command of an environment is started as a user starts it, and so is one whose process a test
looks for.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import ready_process

from kernelbench.base.child_process import kill_group

_sources = ready_process.Sources(__file__, (*ready_process.READ_AT_START, "LC_", "LANG"))


def source(environment: Mapping[str, str]) -> socket.socket | None:
    """The process that forks commands of such an environment.

    None for the first command, where a test looks for processes by the environment that they began
    with, and in a test of what ``serve`` keeps.
    """
    return None if ready_process.keeps_its_own(environment) else _sources.of(environment)


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


def _carry_out(
    source: socket.socket, asked: dict[str, Any], descriptors: Sequence[int]
) -> NoReturn:
    """Fork the command, and tell its process and how it ended."""
    source.close()
    try:
        *files, reply = descriptors
        if not (pid := os.fork()):
            os.close(reply)
            tempfile.tempdir = None
            if ready_children.are_for(asked["arguments"]):
                ready_children.begin()
            asked["encoding"] = sys.stdout.encoding
            be_fork(lambda: command_server._command(asked, files))
        with socket.socket(fileno=reply) as tells:
            tells.send(b"%d" % pid)
            tells.send(b"%d" % os.waitpid(pid, 0)[1])
    finally:
        os._exit(0)


def main() -> None:
    """Import what commands do, and fork them."""
    source = ready_process.begun()
    with contextlib.suppress(KernelbenchError):  # of what is installed: commands say it themselves
        commands = (f"kernelbench.cli.{each}" for each in COMMANDS)
        for name in (*command_server._MODULES, *commands, *ready_children.MODULES):
            importlib.import_module(name)
    assert "torch" not in sys.modules
    with contextlib.suppress(KernelbenchError):
        for recipe in (runtime_recipe(shipped_blocks(), cpu_level()), cuda_runtime_recipe()):
            # Of hundreds of files; a build that there is not is left to who needs it.
            compiler._found(recipe, recipe_key(recipe), compiler.cache_dir())
    ready_process.serve(source, 4, _carry_out)


if __name__ == "__main__":
    import importlib

    sys.path.append(str(Path(__file__).parent))
    import ready_children

    sys.path.pop()

    from kernelbench.base.child_process import be_fork
    from kernelbench.base.errors import KernelbenchError
    from kernelbench.build import compiler
    from kernelbench.build.recipe import recipe_key
    from kernelbench.cli import COMMANDS, command_server
    from kernelbench.emulator.runtime import runtime_recipe
    from kernelbench.machine.toolchain import cpu_level
    from kernelbench.project.shipped import shipped_blocks
    from kernelbench.ptx.hosts.cuda_build import cuda_runtime_recipe

    main()
