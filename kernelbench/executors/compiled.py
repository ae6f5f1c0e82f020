"""Compiled steps (``launch.cu``): built for an executor, loaded with ctypes, called through C.

A step's library has two entry points, ``kb_run`` and ``kb_describe``; what a call consists of is
the problem's to say (:meth:`~kernelbench.project.problem.Problem.bind`). No torch headers and no
libtorch are involved, so a step builds in seconds and one library serves every torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.build import compiler
from kernelbench.emulator import findings
from kernelbench.emulator import runtime as emulator
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.emulator.symbols import Symbols
from kernelbench.executors.fault import KernelFault
from kernelbench.executors.loaded_step import LoadedStep
from kernelbench.executors.targets import ARCH_CAPABILITY, SOFT_ARCH, Target
from kernelbench.project import overlay
from kernelbench.project.model import Step
from kernelbench.project.registry import building_blocks

if TYPE_CHECKING:
    from kernelbench.executors.protocol import CompiledProblem
    from kernelbench.project.problem import Kernel, Problem

_GPU_FLAGS = (
    "-std=c++20", "-O3", "-lineinfo", "--cudart", "static", "-Xcompiler", "-fvisibility=hidden",
)  # fmt: skip


#: How long building one step may take: both of the emulator's parts, say.
BUILD_LIMIT_S = 1800.0
#: From the end of a call's limit, which the emulator keeps itself, to the watchdog's.
_GRACE_S = 10.0


def common_folder(step: Step) -> Path:
    """The building blocks that a step is made of, with the backends.

    Raises:
        UsageError: If neither the step's lineage nor ``kernels`` beside it has any.
    """
    for folder in building_blocks(step.lineage_path):
        if (folder / "backend").is_dir():
            return folder
    raise UsageError(f"{step.name}: no common/backend in {step.lineage_path} or kernels beside it")


def build_step(step: Step, problem: Problem, target: Target, *, check: bool = False) -> str | None:
    """Build everything that :func:`load` needs, so that it finds it in the cache.

    Returns:
        Hash of the step's library; None for a Python step.

    Raises:
        CompileFailure: If the step does not compile.
        EnvironmentProblem: If something to build it with is missing.
    """
    if step.kind != "cuda":
        return None
    if target.executor == "emulator":
        emulator.runtime_library(common_folder(step))
    if target.timed and hasattr(problem, "prepare"):
        cast("CompiledProblem", problem).prepare(step)
    return compiler.artefact_sha(step_library(step, target, check=check))


def step_library(step: Step, target: Target, *, check: bool = False) -> Path:
    """The step's library for an executor, from the cache or built now."""
    if target.executor == "emulator":
        return emulator.step_library(
            step.name,
            overlay.entry_of(step),
            common_folder(step),
            check=check,
            count=check,
            include_dirs=lineage_blocks(step),
        )
    return gpu_artefact(step, soft=target.executor == "gpu-soft")


def gpu_artefact(step: Step, *, soft: bool, flags: Sequence[str] = (), what: str = "") -> Path:
    """What nvcc makes of a step: its library or, with ``-cubin`` or ``-ptx``, its device code.

    Args:
        soft: Whether for gpu-soft; else for the step's own arch.
        flags: Beside those that every build and this step has.
        what: What it is if not the library, for messages.
    """
    entry = overlay.entry_of(step)
    common = common_folder(step)
    backend = common / "backend" / ("soft" if soft else step.arch.replace("_", ""))
    capability = ARCH_CAPABILITY[SOFT_ARCH if soft else step.arch]
    described = ", ".join(filter(None, ("soft" if soft else step.arch, what)))
    own = [word for flag in step.gpu_flags for word in flag.split()]
    return compiler.compile_shared(
        f"{step.name} ({described})",
        [entry],
        [*_GPU_FLAGS, *compiler.cuda_arch_flags(capability), *own, *flags],
        include_dirs=(*lineage_blocks(step), common, backend),
        outside=(common / "backend" / "emu",),
    )


