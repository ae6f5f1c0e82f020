"""A process that calls one step, to see which kernels Triton compiles for it.

Run as ``python -m kernelbench.inspection.triton_child JOB FOLDER``; what it finds is written to
FOLDER: ``outcome.json``, and PTX, cubin and ptxas's log of each kernel. On a GPU it runs the step.
Without one, the step gets CPU tensors and Triton a driver that only names the GPU to compile for:
kernels are compiled for the arguments that they are launched with, and none is launched.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from kernelbench.executors.callables import LoadError, describe_exception
from kernelbench.executors.python_step import load_python_step
from kernelbench.project.model import Lineage, Step
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem

OUTCOME = "outcome.json"
#: SMs of a GPU by the major number of its compute capability: A100, H100, B200.
_SMS = {8: 108, 9: 132, 10: 148}
_PTXAS_LIMIT_S = 120


@dataclass(frozen=True)
class TritonJob:
    """What to call.

    Attributes:
        capability: Of the GPU to compile for.
        device: ``cuda:N`` to run there, ``cpu`` to compile only.
    """

    step: Step
    shape: Any
    input_class: str
    seed: int
    capability: tuple[int, int]
    device: str


@dataclass(frozen=True)
class TritonKernel:
    """What Triton says of a kernel; its files are named ``{number}.ptx``, ``.cubin``, ``.log``.

    Attributes:
        name: Of the function, in PTX too.
        shared_bytes: What it is launched with; ptxas knows nothing of that.
        constants: Its ``tl.constexpr`` parameters.
        tuned: Whether it is one of several that an autotuner chooses from.
    """

    name: str
    warps: int
    stages: int
    ctas: int
    shared_bytes: int
    constants: dict[str, str]
    tuned: bool


@dataclass(frozen=True)
class TritonOutcome:
    """How the call went; ``reason`` is why it failed, in one line."""

    status: Literal["done", "fault"]
    kernels: tuple[TritonKernel, ...] = ()
    reason: str = ""
    triton: str = ""


class _Compiling:
    """Stands for Triton's driver where there is no GPU: it names one, and launches nothing."""

    def __init__(self, capability: tuple[int, int]) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")


def _on_the_cpu() -> AbstractContextManager[Any]:
    """Puts on the CPU what a step asks for on a GPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnTheCpu(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function is torch.Tensor.cuda:
                return args[0]
            given = {key: _cpu_for(key, value) for key, value in (kwargs or {}).items()}
            return function(*(_cpu_for("", value) for value in args), **given)

    return OnTheCpu()


def _cpu_for(key: str, value: Any) -> Any:
    import torch

    on_gpu = isinstance(value, torch.device) and value.type == "cuda"
    named = isinstance(value, str) and value.partition(":")[0] == "cuda"
    return torch.device("cpu") if on_gpu or named or (key == "device" and value == 0) else value


def _pretend_gpu(capability: tuple[int, int]) -> None:
    """Answer what steps ask torch about the GPU; its number of SMs decides grids only."""
    import torch

    major, minor = capability
    properties = SimpleNamespace(
        major=major, minor=minor, name=f"sm_{major}{minor}", warp_size=32,
        multi_processor_count=_SMS.get(major, 100),
    )  # fmt: skip
    answers = {
        "current_device": 0,
        "get_device_capability": capability,
        "get_device_properties": properties,
        "is_available": True,
        # As in a capture, nothing can be waited for or timed: who tunes then takes a default.
        "is_current_stream_capturing": True,
        "synchronize": None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, answer=answer, **kwargs: answer)
    torch.cuda.device = lambda *args: contextlib.nullcontext()  # type: ignore[misc, assignment]


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


def compile_launches(job: TritonJob, problem: Problem, folder: Path) -> TritonOutcome:
    """Call the step and keep what was compiled."""
    import torch

    try:
        import triton
        from triton.runtime.driver import driver
    except ImportError as error:
        return TritonOutcome("fault", reason=describe_exception(error))
    compiling = job.device == "cpu"
    if compiling:
        driver.set_active(_Compiling(job.capability))
        _pretend_gpu(job.capability)
    found = _launches(compiling)
    try:
        kernel = load_python_step(job.step, problem, job.device)
        inputs = problem.make_inputs(job.shape, job.input_class, job.seed, job.device)
        if compiling:
            with _on_the_cpu():
                kernel(inputs.data)
        else:
            kernel(inputs.data)
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
            kernels[id(compiled)] = _kept(function, compiled, tuned, folder / str(len(kernels)))
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


def write_triton_job(file: Path, lineage: Lineage, job: TritonJob) -> None:
    """Write what :func:`main` reads."""
    with file.open("wb") as stream:
        for value in (lineage, job):
            pickle.dump(value, stream)


def main() -> None:
    """Do the job of the first argument's file, write what was found to the second's folder."""
    job_file, folder = map(Path, sys.argv[1:])
    with job_file.open("rb") as stream:
        # The shape's class is in the problem's module, which has to be there before.
        problem = load_problem(pickle.load(stream))
        job: TritonJob = pickle.load(stream)
    outcome = compile_launches(job, problem, folder)
    (folder / OUTCOME).write_text(json.dumps(asdict(outcome)), encoding="utf-8")


if __name__ == "__main__":
    main()
