"""What a compiled step is made of, as the compilers tell it: no GPU is asked and nothing runs.

Device code and its resources come from nvcc and ptxas, the step's constants from its own
``kb_describe``, which any C++20 compiler can build. What cannot be had here is said in ``missing``.
Steps of other kinds: ``by_kind.py``.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler
from kernelbench.inspection import cubin
from kernelbench.inspection.cubin import Cubin, Function
from kernelbench.kinds import compiled
from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.machine.arch import SOFT_ARCHES, arch_named
from kernelbench.machine.occupancy import CtaNeeds, Occupancy, occupancy
from kernelbench.machine.toolchain import cuda_tools, emulator_compiler, nvcc
from kernelbench.project import overlay
from kernelbench.project.model import Allowance, Kind, Step

SCHEMA: Literal["kernelbench.inspect/1"] = "kernelbench.inspect/1"

_MAP = Path(__file__).parent / "describe.map"
_DESCRIBE_FLAGS = (
    "-x", "c++", "-std=c++20", "-O0", "-pthread", "-ffunction-sections", "-fdata-sections",
    "-Wl,--gc-sections", "-Wl,-z,defs", f"-Wl,--version-script={_MAP}",
)  # fmt: skip


@dataclass(frozen=True)
class Code:
    """One kernel's code for one GPU; None is what could not be had."""

    kernel: str
    symbol: str
    registers: int
    barriers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    dynamic_shared_bytes: int | None  #: What the step asks for at the launch.
    #: Of a CTA, as the step launches it; of a step with several kernels, the bound that the kernel
    #: was compiled for.
    threads: int | None
    ctas_per_sm: int | None  #: How many CTAs fit on an SM.
    limited_by: tuple[str, ...]  #: What keeps one more from it.
    code_bytes: int  #: Size of the machine code.
    stages: int | None = None  #: Of Triton's software pipeline.


@dataclass(frozen=True)
class Build:
    """A step built for one GPU."""

    arch: str  #: Of the GPU.
    soft: bool  #: Whether it is an ``sm_100a`` step on Hopper, with its tensor cores in software.
    code: tuple[Code, ...]
    spilling: tuple[str, ...]  #: Functions that are not inlined and spill.
    warnings: tuple[str, ...]  #: What nvcc and ptxas warned of.
    sass: str | None = None  #: Disassembly, where asked for.
    ptx: str | None = None  #: Likewise.

    @property
    def label(self) -> str:
        """``sm_100a``, or ``sm_90a (soft)``."""
        return f"{self.arch} (soft)" if self.soft else self.arch


@dataclass(frozen=True)
class Inspection:
    """A step's constants and builds."""

    step: str
    title: str
    #: ``kb::Description``; None if it could not be had, and for other kinds than ``step``. 0 is
    #: "there is no such thing".
    constants: dict[str, int] | None
    builds: tuple[Build, ...]
    allowances: tuple[Allowance, ...]  #: What the compilers may say of it, and why.
    missing: tuple[str, ...]  #: What could not be had and why, a line for each reason.
    kind: Kind = "step"
    compiled_by: str = ""  #: What has compiled it, if not nvcc, and for what.

    @property
    def empty(self) -> bool:
        """Whether nothing could be had."""
        return self.constants is None and not self.builds

    @property
    def undescribed(self) -> str:
        """Why it is not known what some kernels are launched with; empty if it is.

        Where a compiled step has no constants at all, ``missing`` says why.
        """
        if self.kind == "cuda":
            return "the host code has it; `kernelbench profile` shows launches"
        codes = [code for made in self.builds for code in made.code]
        described = [code.kernel for code in codes if code.dynamic_shared_bytes is not None]
        if self.constants is None or len(described) == len(codes):
            return ""
        if not described:
            return "kb_describe tells of one kernel, but several or none have its number of threads"
        names = ", ".join(dict.fromkeys(described))
        return f"kb_describe tells of {names} only; the host code has what others are launched with"


