"""Builds CUDA programs for the emulator, and the CUDA runtime that they are linked with."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelbench.base.cache_folder import cache_dir, writing
from kernelbench.base.demangle import source_name
from kernelbench.base.errors import UsageError
from kernelbench.build import compiler, prebuilt
from kernelbench.build.compiler import CompileFailure, Recipe
from kernelbench.build.torch_extension import (
    torch_fact,
    torch_flags,
    torch_folder,
    torch_headers,
    torch_link,
)
from kernelbench.machine.toolchain import emulator_compiler, host_compiler

_RUNTIME = Path(__file__).parent / "cuda_runtime"
PRECOMPILED = _RUNTIME / "precompiled.hpp"
_TORCH = Path(__file__).parent / "torch_cuda"
#: Headers of libraries for who has none of NVIDIA's, which come first where they are there.
LIBRARY_HEADERS = Path(__file__).parent / "cuda_libraries"
#: What the runtime stands in for, beside itself.
_STOOD_IN_FOR = {
    f"-l{each}" for each in ("cuda", "cudart", "nvrtc", "cublas", "cublasLt", "cufft", "curand")
}
_STANDARD = "-std=c++17"
_FLAGS = (
    _STANDARD, "-O2", "--expt-relaxed-constexpr",
    "-Xcompiler", "-g1",  # lines of the host's calls
)  # fmt: skip
#: What lambdas for the device take. Its headers are a third of what nvcc parses otherwise.
_LAMBDAS = "--extended-lambda"
_HAS_LAMBDAS = re.compile(r"\]\s*(\([^;{}]*\)\s*)?(mutable\s*)?__(device|host)__[^;{}]*\{")
#: Names of what nvcc compiles.
SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
LACKING_HINT = "docs/ptx.md, CUDA programs, lists what it has"
#: The stand-in calls itself, and its symbols have a version that is no other library's: neither do
#: programs take NVIDIA's for them, nor what is linked with NVIDIA's (torch) these.
_OWN_SYMBOLS = ("-Bsymbolic", "-soname=libkernelbench-cuda.so", "--default-symver")
#: How a program may leave its main.
_ENDS = ("--wrap=exit", "--wrap=abort", "--wrap=__assert_fail")
_RELOCATABLE = {"-rdc=true", "--relocatable-device-code=true", "-dc", "--device-c"}
_OF_CUDA = ("cu", "__cu", "nv")
_UNDEFINED_AT_IMPORT = re.compile(r"undefined symbol: (\w+)")
_UNDEFINED = re.compile(r"undefined reference to [`']([^'`(]+)")

#: Of what a host calls: threads, other processes, libraries, functions that a stream calls, chance.
_NOT_IN_TURN = re.compile(
    r"pthread_create|thrd_create|_ZNSt6thread|GOMP_|__kmpc_|fork|\bclone|posix_spawn|popen|\bsystem\b"
    r"|dlm?open|cudaLaunchHostFunc|cuLaunchHostFunc|AddCallback|random_device|getrandom"
)
_PLAIN_LIBRARIES = {"libkernelbench-cuda", "libstdc++", "libgcc_s", "libc", "libm"}


def cuda_runtime_recipe() -> Recipe:
    """How what stands in for libcudart and libcuda is built.

    Raises:
        EnvironmentProblem: Without nvcc.
    """
    name = "CUDA runtime for the emulator"
    nvcc = compiler.needed_nvcc(name)
    return Recipe(
        name, nvcc, sorted(_RUNTIME.glob("*.cpp")), ("-std=c++20", "-O1"),
        link_flags=("--cudart", "none", "-ldl", *_linker(*_OWN_SYMBOLS)),
        # The headers: names, structures and the version that it reports are theirs.
        facts=["CUDA " + ".".join(nvcc.version.split(".")[:2])],
        precompiled=PRECOMPILED,
    )  # fmt: skip


@functools.cache
def cuda_runtime_library() -> Path:
    """What stands in for libcudart and libcuda: what the wheel brought, else built on first use.

    Raises:
        EnvironmentProblem: Without nvcc.
    """
    recipe = cuda_runtime_recipe()
    return prebuilt.library(recipe) or compiler.build(recipe)


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
    link = [*_linker("-z,defs"), *_runtime_link(), *(recipe.link_flags or ())]
    return replace(recipe, link_flags=link)


def extension_recipe(recipe: Recipe, name: str) -> Recipe:
    """A torch extension likewise, that is imported by a name; its sources begin with
    :func:`tensors_on_cpu`.

    What the runtime lacks is missing when it is imported: Python's symbols are, too.
    """
    return replace(
        recipe,
        flags=[*torch_flags(name), *recipe.flags],
        include_dirs=(_TORCH / "include", *recipe.include_dirs),
        link_flags=[*_runtime_link(), *torch_link(), *(recipe.link_flags or ())],
        facts=[*recipe.facts, torch_fact()],
    )


def tensors_on_cpu(texts: Iterable[str]) -> str:
    """What a torch extension's source begins with here: cuda is the CPU for it.

    The headers of torch come before that: they mean what they say.

    Args:
        texts: The source and the files that it includes, without comments.
    """
    headers = dict.fromkeys(each for text in texts for each in torch_headers(text))
    lines = [f"#if __has_include(<{each}>)\n#include <{each}>\n#endif" for each in headers]
    return "\n".join([*lines, "#include <kernelbench/cuda_is_cpu.h>"])


def _runtime_link() -> list[str]:
    runtime = _linker(str(cuda_runtime_library()), "--wrap=dlopen", "--wrap=dlsym")
    return ["--cudart", "none", *runtime]


def _linker(*options: str) -> list[str]:
    return [word for each in options for word in ("-Xlinker", each)]


@dataclass(frozen=True)
class ProgramSources:
    """What a CUDA program is built from, or that it is built already.

    Attributes:
        file: The source that has ``main``, by whose name messages call the program; or an
            executable.
        others: Sources that are compiled and linked with it.
        flags: nvcc's, in the order given; folders are relative to the working folder.
    """

    file: Path
    others: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What the program is told that it was started as: beside its source."""
        path = str(self.file.with_suffix("") if self.file.suffix in SOURCES else self.file)
        return path if "/" in path else f"./{path}"


