"""Builds CUDA programs for the emulator, and the CUDA runtime that they are linked with."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.build import compiler
from kernelbench.build.compiler import CompileFailure, Recipe
from kernelbench.build.torch_extension import torch_fact, torch_flags, torch_folder, torch_link
from kernelbench.machine.toolchain import emulator_compiler, host_compiler
from kernelbench.ptx.demangle import source_name

_RUNTIME = Path(__file__).parent / "cuda_runtime"
_TORCH = Path(__file__).parent / "torch_cuda"
_FLAGS = ("-std=c++17", "-O2", "--extended-lambda", "--expt-relaxed-constexpr")
#: nvcc reads them itself.
_MORE_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
#: What a torch extension's source begins with here: cuda is the CPU for it.
TENSORS_ON_CPU = "#define KERNELBENCH_WHOLE_EXTENSION\n#include <kernelbench/cuda_is_cpu.h>"
#: The same of one that has no module, and so fewer headers.
TENSORS_ON_CPU_ONLY = "#include <kernelbench/cuda_is_cpu.h>"
LACKING_HINT = "docs/ptx.md, CUDA programs, lists what it has"
_UNDEFINED_AT_IMPORT = re.compile(r"undefined symbol: (\w+)")
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


def torch_allocator_library() -> Path:
    """What makes torch's tensors memory of the runtime that stands in, which must be loaded.

    Raises:
        EnvironmentProblem: Without torch, or a host compiler.
    """
    torch = torch_folder()
    return compiler.compile_shared(
        "torch's tensors for the emulator", [_TORCH / "allocator.cpp"], ("-std=c++20", "-O1"),
        compiler=emulator_compiler(), include_dirs=(torch / "include",), facts=[torch_fact()],
        link_flags=("-L", str(torch / "lib"), "-lc10"),
    )  # fmt: skip


def emulated_flags(arch: int) -> list[str]:
    """What has nvcc put PTX for an arch into a library, readable: 90 is ``sm_90a``."""
    target = f"compute_{arch}" + ("a" if arch >= 90 else "")
    return ["-lineinfo", "--no-compress", "-gencode", f"arch={target},code={target}"]


def unique_flags() -> list[str]:
    """What gives each copy of a library static variables of its own, those of templates too."""
    host = host_compiler()
    gnu = host is not None and host.kind == "g++"
    return ["-Xcompiler", "-fno-gnu-unique"] if gnu else []


def program_recipe(recipe: Recipe) -> Recipe:
    """A library linked with the runtime that stands in; what that lacks is refused."""
    link = ["-Xlinker", "-z,defs", *_runtime_link(), *(recipe.link_flags or ())]
    return replace(recipe, link_flags=link)


def extension_recipe(recipe: Recipe, name: str) -> Recipe:
    """A torch extension likewise, that is imported by a name; its sources begin with
    :data:`TENSORS_ON_CPU`.

    What the runtime lacks is missing when it is imported: Python's symbols are, too.
    """
    return replace(
        recipe,
        flags=[*torch_flags(name), *recipe.flags],
        include_dirs=(_TORCH / "include", *recipe.include_dirs),
        link_flags=[*_runtime_link(), *torch_link(), *(recipe.link_flags or ())],
        facts=[*recipe.facts, torch_fact()],
    )


def _runtime_link() -> list[str]:
    return ["--cudart", "none", "-Xlinker", str(cuda_runtime_library())]


def program_library(file: Path, arch: int) -> Path:
    """A program as a library, with the PTX of its kernels.

    Raises:
        UsageError: If it does not compile, or calls what the runtime lacks.
        EnvironmentProblem: Without nvcc.
    """
    recipe = Recipe(
        file.name, compiler.needed_nvcc(file.name), [file.resolve()],
        [*_FLAGS, *emulated_flags(arch)], (file.resolve().parent,),
        ["-Xlinker", "--wrap=exit"], [os.environ.get(name, "") for name in _MORE_FLAGS],
    )  # fmt: skip
    try:
        return compiler.build(program_recipe(recipe))
    except CompileFailure as error:
        if missing := lacking(error):
            raise UsageError(f"{file}: {missing}", LACKING_HINT) from error
        raise UsageError(error.message, error.hint) from error


def lacking(error: CompileFailure) -> str:
    """Which function a library calls that the runtime does not have; empty for other failures."""
    found = _UNDEFINED.search(error.reason)
    return f"calls {found[1]}, which the CUDA runtime here does not have" if found else ""


def lacking_at_import(error: ImportError) -> str:
    """The same of an extension; its own text if it lacks no symbol."""
    found = _UNDEFINED_AT_IMPORT.search(str(error))
    if found is None:
        return f"cannot be imported: {' '.join(str(error).split())}"
    return f"calls {source_name(found[1])}, which the CUDA runtime here does not have"