@dataclass(frozen=True)
class InspectRecord:
    """What ``kernelbench inspect --json`` gives."""

    schema: Literal["kernelbench.inspect/1"]
    nvcc: str | None
    steps: tuple[Inspection, ...]


def flavours(step: Step, arch: str) -> list[bool]:
    """The builds that an arch (or ``all``) means for a step, as their ``soft``."""
    every = {False: step.arch} | (
        {True: SOFT_ARCHES[step.arch]} if step.arch in SOFT_ARCHES else {}
    )
    return [soft for soft, built_for in every.items() if arch in ("all", built_for)]


def inspect(step: Step, arch: str = "all", *, sass: bool = False, ptx: bool = False) -> Inspection:
    """Build a step's device code and say what it takes; what fails is said in ``missing``.

    Args:
        arch: ``sm_100a``, ``sm_90a`` or ``all``.
        sass: Whether to disassemble it; ptx: whether to give its PTX.
    """
    constants: dict[str, int] | None = None
    no_constants = ""
    try:
        constants = describe(step)
    except EnvironmentProblem as error:
        no_constants = f"{step.name}: no constants: {error}"
    builds: list[Build] = []
    failures: dict[str, str] = {}
    for soft in flavours(step, arch) if compiler.nvcc() else ():
        try:
            code = cubin.compile_cubin(step, soft=soft)
            builds.append(_built(step, code, constants, soft, with_ptx=ptx))
            if sass:
                builds[-1] = replace(builds[-1], sass=disassemble(code.path))
        except EnvironmentProblem as error:
            reason = error.reason if isinstance(error, compiler.CompileFailure) else str(error)
            failures.setdefault(reason, str(error))
    missing = [*failures.values()]
    if no_constants and (builds or not failures):  # else it is the same error, of the code itself
        missing.insert(0, no_constants)
    return Inspection(
        step.name, step.title, constants, tuple(builds), step.allowances, tuple(missing)
    )


def _built(
    step: Step, code: Cubin, constants: dict[str, int] | None, soft: bool, *, with_ptx: bool
) -> Build:
    ptx = None
    if with_ptx or len(code.kernels) > 1:
        ptx = cubin.compile_ptx(step, soft=soft)
    bounds = cubin.launch_bounds(ptx) if ptx is not None else {}
    arch = SOFT_ARCHES[step.arch] if soft else step.arch
    described = _described(code, constants, bounds)

    def kernel_code(kernel: Function) -> Code:
        if constants is None or kernel.symbol not in described:
            return code_of(kernel, arch, bounds.get(kernel.symbol), None)
        # gpu-soft has tensor memory in global memory, as much as there are CTAs.
        columns = 0 if soft else constants["tmem_columns"]
        return code_of(kernel, arch, constants["threads"], constants["shared_bytes"], columns)

    return Build(
        arch=arch,
        soft=soft,
        code=tuple(map(kernel_code, code.kernels)),
        spilling=code.spilling,
        warnings=code.warnings,
        ptx=ptx if with_ptx else None,
    )


def _described(code: Cubin, constants: dict[str, int] | None, bounds: dict[str, int]) -> set[str]:
    """The kernel whose constants a step describes: the only one, or the only one so launched.

    Instantiations of one template are one kernel.
    """
    if constants is None:
        return set()
    kernels = {kernel.symbol for kernel in code.kernels}
    if len(kernels) > 1:
        kernels = {symbol for symbol in kernels if bounds.get(symbol) == constants["threads"]}
    names = {cubin.demangled(symbol).partition("<")[0] for symbol in kernels}
    return kernels if len(names) == 1 else set()


