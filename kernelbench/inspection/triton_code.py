"""What Triton compiles for a step: the step is called once, in a process of its own.

There PTX, cubin and ptxas's log of each kernel are written to a folder. On a GPU the step runs.
Without one, it gets CPU tensors and Triton a driver that only names the GPU to compile for: kernels
are compiled for the arguments that they are launched with, and none is launched.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

from kernelbench.base.child_process import run_in_child
from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.inspection import cubin, resources
from kernelbench.inspection.resources import Build, Code, Inspection, disassemble
from kernelbench.kinds.callables import LoadError, describe_exception
from kernelbench.kinds.python_step import load_python_step
from kernelbench.machine import devices
from kernelbench.machine.arch import ARCHES
from kernelbench.machine.toolchain import runs_on
from kernelbench.project.context import Context
from kernelbench.project.model import Lineage, Step
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem
from kernelbench.ptx.hosts.cuda_on_cpu import cuda_on_cpu
from kernelbench.ptx.hosts.triton_driver import EmulatedDriver, KernelRunner
from kernelbench.runs.plan import with_problem

#: For drawing the inputs and compiling, on a CPU too.
_LIMIT_S = 600.0
_SEED = 1
_PTXAS_LIMIT_S = 120


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
                code = [
                    f"// {kernel.name}\n" + disassemble(folder / f"{i}.cubin")
                    for i, kernel in enumerate(outcome.kernels)
                ]
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
        before=(load_problem, call.lineage),
        # An interpreter of Triton's own would compile nothing.
        environment={key: text for key, text in os.environ.items() if key != "TRITON_INTERPRET"},
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


# -- in the process that calls the step ----------------------------------------------------------


@dataclass(frozen=True)
class TritonJob:
    """What to call."""

    step: Step
    shape: Any
    input_class: str
    seed: int
    capability: tuple[int, int]  #: Of the GPU to compile for.
    device: str  #: ``cuda:N`` to run there, ``cpu`` to compile only.


@dataclass(frozen=True)
class TritonKernel:
    """What Triton says of a kernel; its files are named ``{number}.ptx``, ``.cubin``, ``.log``."""

    name: str  #: Of the function, in PTX too.
    warps: int
    stages: int
    ctas: int
    shared_bytes: int  #: What it is launched with; ptxas knows nothing of that.
    constants: dict[str, str]  #: Its ``tl.constexpr`` parameters.
    tuned: bool  #: Whether it is one of several that an autotuner chooses from.


@dataclass(frozen=True)
class TritonOutcome:
    """How the call went; ``reason`` is why it failed, in one line."""

    status: Literal["done", "fault"]
    kernels: tuple[TritonKernel, ...] = ()
    reason: str = ""
    triton: str = ""


@contextlib.contextmanager
def _gpu_at_hand(job: TritonJob) -> Iterator[None]:
    """On a GPU nothing; else what a step asks for on one is on the CPU, and torch has a GPU."""
    if job.device != "cpu":
        yield
        return
    import torch

    number = 10 * job.capability[0] + job.capability[1]
    known = ARCHES.get(number)
    with cuda_on_cpu(number, known.sms if known else 100):
        # As in a capture, nothing can be waited for or timed: who tunes then takes a default.
        torch.cuda.is_current_stream_capturing = lambda: True
        yield


def _launches(compiling: bool) -> list[tuple[Any, Any, bool]]:
    """Have every launch add its function, its compiled kernel and whether it is tuned."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    found: list[tuple[Any, Any, bool]] = []
    tuning: list[Any] = []
    run: Callable[..., Any] = JITFunction.run

    def recorded(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=warmup or compiling, **kwargs)
        found.append((self, kernel, bool(tuning)))
        return kernel

    def every_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("warmup", None)
        tuning.append(self)
        try:
            return self.warmup(*args, **kwargs)
        finally:
            tuning.pop()

    JITFunction.run = recorded
    if compiling:
        Autotuner.run = every_config
    return found


def compile_launches(job: TritonJob, lineage: Lineage, folder: str) -> TritonOutcome:
    """Call the step and keep what was compiled."""
    import torch

    try:
        import triton
        from triton.runtime.driver import driver
    except ImportError as error:
        return TritonOutcome("fault", reason=describe_exception(error))
    compiling = job.device == "cpu"
    problem = load_problem(lineage)
    if compiling:
        # It names the GPU to compile for. Nothing is launched, so that nothing runs its kernels.
        names_gpu = SimpleNamespace(arch=10 * job.capability[0] + job.capability[1])
        driver.set_active(EmulatedDriver(cast(KernelRunner, names_gpu)))
    found = _launches(compiling)
    try:
        inputs = problem.make_inputs(job.shape, job.input_class, job.seed, job.device)
        with _gpu_at_hand(job):
            kernel = load_python_step(job.step, problem, job.device)
            kernel(inputs.data)
        if not compiling:
            found.clear()  # the first call tunes
            kernel(inputs.data)
            torch.cuda.synchronize()
    except LoadError as error:
        return TritonOutcome("fault", reason=str(error))
    except Exception as error:
        return TritonOutcome("fault", reason=describe_exception(error, job.step.entry))
    kernels: dict[int, TritonKernel] = {}
    for function, compiled, tuned in found:
        if id(compiled) not in kernels:
            kernels[id(compiled)] = _kept(
                function, compiled, tuned, Path(folder, str(len(kernels)))
            )
    return TritonOutcome("done", tuple(kernels.values()), triton=triton.__version__)


def _kept(function: Any, compiled: Any, tuned: bool, stem: Path) -> TritonKernel:
    said = compiled.metadata
    ptx, cubin = stem.with_suffix(".ptx"), stem.with_suffix(".cubin")
    ptx.write_text(compiled.asm["ptx"], encoding="utf-8")
    cubin.write_bytes(compiled.asm["cubin"])
    stem.with_suffix(".log").write_text(_ptxas_log(said, ptx), encoding="utf-8")
    constants = getattr(compiled.src, "constants", {})
    names = function.arg_names
    return TritonKernel(
        name=said.name,
        warps=int(said.num_warps),
        stages=int(said.num_stages),
        ctas=int(getattr(said, "num_ctas", 1)),
        shared_bytes=int(said.shared),
        constants={names[path[0]]: str(value) for path, value in constants.items()},
        tuned=tuned,
    )


def _ptxas_log(said: Any, ptx: Path) -> str:
    """What Triton's ptxas says when it makes the same cubin again; Triton does not keep it."""
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    capability = int(said.target.arch)
    options = ["-lineinfo", "-v", "-warn-spills"]
    if not getattr(said, "enable_fp_fusion", True):
        options.append("--fmad=false")
    options += (getattr(said, "ptx_options", None) or "").split()
    run = subprocess.run(
        [
            str(get_ptxas(capability).path), *options,
            f"--gpu-name={sm_arch_from_capability(capability)}", str(ptx), "-o", "/dev/null",
        ],
        capture_output=True, text=True, errors="replace", timeout=_PTXAS_LIMIT_S, check=False,
    )  # fmt: skip
    return run.stdout + run.stderr
