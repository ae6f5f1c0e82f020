"""What a step of any kind is made of: compiled, CUDA and PTX steps, and what Triton compiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kernelbench.base.errors import EnvironmentProblem, PlannedStepError, UsageError
from kernelbench.build import compiler
from kernelbench.inspection import cubin, resources, triton_code
from kernelbench.inspection.resources import Build, Inspection, disassemble
from kernelbench.machine import devices
from kernelbench.machine.arch import DEFAULT_ARCH
from kernelbench.machine.toolchain import cpu_count, own_arch
from kernelbench.project.context import Context
from kernelbench.project.model import Step
from kernelbench.project.source_files import sources_of

_IMPORTS_TRITON = re.compile(r"^\s*(?:import|from)\s+triton\b", re.MULTILINE)


def choose_steps(
    steps: Sequence[Step], usable: Callable[[Step], bool], otherwise: Callable[[Step], str]
) -> tuple[list[Step], list[str]]:
    """The steps that are usable, and for each of the others a line.

    Args:
        otherwise: What is said of a written step that is not.

    Raises:
        PlannedStepError: If none is, because they are planned.
        UsageError: If none is.
    """
    chosen = [step for step in steps if step.status != "planned" and usable(step)]
    left_out = [
        f"{step.name} is planned: no kernel yet" if step.status == "planned" else otherwise(step)
        for step in steps
        if step not in chosen
    ]
    if not chosen:
        kind = PlannedStepError if all(s.status == "planned" for s in steps) else UsageError
        raise kind("; ".join(left_out), "`kernelbench list` shows the steps")
    return chosen, left_out


def select_kernels(steps: Sequence[Step]) -> tuple[list[Step], list[str]]:
    """The steps with compiled code, and a line for each other; errors as :func:`choose_steps`."""
    return choose_steps(
        steps, _has_kernels, lambda step: f"{step.in_words}: there is no code of its own to inspect"
    )


def _has_kernels(step: Step) -> bool:
    """Whether there is device code of its own; a Python step has some if it imports Triton."""
    if step.kind != "python":
        return True
    texts = (file.read_text(errors="replace") for file in sources_of(step).values())
    return any(_IMPORTS_TRITON.search(text) for text in texts)


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
    """Compile each step's device code and say what it takes; what fails is said in ``missing``.

    They come in order, and are built on all cores.

    Args:
        arch: What to compile for; ``all`` for the step's own, else the GPU at hand, else
            :data:`kernelbench.machine.arch.DEFAULT_ARCH`.
        shape: Of the problem, for what Triton compiles; its first benchmark shape if None.
        sass: Whether to disassemble it; ptx: whether to give its PTX.

    Raises:
        UsageError: If there is no such shape.
    """

    def inspected(step: Step) -> Inspection:
        if step.kind == "step":
            return resources.inspect(step, arch, sass=sass, ptx=ptx)
        chosen = inspected_arch(step, arch)
        if step.kind in ("cuda", "ptx"):
            return inspect_cuda(step, chosen, sass=sass, ptx=ptx)
        call = triton_code.triton_call_of(context, step, shape)
        return triton_code.inspect_triton(step, call, chosen, sass=sass, ptx=ptx)

    with ThreadPoolExecutor(cpu_count()) as pool:
        yield from pool.map(inspected, steps)


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
        kernels = tuple(
            resources.code_of(kernel, arch, code.bounds.get(kernel.symbol), None)
            for kernel in code.kernels
        )
        text = cubin.compile_ptx(step, arch=arch) if ptx else None
        build = Build(arch, False, kernels, code.spilling, code.warnings, ptx=text)
        found = replace(found, builds=(build,))
        if sass:
            found = replace(found, builds=(replace(build, sass=disassemble(code.path)),))
    except EnvironmentProblem as error:
        return replace(found, missing=(str(error),))
    return found
