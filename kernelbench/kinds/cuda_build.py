"""CUDA steps (``kind = "cuda"``): how nvcc makes their library and their device code.

What nvcc compiles is a file of two or three lines that includes the step's: after it comes what
calls the step's function, :file:`cuda_call/kernelbench_call.cuh` or, for a torch extension, a
module that has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler
from kernelbench.build.includes import reached_files, without_comments
from kernelbench.build.torch_extension import torch_fact, torch_flags, torch_link, uses_torch
from kernelbench.machine.devices import GpuInfo
from kernelbench.machine.toolchain import gencode, own_arch, unknown_arch
from kernelbench.project import overlay
from kernelbench.project.model import Step
from kernelbench.project.overlay import written_source
from kernelbench.ptx.hosts.cuda_build import (
    LACKING_HINT,
    emulated_flags,
    extension_recipe,
    lacking,
    program_recipe,
    tensors_on_cpu,
    unique_flags,
)

_HERE = Path(__file__).parent / "cuda_call"
#: The name under which a torch extension is imported; its file tells steps apart.
EXTENSION = "kernelbench_extension"

_FLAGS = ("-O3", "-Xcompiler", "-fvisibility=hidden")
_STANDARD = "-std=c++20"
#: What a step on the emulator may be linked with beside the runtime that stands in; the libraries
#: that this stands in for.
_HOST_LIBRARIES, _STOOD_IN_FOR = ("-lm", "-ldl", "-lpthread", "-lrt"), ("-lcuda", "-lcudart")


def arch_for(step: Step, gpu: GpuInfo | None) -> str:
    """The arch to build a step for, its own or the GPU's; EnvironmentProblem without either."""
    if step.arch != "any":
        return step.arch
    if gpu is None:
        raise EnvironmentProblem(
            f"{step.name} is built for the GPU at hand, and there is none",
            "`arch` in its step.toml, or --arch, names one",
        )
    return own_arch(gpu.capability)


def cuda_library(step: Step, arch: str) -> Path:
    """The step's library for an arch, from the cache or built now.

    Raises:
        CompileFailure: If its function is not there, or it does not compile.
        EnvironmentProblem: If there is no nvcc, or it does not know the arch.
    """
    return compiler.build(cuda_recipe(step, arch))


def cuda_recipe(
    step: Step, arch: str, *, flags: Sequence[str] = (), what: str = ""
) -> compiler.Recipe:
    """How nvcc makes a step's library or, with ``-cubin`` or ``-ptx``, its device code.

    Args:
        flags: Beside those that every build and this step has.
        what: What it is if not the library, for messages.

    Raises:
        CompileFailure: If the function is not in the sources.
        EnvironmentProblem: If there is no nvcc, or it does not know the arch.
    """
    name = f"{step.name} ({', '.join(filter(None, (arch, what)))})"
    nvcc = compiler.needed_nvcc(name)
    if problem := unknown_arch(arch):
        raise EnvironmentProblem(f"{step.name}: {problem}", "choose another arch, or update CUDA")
    parts = _parts(step)
    command = [*_FLAGS, "-lineinfo", *gencode(arch), *parts.flags, *flags]
    link = ["--cudart", "static", *parts.libraries]
    facts = []
    if parts.torch_extension:
        facts.append(torch_fact())
        command += torch_flags(EXTENSION)
        link += torch_link()
    # Libraries come after what needs them; device code alone is not linked.
    return compiler.Recipe(
        name, nvcc, [parts.source], command, parts.include_dirs, None if what else link, facts
    )


def emulated_library(step: Step, arch: int) -> Path:
    """The step's library for the emulator, with PTX for an arch: 90 is ``sm_90a``.

    Raises:
        CompileFailure: If its function is not there, it does not compile, or it needs what the
            runtime that stands in does not have.
        EnvironmentProblem: If there is no nvcc.
    """
    name = f"{step.name} (emulator, sm_{arch})"
    nvcc, parts = compiler.needed_nvcc(name), _parts(step, on_cpu=True)
    others = [each for each in parts.libraries if each not in (*_HOST_LIBRARIES, *_STOOD_IN_FOR)]
    if others:
        reason = f"gpu_flags: {', '.join(others)}: a library for GPUs, which the emulator lacks"
        raise compiler.CompileFailure(f"{step.name}: {reason}", LACKING_HINT, reason)
    command = [*_FLAGS, *emulated_flags(arch), *unique_flags(), *parts.flags]
    link = [each for each in parts.libraries if each in _HOST_LIBRARIES]
    recipe = compiler.Recipe(name, nvcc, [parts.source], command, parts.include_dirs, link)
    made = extension_recipe(recipe, EXTENSION) if parts.torch_extension else program_recipe(recipe)
    try:
        return compiler.build(made)
    except compiler.CompileFailure as error:
        if missing := lacking(error):
            raise compiler.CompileFailure(
                f"{step.name}: {missing}", LACKING_HINT, missing
            ) from error
        raise


