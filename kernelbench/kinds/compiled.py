"""Compiled steps (``launch.cu``): built for an executor, loaded with ctypes, called through C.

No torch headers and no libtorch are involved, so a step builds in seconds and one library serves
every torch. The compiler and the emulator are imported where they are used: ``list`` asks every
executor what it can run, and needs neither.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.build.flatten import BACKEND, Folders, flatten
from kernelbench.kinds.callables import notes_of
from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.kinds.protocol import CompiledProblem
from kernelbench.machine.arch import SOFT_ARCHES, STEP_ARCHES
from kernelbench.machine.toolchain import INSTALL_NVCC, cuda_arch_flags, nvcc
from kernelbench.project import overlay
from kernelbench.project.building_blocks import building_blocks
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, Problem

if TYPE_CHECKING:
    from kernelbench.build.compiler import Recipe
    from kernelbench.emulator.runtime import Runtime
    from kernelbench.emulator.symbols import Symbols

_GPU_FLAGS = (
    "-std=c++20", "-O3", "-lineinfo", "--cudart", "static", "-Xcompiler", "-fvisibility=hidden",
)  # fmt: skip

#: How long building one step may take: both of the emulator's parts, say.
BUILD_LIMIT_S = 1800.0


@dataclass(frozen=True)
class LibraryExecutor:
    """What executors of compiled steps share: a library is built, opened and bound."""

    def library(self, step: Step, *, check: bool = False) -> Path:
        """The step's library (for the checker if ``check``), from the cache or built now."""
        raise NotImplementedError

    def runtime(self, step: Step) -> Runtime | None:
        """The emulator that the library calls; None on a GPU."""
        return None

    def prepare_library(self, step: Step, problem: Problem, timed: bool) -> str:
        """Build the library and what the problem needs beside it; returns its hash."""
        from kernelbench.build.compiler import artefact_sha

        if timed and hasattr(problem, "prepare"):
            cast("CompiledProblem", problem).prepare(step)
        return artefact_sha(self.library(step))

    def open(
        self, step: Step, *, timed: bool = False, check: bool = False, copy: Path | None = None
    ) -> LoadedStep:
        """Build and open a step's library.

        Args:
            timed: Whether its calls are timed.
            check: Whether for the checker, where there is one.
            copy: Where to copy the library to and load it from, with static variables of its own.

        Raises:
            EnvironmentProblem: If the library cannot be loaded.
        """
        path = self.library(step, check=check)
        if copy is not None:
            path = Path(shutil.copyfile(path, copy))
        runtime = self.runtime(step)
        try:
            found = ctypes.CDLL(str(path))
            found.kb_run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
            found.kb_run.restype = ctypes.c_int
            found.kb_describe.argtypes = [ctypes.c_void_p]
            found.kb_describe.restype = None
        except (OSError, AttributeError) as error:
            text = " ".join(str(error).split())
            raise EnvironmentProblem(
                f"{step.name}: its library cannot be loaded: {text}"
            ) from error
        return LoadedStep(found, path, runtime, timed)

    def watchdog_limit(self, call_limit_s: float) -> float:
        """The limit itself: nothing but the watchdog ends a call."""
        return call_limit_s

    def notes(self, kernel: Any) -> tuple[str, ...]:
        """What the step's callable says of its last call."""
        return notes_of(kernel)


def no_backend(step: Step) -> str:
    """Why a compiled step's arch has no backend, in one line; empty if it has one."""
    if step.arch in STEP_ARCHES:
        return ""
    return (
        f"{step.in_words} for {step.arch}, but the ptx layer has backends for "
        f"{', '.join(STEP_ARCHES)} only; kind 'cuda' takes every arch that nvcc knows"
    )


def common_folder(step: Step) -> Path:
    """The building blocks of a step, with the backends; UsageError if there are none anywhere."""
    for folder in building_blocks(step.lineage_path):
        if (folder / "backend").is_dir():
            return folder
    raise UsageError(f"{step.name}: the ptx layer (kernels/common/backend) is not there")


def has_backend(step: Step, backend: str) -> bool:
    """Whether there is a ``common/backend`` of this name to build the step with."""
    return any(
        (folder / "backend" / backend).is_dir() for folder in building_blocks(step.lineage_path)
    )