def code_of(
    kernel: Function,
    arch: str,
    threads: int | None,
    dynamic_shared_bytes: int | None,
    tmem_columns: int = 0,
    stages: int | None = None,
) -> Code:
    """A kernel as it is launched, as far as that is known."""
    fits: Occupancy | None = None
    known = arch_named(arch)
    if dynamic_shared_bytes is not None and threads and known is not None:
        needs = CtaNeeds(
            registers=kernel.registers,
            threads=threads,
            shared_bytes=kernel.shared_bytes + dynamic_shared_bytes,
            tmem_columns=tmem_columns,
            barriers=kernel.barriers,
        )
        fits = occupancy(needs, known.sm)
    return Code(
        kernel=cubin.demangled(kernel.symbol),
        symbol=kernel.symbol,
        registers=kernel.registers,
        barriers=kernel.barriers,
        stack_bytes=kernel.stack_bytes,
        spill_store_bytes=kernel.spill_store_bytes,
        spill_load_bytes=kernel.spill_load_bytes,
        static_shared_bytes=kernel.shared_bytes,
        dynamic_shared_bytes=dynamic_shared_bytes,
        threads=threads,
        ctas_per_sm=fits.ctas if fits else None,
        limited_by=fits.limits if fits else (),
        code_bytes=kernel.code_bytes,
        stages=stages,
    )


def describe(step: Step) -> dict[str, int]:
    """The step's constants, from a library with nothing but ``kb_describe``.

    It is built for the emulator, without the emulator's runtime; where no C++ compiler can, the
    library for the GPU is asked, which needs no GPU for this.

    Raises:
        EnvironmentProblem: If neither can be built.
    """
    try:
        path = _describing_library(step)
    except EnvironmentProblem:
        if compiler.nvcc() is None:
            raise
        path = compiled.gpu_artefact(step, soft=False)
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_LAZY | os.RTLD_LOCAL)
    except OSError as error:
        raise EnvironmentProblem(
            f"{step.name}: its library cannot be loaded: {' '.join(str(error).split())}"
        ) from error
    if not hasattr(library, "kb_describe"):
        raise EnvironmentProblem(
            f"{step.name} has no kb_describe",
            "define KB_EXPORT void kb_describe(kb::Description*) in launch.cu",
        )
    return LoadedStep(library, path).describe()


def _describing_library(step: Step) -> Path:
    common = compiled.common_folder(step)
    return compiler.compile_shared(
        f"{step.name} (constants)",
        [overlay.entry_of(step)],
        _DESCRIBE_FLAGS,
        include_dirs=(*compiled.lineage_blocks(step), common, common / "backend" / "emu"),
        compiler=emulator_compiler(),
    )


# -- SASS of a cubin, by whichever disassembler is there -----------------------------------------


def disassembler() -> Path | None:
    """``nvdisasm`` or ``cuobjdump``: on ``PATH``, of a CUDA toolkit, or from PyPI."""
    for name in ("nvdisasm", "cuobjdump"):
        for path in (*cuda_tools(name), *(folder / name for folder in _other_folders())):
            if os.access(path, os.X_OK):
                return path
    return None


def _other_folders() -> Iterator[Path]:
    compiler = nvcc()
    if compiler is not None:
        yield compiler.path.resolve().parent
    spec = importlib.util.find_spec("triton")  # its wheel has both
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield Path(place) / "backends" / "nvidia" / "bin"


def disassemble(file: Path) -> str:
    """The SASS of a cubin; EnvironmentProblem without a disassembler that knows the GPU."""
    tool = disassembler()
    if tool is None:
        raise EnvironmentProblem(
            "no SASS: neither nvdisasm nor cuobjdump on PATH, in CUDA_HOME or in the Python "
            "environment",
            "install the CUDA toolkit, or `pip install nvidia-cuda-nvdisasm`",
        )
    options = ["-c"] if tool.name == "nvdisasm" else ["-sass"]
    try:
        run = subprocess.run(
            [str(tool), *options, str(file)],
            capture_output=True, text=True, errors="replace", timeout=120, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{tool} does not run: {error}") from error
    if run.returncode or not run.stdout.strip():
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        why = " ".join(lines[0].split()) if lines else f"status {run.returncode}"
        raise EnvironmentProblem(
            f"{tool.name} cannot read the code: {why}", "is it older than nvcc?"
        )
    return run.stdout
