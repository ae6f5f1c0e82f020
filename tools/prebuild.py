"""Build what a wheel brings built: ``make wheel``.

python tools/prebuild.py build/prebuilt

The emulator's runtime for each level of x86-64, and, with nvcc, the CUDA runtime that stands in, as
``<name>-<hash>/lib.so`` (see :mod:`kernelbench.build.prebuilt`) without debug information. They run
with the C and C++ libraries of manylinux_2_28 and newer ones: what asks for more is refused. The
libstdc++ stays the process's: exceptions and ``std::function`` cross to the libraries of steps.

Exit codes: 0, 5 if something cannot be built so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler, prebuilt
from kernelbench.build.compiler import LIBRARY_FILE, META_FILE, Recipe
from kernelbench.emulator.runtime import runtime_recipe
from kernelbench.machine.toolchain import CPU_LEVELS, nvcc
from kernelbench.project.shipped import shipped_blocks
from kernelbench.ptx.hosts.cuda_build import cuda_runtime_recipe

PORTABLE = Path(__file__).resolve().parent / "prebuilt"
#: PEP 600, manylinux_2_28: the newest versions of symbols that its oldest systems have.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
# Before glibc 2.34 these had the symbols that libc has now.
_LIBRARIES = ("--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2")


def recipes() -> Iterator[Recipe]:
    """What is built, in turn."""
    for level in CPU_LEVELS:
        yield runtime_recipe(shipped_blocks(), level)
    if nvcc() is None:
        print("prebuild: no nvcc: without the CUDA runtime that stands in", file=sys.stderr)
    else:
        yield cuda_runtime_recipe()


def portable(recipe: Recipe) -> Recipe:
    """The same for older C and C++ libraries than this machine's."""
    return replace(
        recipe,
        sources=[*recipe.sources, PORTABLE / "old_symbols.cpp"],
        flags=[*recipe.flags, "-include", str(PORTABLE / "old_symbols.hpp")],
        include_dirs=[*recipe.include_dirs, PORTABLE],  # the header is part of the key
        link_flags=[*(w for word in _LIBRARIES for w in ("-Xlinker", word)),
                    *(recipe.link_flags or ())],
        precompiled=None,  # something comes before it
    )  # fmt: skip


def too_new(library: Path) -> list[str]:
    """The versions of symbols that a library needs and manylinux_2_28 lacks."""
    found = []
    with library.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".gnu.version_r")
        assert isinstance(section, GNUVerNeedSection)
        for _, versions in section.iter_versions():
            for version in versions:
                family, _, number = version.name.partition("_")
                parts = tuple(int(part) for part in number.split("."))
                if parts > NEWEST.get(family, ()):
                    found.append(version.name)
    return found


def keep(recipe: Recipe, folder: Path) -> Path:
    """Build one into its folder below that one."""
    built = compiler.build(portable(recipe))
    entry = folder / prebuilt.entry_name(recipe)
    entry.mkdir(parents=True)
    library = entry / LIBRARY_FILE
    subprocess.run(["strip", "--strip-debug", "-o", str(library), str(built)], check=True)
    if needed := too_new(library):
        raise EnvironmentProblem(
            f"the {recipe.name} asks for {', '.join(needed)}, which manylinux_2_28 lacks",
            f"add what brings that in to {PORTABLE}",
        )
    meta = json.loads((built.parent / META_FILE).read_text())
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    meta |= {"flags": list(recipe.flags), "sha256": digest}
    (entry / META_FILE).write_text(json.dumps(meta, indent=1) + "\n")
    return library


def main() -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description="Build what a wheel brings built.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    if platform.machine() != "x86_64":
        print(
            "error: wheels bring libraries for x86_64 only; an sdist builds them", file=sys.stderr
        )
        return 5
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for recipe in recipes():
            began = time.monotonic()
            library = keep(recipe, folder)
            size, took = library.stat().st_size, time.monotonic() - began
            print(f"prebuild: {library.parent.name}: {size / 1e6:.1f} MB, {took:.0f} s")
    except EnvironmentProblem as error:
        print(f"error: {error}", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