def buildable(step: Step, backend: str, where: str) -> tuple[bool, str]:
    """Whether the parts that build a compiled step for a GPU are there."""
    if not has_backend(step, backend):
        return False, f"there is no common/backend/{backend} to build {step.name} with"
    if nvcc() is None:
        return False, f"no nvcc to build it with; {INSTALL_NVCC}"
    return True, f"native on {where}"


def gpu_artefact(step: Step, *, soft: bool, flags: Sequence[str] = (), what: str = "") -> Path:
    """What nvcc makes of a step (:func:`gpu_recipe`), from the cache or built now."""
    from kernelbench.build import compiler

    return compiler.build(gpu_recipe(step, soft=soft, flags=flags, what=what))


def gpu_recipe(step: Step, *, soft: bool, flags: Sequence[str] = (), what: str = "") -> Recipe:
    """How nvcc makes a step's library or, with ``-cubin`` or ``-ptx``, its device code.

    Args:
        soft: Whether for gpu-soft; else for the step's own arch.
        flags: Beside those that every build and this step has.
        what: What it is if not the library, for messages.
    """
    from kernelbench.build import compiler

    if problem := no_backend(step):
        raise EnvironmentProblem(problem)
    entry = overlay.entry_of(step)
    common = common_folder(step)
    backend = common / "backend" / ("soft" if soft else native_backend(step))
    capability = STEP_ARCHES[SOFT_ARCHES[step.arch] if soft else step.arch].capability
    described = ", ".join(filter(None, ("soft" if soft else step.arch, what)))
    name = f"{step.name} ({described})"
    return compiler.Recipe(
        name,
        compiler.needed_nvcc(name),
        [entry],
        [*_GPU_FLAGS, *compiler.cuda_arch_flags(capability), *_own_flags(step), *flags],
        (*lineage_blocks(step), common, backend),
    )


def backend_folders(step: Step, backend: str) -> Folders:
    """Where the files of a compiled step are, for one file of them all."""
    common = common_folder(step)
    blocks = [(f"lineage{i or ''}", folder) for i, folder in enumerate(lineage_blocks(step))]
    folders = [("step", overlay.entry_of(step).parent), *blocks, ("common", common)]
    return Folders(dict([*folders, (BACKEND, common / BACKEND / backend)]))


def flat_source(step: Step) -> str:
    """A compiled step for its arch as one source (``build/flatten.py``); or UsageError."""
    if step.arch not in STEP_ARCHES or not has_backend(step, native_backend(step)):
        raise UsageError(f"{step.name} is written for {step.arch}, for which there is no backend")
    return flatten(overlay.entry_of(step), backend_folders(step, native_backend(step)))


def standalone_flags(step: Step) -> list[str]:
    """nvcc's flags for a compiled step of one source, on a GPU of its own arch."""
    return [*_GPU_FLAGS, *cuda_arch_flags(STEP_ARCHES[step.arch].capability), *_own_flags(step)]


def native_backend(step: Step) -> str:
    """The name of the backend of the step's own arch."""
    return step.arch.replace("_", "")


def _own_flags(step: Step) -> list[str]:
    return [word for flag in step.gpu_flags for word in flag.split()]


def lineage_blocks(step: Step) -> tuple[Path, ...]:
    """The building blocks of the step's lineage, where it has some beside :func:`common_folder`."""
    shared = common_folder(step)
    return tuple(folder for folder in building_blocks(step.lineage_path) if folder != shared)


def bind_problem(problem: Problem, entry: LoadedStep, step: Step, device: str) -> Kernel:
    """A loaded step's callable, as its problem puts it together.

    Raises:
        UsageError: If the problem has no compiled steps.
    """
    if not hasattr(problem, "bind"):
        raise UsageError(f"problem {problem.name} has no binding for compiled steps (bind)")
    return cast("CompiledProblem", problem).bind(entry, step, device)


def symbols_of(step: Step) -> Symbols:
    """What resolves the emulator's reports about a step."""
    from kernelbench.emulator.symbols import Symbols

    return Symbols(symbol_folders(step))


def symbol_folders(step: Step) -> dict[str, Path]:
    """What debug information calls a step's folders, and where they are."""
    from kernelbench.emulator.runtime import COMMON_NAME, LINEAGE_NAME, STEP_NAME

    folders = {STEP_NAME: overlay.entry_of(step).parent, COMMON_NAME: common_folder(step)}
    for folder in lineage_blocks(step):
        folders[LINEAGE_NAME] = folder
    return folders
