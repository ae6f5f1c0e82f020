"""What a step of any kind is made of: compiled, CUDA and PTX steps, and what Triton compiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.build import compiler
from kernelbench.inspection import cubin, resources, triton_code
from kernelbench.inspection.disassembly import disassemble
from kernelbench.inspection.resources import Build, Inspection
from kernelbench.machine import devices
from kernelbench.machine.arch import DEFAULT_ARCH
from kernelbench.machine.toolchain import cpu_count, own_arch, unknown_arch
from kernelbench.project.context import Context
from kernelbench.project.model import Step


def require_known(arch: str) -> None:
    """Refuse an arch that nvcc does not know.

    Raises:
        UsageError: With those that it knows.
    """
    if arch != "all" and (problem := unknown_arch(arch)):
        raise UsageError(problem)


def built_for(step: Step, arch: str) -> bool:
    """Whether an arch (or ``all``) means any code of a step."""
    if step.kind == "step":
        return bool(resources.flavours(step, arch))
    return arch == "all" or step.arch in ("any", arch)


def inspect_all(
    steps: Sequence[Step],
    arch: str,
    context: Context,
    shape: str | None = None,
    *,
    sass: bool = False,
    ptx: bool = False,
) -> Iterator[Inspection]:
    """:func:`inspect_step` for each step, in order; they are built on all cores."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        yield from pool.map(
            lambda step: inspect_step(step, arch, context, shape, sass=sass, ptx=ptx), steps
        )


def inspect_step(
    step: Step,
    arch: str,
    context: Context,
    shape: str | None = None,
    *,
    sass: bool = False,
    ptx: bool = False,
) -> Inspection:
    """Compile a step's device code and say what it takes; what fails is said in ``missing``.

    Args:
        arch: What to compile for; ``all`` for the step's own, else the GPU at hand, else
            :data:`kernelbench.machine.arch.DEFAULT_ARCH`.
        shape: Of the problem, for what Triton compiles; its first benchmark shape if None.
        sass: Whether to disassemble it; ptx: whether to give its PTX.

    Raises:
        UsageError: If there is no such shape.
    """
    if step.kind == "step":
        return resources.inspect(step, arch, sass=sass, ptx=ptx)
    chosen = inspected_arch(step, arch)
    if step.kind in ("cuda", "ptx"):
        return inspect_cuda(step, chosen, sass=sass, ptx=ptx)
    call = triton_code.triton_call_of(context, step, shape)
    return triton_code.inspect_triton(step, call, chosen, sass=sass, ptx=ptx)


def inspected_arch(step: Step, arch: str = "all") -> str:
    """What a CUDA, PTX or Triton step is compiled for."""
    if arch != "all":
        return arch
    if step.kind == "ptx":
        return cubin.target_of(step)
    if step.arch != "any":
        return step.arch
    here = devices.gpus()
    return own_arch(here[0].capability) if here else DEFAULT_ARCH.name


def inspect_cuda(step: Step, arch: str, *, sass: bool = False, ptx: bool = False) -> Inspection:
    """What nvcc makes of a CUDA or PTX step; only calls know what kernels are launched with."""
    found = Inspection(step.name, step.title, None, (), step.allowances, (), step.kind)
    if compiler.nvcc() is None:
        return found
    try:
        code = cubin.compile_cubin(step, arch=arch)
        build = Build(
            arch=arch,
            soft=False,
            code=tuple(
                resources.code_of(kernel, arch, code.bounds.get(kernel.symbol), None)
                for kernel in code.kernels
            ),
            spilling=tuple(
                cubin.demangled(f.symbol) for f in code.functions if f.spills and not f.kernel
            ),
            warnings=code.warnings,
            ptx=cubin.compile_ptx(step, arch=arch) if ptx else None,
        )
        found = replace(found, builds=(build,))
        if sass:
            build = replace(build, sass=disassemble(code.path))
    except EnvironmentProblem as error:
        return replace(found, missing=(str(error),))
    return replace(found, builds=(build,))
