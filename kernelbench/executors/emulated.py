"""The executor ``emulator``: a step on the CPU, one fiber for each CUDA thread.

A compiled step is built from its own source; of PTX, Triton and CUDA steps the PTX runs.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.executors.executor import Target
from kernelbench.kinds.compiled import (
    LibraryExecutor,
    bind_problem,
    common_folder,
    has_backend,
    lineage_blocks,
    symbols_of,
)
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.kinds.python_step import lacking_modules
from kernelbench.machine.arch import unknown_gpu
from kernelbench.machine.devices import require_torch
from kernelbench.machine.toolchain import INSTALL_NVCC, emulator_compiler, nvcc
from kernelbench.project import overlay
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, Problem
from kernelbench.project.shipped import shipped_blocks

if TYPE_CHECKING:
    from kernelbench.emulator.runtime import Runtime
    from kernelbench.emulator.symbols import Symbols

#: From the end of a call's limit, which the emulator keeps itself, to the watchdog's.
_GRACE_S = 10.0


@dataclass(frozen=True)
class OpenedStep:
    """A step that is loaded for the emulator."""

    #: Its callable on its problem's data; it raises ``KernelFault``, and what was found is the
    #: runtime's to say.
    kernel: Kernel
    runtime: Runtime
    symbols: Symbols  #: What names the places of findings.
    library: ctypes.CDLL | None = None  #: Of a step that has one, its own.


class EmulatedKernel:
    """A compiled step's callable on the emulator: a finding is a fault of the call."""

    def __init__(
        self,
        kernel: Kernel,
        runtime: Runtime,
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
        """Call the step; KernelFault, with its report, if the emulator found something."""
        from kernelbench.emulator import findings

        self._runtime.configure(self._emulation, limit_s=self._limit_s)
        fault: KernelFault | None = None
        result = None
        try:
            result = self._kernel(data)
        except KernelFault as error:
            fault = error
        report = findings.resolve_report(self._runtime.report(), self._symbols)
        if report.faults:
            hang = report.findings[0].kind in ("hang", "timeout")
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


@dataclass(frozen=True)
class EmulatorExecutor(LibraryExecutor):
    """See :class:`kernelbench.executors.executor.Executor`. For correctness, never timed."""

    name: str = "emulator"
    letter: str = "E"
    meaning: str = "the emulator"
    timed: bool = False
    device_timed: bool = False
    #: Whether steps are built so that primitives, loads and stores can be recorded.
    recording: bool = False

    def refusal(self, step: Step) -> str:
        """It runs what is written in the ptx layer, and what compilers make PTX of."""
        if step.kind == "triton" and step.in_cute_dsl:
            return f"{step.name} is in the CuTe DSL; this executor takes Triton's own kernels"
        if step.kind in ("step", "ptx", "triton", "cuda"):
            return ""
        return f"{step.in_words}; this executor runs compiled, PTX, Triton and CUDA steps"

    def availability(self, step: Step, device: int) -> tuple[bool, str]:
        """It takes the backend's sources and a host compiler; by kind also Triton or nvcc."""
        native = step.host or step
        if native.compiled and not has_backend(native, "emu"):
            return False, f"there is no common/backend/emu to build {step.name} with"
        if lacking := lacking_modules(step):
            return False, lacking
        if step.kind == "cuda" and nvcc() is None:
            return False, f"no nvcc to build it with; {INSTALL_NVCC}"
        if step.kind in ("triton", "cuda") and (why := unknown_gpu(step)):
            return False, why
        try:
            emulator_compiler()
        except EnvironmentProblem as error:
            return False, error.message
        return True, "emulated on the CPU"

    def target(self, device: int, emulation: Emulation) -> Target:
        """The CPU, standing for the GPU that ``emulation`` describes."""
        return Target(self, "cpu", None, emulation)

    def library(self, step: Step, *, check: bool = False) -> Path:
        """The step built for the emulator, from the cache or built now."""
        from kernelbench.emulator.runtime import step_library

        return step_library(
            step.name, overlay.entry_of(step), common_folder(step), check=check, count=check,
            timed=self.recording, include_dirs=lineage_blocks(step),
        )  # fmt: skip

    def runtime(self, step: Step) -> Runtime:
        """The emulator of the step's building blocks, loaded once per process."""
        from kernelbench.emulator.runtime import runtime

        return runtime(_blocks(step))

    def prepare(self, step: Step, problem: Problem, target: Target) -> str | None:
        """Build the emulator and the step; the hash is the step's, None without a library."""
        self.prepare_runtime(step)
        return self.prepare_step(step, check=False)

    def prepare_runtime(self, step: Step) -> None:
        """Build the emulator, so that workers find it; EnvironmentProblem without their torch."""
        from kernelbench.emulator.runtime import runtime_library

        require_torch("running steps")
        runtime_library(_blocks(step))

    def prepare_step(self, step: Step, *, check: bool) -> str | None:
        """Build what there is to build before a call; the hash of that, or None.

        Raises:
            CompileFailure: If the step does not compile.
            UsageError: For PTX that is none, or is not supported.
        """
        from kernelbench.build.compiler import artefact_sha

        if step.kind == "triton":
            return None
        if step.host is not None:
            self.library(step.host, check=check)
        if step.kind == "ptx":
            from kernelbench.kinds.ptx_step import ptx_library

            return artefact_sha(ptx_library(step, check=check))
        if step.kind == "cuda":
            from kernelbench.kinds.cuda_on_emulator import built_cuda_step

            return artefact_sha(built_cuda_step(step, check=check))
        return artefact_sha(self.library(step, check=check))

    def opened(
        self, step: Step, problem: Problem, device: str, sms: int, *,
        check: bool = False, copy: Path | None = None,
    ) -> OpenedStep:  # fmt: skip
        """The step's callable, and what belongs to it.

        Args:
            sms: What a step is told that asks for the number of SMs before it launches.
            check: Whether for the checker.
            copy: See :meth:`open`; for steps that have a library of their own.

        Raises:
            LoadError: If the step's own code fails.
            KernelbenchError: If it cannot be built or loaded.
        """
        runtime = self.runtime(step)
        if step.kind == "triton":
            from kernelbench.kinds.triton_on_cpu import TritonStepKernel

            script = TritonStepKernel(step, problem, runtime, sms, check=check)
            return OpenedStep(script, runtime, script.symbols)
        if step.kind == "ptx" and step.host is None:
            from kernelbench.kinds.ptx_step import PtxStepKernel

            launched = PtxStepKernel(step, runtime, check=check)
            return OpenedStep(launched, runtime, launched.symbols)
        if step.kind == "cuda":
            from kernelbench.kinds.cuda_on_emulator import CudaStepKernel

            hosting = CudaStepKernel(step, runtime, sms, check=check, copy=copy)
            return OpenedStep(hosting, runtime, hosting.symbols)
        native = step.host or step
        entry = self.open(native, check=check, copy=copy)
        kernel, symbols = bind_problem(problem, entry, native, device), symbols_of(native)
        if step.host is not None:
            from kernelbench.kinds.ptx_step import HostedPtx

            hosted = HostedPtx(step, entry, kernel, symbols, check=check)
            return OpenedStep(hosted, runtime, hosted.symbols, entry.library)
        return OpenedStep(kernel, runtime, symbols, entry.library)

    def load(self, step: Step, problem: Problem, target: Target, limit_s: float) -> Kernel:
        """A callable whose faults are what the emulator found; it ends a launch at the limit."""
        emulation = target.emulation or DEFAULT_EMULATION
        opened = self.opened(step, problem, target.device, emulation.sms)
        return EmulatedKernel(opened.kernel, opened.runtime, opened.symbols, emulation, limit_s)

    def watchdog_limit(self, call_limit_s: float) -> float:
        """A little more than the limit: the emulator's own end of a call says more."""
        return call_limit_s + _GRACE_S

    def notes(self, kernel: Any) -> tuple[str, ...]:
        """How long a call took to emulate: no time of any kernel."""
        note = kernel.take_note() if isinstance(kernel, EmulatedKernel) else ""
        return (note,) if note else ()


def _blocks(step: Step) -> Path:
    """The building blocks whose emulator runs a step."""
    native = step.host or step
    return common_folder(native) if native.compiled else shipped_blocks()


EMULATOR = EmulatorExecutor()
