"""Builds CUDA programs for the emulator, and the CUDA runtime that they are linked with."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.build import compiler
from kernelbench.build.compiler import CompileFailure
from kernelbench.ptx.fatbin import ptx_in

_RUNTIME = Path(__file__).parent / "cuda_runtime"
_FLAGS = (
    "-std=c++17", "-O2", "-lineinfo", "--no-compress", "--extended-lambda",
    "--expt-relaxed-constexpr",
)  # fmt: skip
#: nvcc reads them itself.
_MORE_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_UNDEFINED = re.compile(r"undefined reference to [`']([^'`(]+)")


def cuda_runtime_library() -> Path:
    """What stands in for libcudart and libcuda.

    Raises:
        EnvironmentProblem: Without nvcc.
    """
    name = "CUDA runtime for the emulator"
    return compiler.compile_shared(
        name, sorted(_RUNTIME.glob("*.cpp")), ("-std=c++20", "-O1"),
        compiler=compiler.needed_nvcc(name), link_flags=("--cudart", "none", "-ldl"),
    )  # fmt: skip


def program_library(file: Path, arch: int, runtime: Path) -> Path:
    """A program as a library, with the PTX of its kernels.

    Raises:
        UsageError: If it does not compile, or calls what ``runtime`` lacks.
        EnvironmentProblem: Without nvcc.
    """
    target = f"compute_{arch}" + ("a" if arch >= 90 else "")
    flags = [*_FLAGS, "-gencode", f"arch={target},code={target}"]
    link = [
        "--cudart", "none", "-Xlinker", "--wrap=exit", "-Xlinker", "-z,defs",
        "-Xlinker", str(runtime),
    ]  # fmt: skip
    facts = [os.environ.get(name, "") for name in _MORE_FLAGS]
    return _built(file, flags, link, facts)


def _built(file: Path, flags: Sequence[str], link: Sequence[str], facts: Sequence[str]) -> Path:
    nvcc = compiler.needed_nvcc(file.name)
    recipe = compiler.Recipe(
        file.name, nvcc, [file.resolve()], flags, (file.resolve().parent,), link, facts
    )
    try:
        return compiler.build(recipe)
    except CompileFailure as error:
        missing = _UNDEFINED.search(error.reason)
        if missing is None:
            raise UsageError(error.message, error.hint) from error
        raise UsageError(
            f"{file}: calls {missing[1]}, which the CUDA runtime here does not have",
            "docs/ptx.md, CUDA programs, lists what it has",
        ) from error


def program_ptx(file: Path, library: Path) -> list[str]:
    """The PTX in a library of :func:`program_library`.

    Raises:
        UsageError: If there is none.
    """
    found = list(ptx_in(library.read_bytes()))
    if not found:
        raise UsageError(f"{file}: nvcc has made no PTX of it", "does it have a kernel?")
    return found
