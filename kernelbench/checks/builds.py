"""``kernelbench check --build``: somebody's own build makes the programs that are checked."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kernelbench.base.cache_folder import cache_dir, writing
from kernelbench.base.errors import UsageError
from kernelbench.build import nvcc_wrapper
from kernelbench.build.compiler import needed_nvcc
from kernelbench.ptx.hosts.built_program import has_kernels
from kernelbench.ptx.hosts.cuda_build import LIBRARY_HEADERS, emulated_flags

#: Its ``sitecustomize`` notes extensions of torch.
_NOTED = Path(nvcc_wrapper.__file__).parent / "noted_extensions"


class Built(NamedTuple):
    """What a build has made: programs, as paths; what torch's ``load`` makes extensions of."""

    programs: tuple[str, ...]
    extensions: tuple[str, ...]


def built_by(command: str, named: Sequence[str], arch: int) -> Built:
    """Run a command of the shell that builds programs, with PTX for the emulator in them.

    It runs in the working folder. What it prints goes to stderr.

    Args:
        command: Such as ``make foo``.
        named: What to check; if there is nothing, programs that are new in the working folder.
        arch: What nvcc compiles for, such as 90.

    Raises:
        UsageError: If it fails, or if it has linked no program.
        EnvironmentProblem: Without nvcc.
    """
    nvcc = needed_nvcc("what --build makes").path
    root = cache_dir() / "toolkits"
    with writing(root):
        environment = nvcc_wrapper.toolkit_with(root, nvcc, emulated_flags(arch), LIBRARY_HEADERS)
    with tempfile.TemporaryFile() as clock:
        began = os.fstat(clock.fileno()).st_mtime_ns
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as noted:
        path = os.pathsep.join(filter(None, [str(_NOTED), os.environ.get("PYTHONPATH")]))
        environment |= {"PYTHONPATH": path, "KERNELBENCH_EXTENSIONS": noted}
        status = _status_of(command, {**os.environ, **environment})
        extensions = tuple(each.read_text() for each in Path(noted).iterdir())
    if status:
        raise UsageError(f"`{command}` ended with {status}", "it says why above")
    if named:
        return Built(tuple(named), extensions)
    if extensions:
        raise UsageError(
            f"`{command}` builds an extension of torch",
            f"name the script that imports it: kernelbench check test.py --build '{command}'",
        )
    made = [f"./{each}" for each in sorted(_programs_since(began))]
    if not made:
        raise UsageError(
            f"`{command}` has linked no program with kernels in this folder",
            "name the program; what was built before has to be cleaned first",
        )
    return Built(tuple(made), ())


def _status_of(command: str, environment: dict[str, str]) -> int:
    with subprocess.Popen(
        command, shell=True, stdout=sys.stderr.fileno(), env=environment
    ) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()  # make ends its own
            raise


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