def program_library(program: ProgramSources, arch: int) -> Path:
    """A program as a library, with the PTX of its kernels.

    Raises:
        UsageError: If it does not compile, or calls what the runtime lacks.
        EnvironmentProblem: Without nvcc.
    """
    file = program.file
    sources = [each.resolve() for each in (file, *program.others)]
    folders, flags, link = _sorted_flags(program.flags)
    standard = [each for each in _FLAGS if each != _STANDARD or not _says_standard(flags)]
    if any(_HAS_LAMBDAS.search(each.read_text(errors="replace")) for each in sources):
        standard.append(_LAMBDAS)
    recipe = Recipe(
        file.name, compiler.needed_nvcc(file.name), sources,
        [*standard, *emulated_flags(arch), *flags],
        [*dict.fromkeys([*(each.parent for each in sources), *folders]), LIBRARY_HEADERS],
        [*_linker(*_ENDS), *emulated_flags(arch), *flags, *link, *_device_link(flags)],
    )  # fmt: skip
    try:
        return _built(program_recipe(recipe))
    except CompileFailure as error:
        if missing := lacking(error):
            raise UsageError(f"{file}: {missing}", LACKING_HINT) from error
        if found := _UNDEFINED.search(error.reason):
            raise UsageError(
                f"{file}: calls {found[1]}, which none of its sources has",
                "name the source that has it, the library with -l, or its target too (--target "
                "NAME,LIBRARY), or have your own build link: kernelbench check --build COMMAND",
            ) from error
        raise UsageError(error.message, error.hint) from error


def _built(recipe: Recipe) -> Path:
    """What a recipe makes, with lambdas for the device if a header turns out to have some."""
    try:
        return compiler.build(recipe)
    except CompileFailure as error:
        if _LAMBDAS not in error.reason:
            raise
        return compiler.build(replace(recipe, flags=[*recipe.flags, _LAMBDAS]))


def is_one_thread(library: Path) -> bool:
    """Whether a program that is built as a library makes its calls one after another, each time in
    the same order, as the names that it imports show."""
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        elf: Any = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        names = "\0".join(each.name for each in symbols)
        tags = elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        needed = {each.needed.partition(".so")[0] for each in tags}
    return not _NOT_IN_TURN.search(names) and _PLAIN_LIBRARIES.issuperset(needed)


def _device_link(flags: Sequence[str]) -> list[str]:
    """What has nvcc link device code: it does so only where it links a runtime; an empty one."""
    if _RELOCATABLE.isdisjoint(flags):
        return []
    empty = cache_dir() / "no-cudart" / "libcudart_static.a"
    with writing(cache_dir()):
        empty.parent.mkdir(parents=True, exist_ok=True)
        empty.write_bytes(b"!<arch>\n")
    return [f"-L{empty.parent}", "--cudart", "static"]


def _says_standard(flags: Sequence[str]) -> bool:
    return any(re.match(r"--?std\b", each) for each in flags)


def _sorted_flags(given: Sequence[str]) -> tuple[list[Path], list[str], list[str]]:
    """Folders of headers, what compiles and what links, of nvcc's flags."""
    folders: list[Path] = []
    flags: list[str] = []
    link: list[str] = []
    for word in given:
        if word.startswith("-I"):
            folders.append(Path(word[2:]).resolve())
        elif word.startswith("-L"):
            link.append(f"-L{Path(word[2:]).resolve()}")
        elif word.startswith("-l"):
            link += [] if word in _STOOD_IN_FOR else [word]
        else:
            flags.append(word)
    return folders, flags, link


def lacking(error: CompileFailure) -> str:
    """Which function a library calls that the runtime does not have; empty for other failures."""
    found = _UNDEFINED.search(error.reason)
    if found is None or not found[1].startswith(_OF_CUDA):
        return ""
    return f"calls {found[1]}, which the CUDA runtime here does not have"


def lacking_at_import(error: ImportError) -> str:
    """The same of an extension; its own text if it lacks no symbol."""
    found = _UNDEFINED_AT_IMPORT.search(str(error))
    if found is None:
        return f"cannot be imported: {' '.join(str(error).split())}"
    return f"calls {source_name(found[1])}, which the CUDA runtime here does not have"
