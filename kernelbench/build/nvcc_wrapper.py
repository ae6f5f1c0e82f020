"""What stands in for nvcc while somebody's own build runs: nvcc, with PTX for the emulator.

The build is done as ever, with its own flags and linker; only what names a GPU's architecture is
another. Nothing here imports more than Python's own modules: a build may call it a thousand times.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
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
#: Variables of the environment of a build: what names architectures instead, and the real nvcc.
_FLAGS, _NVCC = "KERNELBENCH_NVCC_FLAGS", "KERNELBENCH_NVCC"
_STUBS = "stubs"  # as CMake looks for it
_FUNCTION = re.compile(r"\b(?:cu[A-Z]|(?:cublas|cufft|curand|nvrtc)[A-Z])\w+")
_CALL = (
    "import sys; sys.path.insert(0, {package!r}); "
    "from kernelbench.build.nvcc_wrapper import main; main(sys.argv[1:])"
)


def toolkit_with(
    root: Path, nvcc: Path, flags: Sequence[str], headers: Path | None = None
) -> dict[str, str]:
    """A CUDA toolkit's folder whose nvcc is this one, and the environment that has it found.

    It stays: CMake keeps the compiler's path. Outside this environment its nvcc is the real one.
    Folders whose real one is gone have the present one from then on.

    Args:
        root: The folder of such folders.
        nvcc: The real one, or a script that calls it.
        flags: What names architectures instead.
        headers: A folder with those of libraries that a toolkit may lack, such as ``cufft.h``.
    """
    import hashlib

    script = (
        f'#!/bin/sh\n[ -z "${_FLAGS}" ] || exec {shlex.quote(sys.executable)} -I -c '
        f'{shlex.quote(_CALL.format(package=str(Path(__file__).resolve().parents[2])))} "$@"\n'
        f'exec {shlex.quote(str(nvcc))} "$@"\n'
    )
    home = _home(nvcc)
    folder = root / hashlib.sha256(f"{nvcc.resolve()}\n{script}".encode()).hexdigest()[:16]
    own = folder / "bin" / "nvcc"
    own.parent.mkdir(parents=True, exist_ok=True)
    for each in {own, *root.glob("*/bin/nvcc")}:
        if each == own or not _real(each).is_file():
            _fill(each.parent.parent, home, script)
    path = os.pathsep.join([str(own.parent), os.environ.get("PATH", os.defpath)])
    libraries = [str(folder / _STUBS), os.environ.get("LIBRARY_PATH", "")]
    named = {name: str(own) for name in ("NVCC", "CUDACXX") if os.environ.get(name)}
    emulated = {_FLAGS: shlex.join(flags), _NVCC: str(nvcc)}
    if headers is not None:
        for each in headers.glob("*.h"):
            name = f"lib{each.stem.removesuffix('_v2')}.so"
            if not any((home / lib / name).exists() for lib in ("lib64", "lib")):
                _make_library(folder / _STUBS, name, name, each)
        # Behind the toolkit's own, which nvcc names with -I.
        where = [str(headers), os.environ.get("CPATH", "")]
        emulated["CPATH"] = os.pathsep.join(filter(None, where))
    return {
        "PATH": path, "LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "CUDA_HOME": str(folder), "CUDA_PATH": str(folder), **named, **emulated,
    }  # fmt: skip


def _home(nvcc: Path) -> Path:
    """The folder of its toolkit, as it says itself."""
    import subprocess

    said = subprocess.run(
        [nvcc, "-dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True, check=False
    ).stderr
    top = re.search(r"^#\$ TOP=(.+)$", said, re.M)
    return Path(top[1]).resolve() if top else nvcc.resolve().parent.parent


def _real(own: Path) -> Path:
    return Path(shlex.split(own.read_text().splitlines()[-1])[1])


def _fill(folder: Path, home: Path, script: str) -> None:
    """Have a folder lead to a toolkit; others may do the same now, and builds may use it."""
    entries = [each for each in home.iterdir() if each.name not in ("bin", _STUBS)]
    entries += [each for each in (home / "bin").iterdir() if each.name != "nvcc"]
    for each in entries:
        link = folder / each.relative_to(home)
        if not link.is_symlink() or link.readlink() != each:
            with _replacing(link) as made:
                made.symlink_to(each)
    own = folder / "bin" / "nvcc"
    if not own.is_file() or own.read_text() != script:
        with _replacing(own) as made:
            made.write_text(script)
            made.chmod(made.stat().st_mode | stat.S_IXUSR)
    if (header := home / "include" / "cuda.h").is_file():
        _make_library(folder / _STUBS, "libcuda.so", "libcuda.so.1", header)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    made = path.with_name(f"{path.name}.{os.getpid()}")
    yield made
    made.replace(path)


def _make_library(folder: Path, file: str, name: str, header: Path) -> None:
    """What ``-l`` finds where a library is not installed: its functions, which do nothing."""
    import subprocess

    if (folder / file).exists():
        return
    found = _FUNCTION.findall(header.read_text(errors="replace"))
    names = {f"{each}{end}" for each in found for end in ("", "_ptsz", "_ptds")}
    folder.mkdir(exist_ok=True)
    command = ["c++", "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-x", "assembler", "-"]
    with contextlib.suppress(OSError), _replacing(folder / file) as made:
        subprocess.run(
            [*command, "-o", made],
            input="".join(f".globl {each}\n.type {each}, @function\n{each}:\n" for each in names),
            text=True, check=False,
        )  # fmt: skip


def main(words: list[str]) -> NoReturn:
    """Be nvcc."""
    nvcc = os.environ[_NVCC]
    os.execv(nvcc, [nvcc, *for_emulator(words, shlex.split(os.environ[_FLAGS]))])


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