def lineage_blocks(step: Step) -> tuple[Path, ...]:
    """The building blocks of the step's lineage, where it has some beside :func:`common_folder`."""
    own = step.lineage_path / "common"
    return (own,) if own.is_dir() and own != common_folder(step) else ()


class EmulatedKernel:
    """A compiled step's callable on the emulator: a finding is a fault of the call."""

    def __init__(
        self,
        kernel: Kernel,
        runtime: emulator.Runtime,
        symbols: Symbols,
        emulation: Emulation,
        limit_s: float,
    ) -> None:
        self._kernel = kernel
        self._runtime = runtime
        self._symbols = symbols
        self._emulation = emulation
        self._limit_s = limit_s
        self._seconds: list[float] = []

    def __call__(self, data: Any) -> Any:
        """Call the step.

        Raises:
            KernelFault: If the emulator found something, with its report.
        """
        self._runtime.configure(self._emulation, limit_s=self._limit_s)
        fault: KernelFault | None = None
        result = None
        try:
            result = self._kernel(data)
        except KernelFault as error:
            fault = error
        report = findings.resolve_report(self._runtime.report(), self._symbols)
        if report.findings:
            hang = report.findings[0].kind == "hang"
            text = report.headline().removeprefix("hang: ")
            raise KernelFault(text, hang=hang, report=report) from fault
        if fault is not None:
            raise fault
        self._seconds.append(report.seconds)
        return result

    def take_note(self) -> str:
        """How long a call took to emulate since the last note, in words; empty without a call."""
        if not self._seconds:
            return ""
        note = f"emulated in {max(self._seconds):.2g} s a call"
        self._seconds.clear()
        return note


def load_compiled(step: Step, problem: Problem, target: Target, limit_s: float = 0.0) -> Kernel:
    """The step's callable on its problem's data.

    Args:
        limit_s: Seconds after which the emulator ends a launch; 0 for never. No other executor
            can: there the watchdog ends the process.

    Raises:
        KernelbenchError: If it cannot be built or loaded, or the problem has no compiled steps.
    """
    entry = load_entry(step, target)
    kernel = bind_problem(problem, entry, step, target)
    if entry.emulation is None:
        return kernel
    return EmulatedKernel(
        kernel, entry.emulation, symbols_of(step), target.emulation or DEFAULT_EMULATION, limit_s
    )


def watchdog_limit(call_limit_s: float, target: Target) -> float:
    """Seconds that the watchdog gives a call: the emulator's own end of it says more."""
    return call_limit_s + (_GRACE_S if target.executor == "emulator" else 0.0)


def bind_problem(problem: Problem, entry: LoadedStep, step: Step, target: Target) -> Kernel:
    """A loaded step's callable, as its problem puts it together.

    Raises:
        UsageError: If the problem has no compiled steps.
    """
    if not hasattr(problem, "bind"):
        raise UsageError(f"problem {problem.name} has no binding for compiled steps (bind)")
    return cast("CompiledProblem", problem).bind(entry, step, target.device)


def load_entry(step: Step, target: Target, *, check: bool = False) -> LoadedStep:
    """Build and load a step."""
    path = step_library(step, target, check=check)
    runtime = None
    if target.executor == "emulator":
        runtime = emulator.runtime(common_folder(step))
    try:
        found = ctypes.CDLL(str(path))
        found.kb_run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        found.kb_run.restype = ctypes.c_int
        found.kb_describe.argtypes = [ctypes.c_void_p]
        found.kb_describe.restype = None
    except (OSError, AttributeError) as error:
        text = " ".join(str(error).split())
        raise EnvironmentProblem(f"{step.name}: its library cannot be loaded: {text}") from error
    return LoadedStep(found, path, runtime, target.timed)


def symbols_of(step: Step) -> Symbols:
    """What resolves the emulator's reports about a step."""
    return Symbols(symbol_folders(step))


def symbol_folders(step: Step) -> dict[str, Path]:
    """What debug information calls a step's folders, and where they are."""
    folders = {
        emulator.STEP_NAME: overlay.folder_of(step),
        emulator.COMMON_NAME: common_folder(step),
    }
    for folder in lineage_blocks(step):
        folders[emulator.LINEAGE_NAME] = folder
    return folders