@dataclass(frozen=True)
class _Parts:
    """What the compiler is given of a step."""

    source: Path  #: The file to compile.
    include_dirs: tuple[Path, ...]
    flags: list[str]  #: Of the step's own, the language's standard among them.
    libraries: list[str]
    torch_extension: bool


def _parts(step: Step, *, on_cpu: bool = False) -> _Parts:
    """``on_cpu``: whether cuda is the CPU for a torch extension."""
    entry = overlay.entry_of(step)
    folders, libraries, own = _own_flags(step)
    texts = _texts(entry, folders)
    _require_function(step, entry, texts)
    torch_extension = any(map(uses_torch, texts))
    if not any(word.startswith("-std=") for word in own):
        own.insert(0, _STANDARD)
    return _Parts(
        _caller(step, entry, texts, torch_extension, on_cpu), (entry.parent, *folders, _HERE), own,
        libraries, torch_extension,
    )  # fmt: skip


def is_extension(step: Step) -> bool:
    """Whether a step is a torch extension: it includes a header of torch."""
    entry = overlay.entry_of(step)
    folders, _, _ = _own_flags(step)
    return any(map(uses_torch, _texts(entry, folders)))


def _texts(entry: Path, folders: Sequence[Path]) -> list[str]:
    """The step's file and those that it includes, without comments."""
    return [without_comments(file.read()) for file in reached_files([entry], folders)]


def _own_flags(step: Step) -> tuple[list[Path], list[str], list[str]]:
    """The step's ``gpu_flags``: folders of headers, libraries, and the others."""
    folders, libraries, others = [], [], []
    for flag in step.gpu_flags:
        if flag.startswith("-I"):
            folders.append(_folder(step, Path(flag[2:].strip()).expanduser()))
        elif flag.startswith("-l"):
            libraries.append(flag)
        else:
            others += flag.split()
    return folders, libraries, others


def _folder(step: Step, named: Path) -> Path:
    """A folder of ``-I``, relative to the step's; of a variant, the flag may be its base's."""
    places = [step.path / named]
    while step.base:
        step = step.base
        places.append(step.path / named)
    return next((place for place in places if place.is_dir()), places[0]).resolve()


def _require_function(step: Step, entry: Path, texts: Sequence[str]) -> None:
    """Say in one line what the compiler would say in several, of names in the caller."""
    name = step.function.rpartition("::")[2]
    if any(re.search(rf"\b__global__\b[^;{{}}]*\b{name}\s*\(", text) for text in texts):
        raise _refused(
            step, f"{step.function} is a __global__ kernel; name the host function that launches it"
        )
    if not any(re.search(rf"\b{name}\b", text) for text in texts):
        raise _refused(step, f"{entry.name} has no {step.function!r}")


def _refused(step: Step, reason: str) -> compiler.CompileFailure:
    message = f"{step.path / 'step.toml'}: field 'function': {reason}"
    return compiler.CompileFailure(message, "docs: own-steps, CUDA steps", reason)


def _caller(
    step: Step, entry: Path, texts: Sequence[str], torch_extension: bool, on_cpu: bool
) -> Path:
    """The file that nvcc compiles, in the cache; its folder's name depends on its text only."""
    lines = [f'#include "{entry.name}"']
    if not torch_extension:
        lines += [f"#define KERNELBENCH_FUNCTION {step.function}"]
        lines += ['#include "kernelbench_call.cuh"']
    elif not any("PYBIND11_MODULE" in text for text in texts):
        lines += ["#include <torch/extension.h>"]
        name = step.function.rpartition("::")[2]
        lines += [
            f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{name}", &{step.function}); }}'
        ]
    if torch_extension and on_cpu:
        lines.insert(0, tensors_on_cpu([*texts, *lines]))
    return written_source(f"call_{entry.stem}.cu", "\n".join(lines) + "\n")
