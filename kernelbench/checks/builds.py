"""``kernelbench check --build``: somebody's own build makes the programs that are checked."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelbench.base.cache_folder import cache_dir, writing
from kernelbench.base.errors import UsageError
from kernelbench.build import nvcc_wrapper
from kernelbench.build.compiler import needed_nvcc
from kernelbench.ptx.hosts.built_program import has_kernels
from kernelbench.ptx.hosts.cuda_build import emulated_flags


def built_programs(command: str, named: Sequence[str], arch: int) -> tuple[str, ...]:
    """Run a command of the shell that builds programs, with PTX for the emulator in them.

    It runs in the working folder. What it prints goes to stderr.

    Args:
        command: Such as ``make foo``.
        named: The programs to check; if there are none, what is new in the working folder.
        arch: What nvcc compiles for, such as 90.

    Returns:
        The programs, as paths.

    Raises:
        UsageError: If it fails, or if nobody knows which program is meant.
        EnvironmentProblem: Without nvcc.
    """
    nvcc = needed_nvcc("what --build makes").path
    root = cache_dir() / "toolkits"
    with writing(root):
        environment = nvcc_wrapper.toolkit_with(root, nvcc, emulated_flags(arch))
    with tempfile.TemporaryFile() as clock:
        began = os.fstat(clock.fileno()).st_mtime_ns
    done = subprocess.run(
        command, shell=True, stdout=sys.stderr.fileno(), env={**os.environ, **environment},
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise UsageError(f"`{command}` ended with {done.returncode}", "it says why above")
    if named:
        return tuple(named)
    made = [f"./{each}" for each in sorted(_programs_since(began))]
    if not made:
        raise UsageError(
            f"`{command}` has linked no program with kernels in this folder",
            "name the program; what was built before has to be cleaned first",
        )
    if len(made) > 1:
        raise UsageError(f"`{command}` has linked {', '.join(made)}", "name the one to check")
    return tuple(made)


def _programs_since(time_ns: int) -> Iterator[Path]:
    """Executables with kernels below the working folder that are younger than a time."""
    for folder, below, files in os.walk("."):
        # CMake tries its compilers there.
        below[:] = [each for each in below if not each.startswith(".") and each != "CMakeFiles"]
        for file in (Path(folder, name) for name in files):
            status = file.lstat()
            new = stat.S_ISREG(status.st_mode) and status.st_mtime_ns >= time_ns
            if new and status.st_mode & stat.S_IXUSR and has_kernels(file):
                yield file
