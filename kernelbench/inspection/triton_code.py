"""What Triton compiles for a step: the step is called once, in a process of its own.

Without a GPU nothing is launched, see :mod:`kernelbench.inspection.triton_child`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelbench.base.child_process import run_in_child
from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.inspection import cubin, resources
from kernelbench.inspection.disassembly import disassemble
from kernelbench.inspection.resources import Build, Code, Inspection
from kernelbench.inspection.triton_child import (
    TritonJob,
    TritonKernel,
    TritonOutcome,
    compile_launches,
)
from kernelbench.machine import devices
from kernelbench.machine.toolchain import runs_on
from kernelbench.project.context import Context
from kernelbench.project.model import Lineage, Step
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem
from kernelbench.runs.plan import with_problem

#: For drawing the inputs and compiling, on a CPU too.
_LIMIT_S = 600.0
_SEED = 1


@dataclass(frozen=True)
class TritonCall:
    """What a step is called with to see what is compiled for it."""

    lineage: Lineage
    problem: Problem
    shape: Any

    @property
    def text(self) -> str:
        """``for qwen35 (normal)``."""
        return f"for {self.shape.name} ({self.problem.input_classes[0]})"


def triton_call_of(context: Context, step: Step, shape: str | None) -> TritonCall:
    """A shape that a step takes: the named one, or the first benchmark shape.

    Raises:
        UsageError: If there is no such shape, or it is several, or the step takes none.
    """
    step = with_problem(context, step, [shape] if shape else [])
    lineage = context.lineage_for(step)
    problem = load_problem(lineage)
    shapes = context.shapes_for(problem, [shape] if shape else [])
    if shape and len(shapes) > 1:
        raise UsageError(f"--shape {shape} means {len(shapes)} shapes", "name one")
    taken = [each for each in shapes if not problem.broken_limit(each, step.limits)]
    if not taken:
        limit = problem.broken_limit(shapes[0], step.limits)
        raise UsageError(f"{step.name} does not take {shapes[0].name}: {limit}")
    return TritonCall(lineage, problem, taken[0])


def inspect_triton(
    step: Step, call: TritonCall, arch: str, *, sass: bool = False, ptx: bool = False
) -> Inspection:
    """What Triton compiles for an arch when a step is called; why not is in ``missing``."""
    found = Inspection(step.name, step.title, None, (), step.allowances, (), step.kind)
    if step.in_cute_dsl:
        hint = f"`kernelbench profile {step.name}` shows its launches"
        line = f"{step.name}: what the CuTe DSL compiles cannot be seen; {hint}"
        return replace(found, missing=(line,))
    with tempfile.TemporaryDirectory(prefix="kernelbench-triton-") as name:
        folder = Path(name)
        try:
            outcome = _run_child(step, call, arch, folder)
            if outcome.status == "fault" or not outcome.kernels:
                why = outcome.reason or "it launched no Triton kernel"
                raise EnvironmentProblem(
                    f"{step.name}: no kernels seen {call.text}: {why}",
                    "" if devices.gpus() else "where there is a GPU, `kernelbench inspect` runs it",
                )
            build = _build(outcome.kernels, folder, arch, with_ptx=ptx)
            found = replace(
                found, builds=(build,), compiled_by=f"Triton {outcome.triton}, {call.text}"
            )
            if sass:
                code = [_sass(folder, i, each) for i, each in enumerate(outcome.kernels)]
                found = replace(found, builds=(replace(build, sass="\n".join(code)),))
        except EnvironmentProblem as error:
            return replace(found, missing=(str(error),))
    return found


def _run_child(step: Step, call: TritonCall, arch: str, folder: Path) -> TritonOutcome:
    here = [gpu for gpu in devices.gpus() if runs_on(arch, gpu.capability)]
    device = f"cuda:{here[0].index}" if here else "cpu"
    number = int(re.sub(r"\D", "", arch))
    capability = here[0].capability if here else (number // 10, number % 10)
    job = TritonJob(step, call.shape, call.problem.input_classes[0], _SEED, capability, device)
    ended = run_in_child(
        compile_launches, [job, call.lineage, str(folder)], TritonOutcome, _LIMIT_S,
        before=(load_problem, call.lineage), environment=_environment(),
    )  # fmt: skip
    if ended.timed_out:
        return TritonOutcome("fault", reason=f"its call took over {_LIMIT_S:.0f} s")
    if ended.value is not None:
        return ended.value
    said = f": {ended.last_line}" if ended.last_line else ""
    return TritonOutcome("fault", reason=f"its process ended with code {ended.code}{said}")


def _build(kernels: Sequence[TritonKernel], folder: Path, arch: str, *, with_ptx: bool) -> Build:
    codes: list[Code] = []
    warnings: list[str] = []
    for i, kernel in enumerate(kernels):
        read = cubin.read_cubin(folder / f"{i}.cubin", (folder / f"{i}.log").read_text())
        warnings += read.warnings
        for function in read.kernels:
            code = resources.code_of(
                function, arch, 32 * kernel.warps, kernel.shared_bytes, stages=kernel.stages
            )
            codes.append(replace(code, kernel=_name(kernel, kernels)))
    texts = [(folder / f"{i}.ptx").read_text() for i in range(len(kernels))] if with_ptx else []
    return Build(
        arch=arch,
        soft=False,
        code=tuple(codes),
        spilling=(),
        warnings=tuple(dict.fromkeys(warnings)),
        ptx="\n".join(texts) if with_ptx else None,
    )


def _name(kernel: TritonKernel, kernels: Sequence[TritonKernel]) -> str:
    """Its name, with the constants that tell it from others of that name."""
    alike = [each.constants for each in kernels if each.name == kernel.name]
    telling = {
        key: value
        for key, value in kernel.constants.items()
        if any(other.get(key) != value for other in alike)
    }
    shown = ", ".join(f"{key}={value}" for key, value in telling.items())
    return f"{kernel.name}[{shown}]" if shown else kernel.name


def _sass(folder: Path, i: int, kernel: TritonKernel) -> str:
    return f"// {kernel.name}\n" + disassemble(folder / f"{i}.cubin")


def _environment() -> Mapping[str, str]:
    # An interpreter of Triton's own would compile nothing.
    return {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
