"""What stands in for nvcc while somebody's own build runs: nvcc, with PTX for the emulator.

The build is done as ever, with its own flags and linker; only what names a GPU's architecture is
another. Nothing here imports more than Python's own modules: a build may call it a thousand times.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

#: Flags of nvcc that name architectures, and that are followed by or joined with a value.
_ARCHES = (
    "-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code", "--gpu-code",
)  # fmt: skip
_MACHINE_CODE = {"-cubin", "--cubin"}
_DEBUG = {"-G", "--device-debug"}


def toolkit_with(folder: Path, nvcc: Path, flags: Sequence[str]) -> dict[str, str]:
    """A CUDA toolkit's folder whose nvcc is this one, and the environment that has it found.

    Args:
        folder: An empty folder.
        nvcc: The real one, in its toolkit's folder ``bin``.
        flags: What names architectures instead.
    """
    home = nvcc.resolve().parent.parent
    (folder / "bin").mkdir()
    for each in home.iterdir():
        if each.name != "bin":
            (folder / each.name).symlink_to(each)
    for each in (home / "bin").iterdir():
        if each.name != "nvcc":
            (folder / "bin" / each.name).symlink_to(each)
    script = folder / "bin" / "nvcc"
    package = Path(__file__).resolve().parents[2]
    script.write_text(
        f"#!{sys.executable} -I\nimport sys\nsys.path.insert(0, {str(package)!r})\n"
        "from kernelbench.build.nvcc_wrapper import main\n"
        f"main(sys.argv[1:], {str(nvcc)!r}, {[*flags]!r})\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
    named = {name: str(script) for name in ("NVCC", "CUDACXX") if os.environ.get(name)}
    return {"PATH": path, "CUDA_HOME": str(folder), "CUDA_PATH": str(folder), **named}


def main(words: list[str], nvcc: str, flags: list[str]) -> NoReturn:
    """Be nvcc."""
    os.execv(nvcc, [nvcc, *for_emulator(words, flags)])


def for_emulator(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """A command line of nvcc with other architectures."""
    if not _MACHINE_CODE.isdisjoint(words):
        return [*words]
    debug = not _DEBUG.isdisjoint(words)  # such code has its lines already
    return [*_without_arches(words), *(each for each in flags if not debug or each != "-lineinfo")]


def _without_arches(words: Sequence[str]) -> Iterator[str]:
    follows = False
    for word in words:
        if follows:
            follows = False
        elif word in _ARCHES:
            follows = True
        elif word.partition("=")[0] not in _ARCHES:
            yield word
