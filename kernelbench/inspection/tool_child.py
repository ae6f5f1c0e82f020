"""What a process does that tools look at: draw the inputs and call one step, nothing else on a GPU.

No reference is computed here: a tool would report the kernels of the reference, too, and whether
results are right is ``kernelbench run``'s to say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from kernelbench.executors.targets import Target
from kernelbench.kinds.callables import describe_exception
from kernelbench.project.model import Lineage, Step
from kernelbench.project.problem_loading import load_problem

#: ``every``: tools see all calls; ``cuda-profiler``: the last one is between cudaProfilerStart and
#: Stop; ``torch-profiler``: no tool is there, torch's profiler records the last one.
Marking = Literal["every", "cuda-profiler", "torch-profiler"]


@dataclass(frozen=True)
class ToolJob:
    """The calls to make."""

    step: Step
    lineage: Lineage
    shape: Any
    input_class: str
    target: Target
    seed: int
    calls: int = 2  #: How many, on the same inputs.
    marking: Marking = "every"


@dataclass(frozen=True)
class CallsMade:
    """How the calls went."""

    #: ``done``; ``limit`` if the step does not take the shape; ``fault`` if it raised.
    status: Literal["done", "limit", "fault"]
    reason: str = ""  #: One line; empty for ``done``.
    #: Of the last call, with ``torch-profiler``: name, start and end in µs.
    launches: tuple[tuple[str, float, float], ...] = ()
    #: What the call must read and write at least, with ``torch-profiler``.
    work_bytes: float | None = None


def perform(job: ToolJob) -> CallsMade:
    """Load the step and make the calls that the job asks for."""
    import torch

    problem = load_problem(job.lineage)
    try:
        torch.set_grad_enabled(False)
        torch.cuda.set_device(job.target.device)
        kernel = job.target.executor.load(job.step, problem, job.target, 0.0)
        inputs = problem.make_inputs(job.shape, job.input_class, job.seed, job.target.device)
        torch.cuda.synchronize()

        def call() -> None:
            problem.outputs_of(kernel(inputs.data), inputs)
            torch.cuda.synchronize()

        for _ in range(job.calls - 1):
            call()
        outcome = _last(job, call)
        if job.marking != "torch-profiler":
            return outcome
        return replace(outcome, work_bytes=problem.work(job.shape, inputs).bytes_total)
    except NotImplementedError as error:
        return CallsMade("limit", " ".join(str(error).split()))
    except Exception as error:
        return CallsMade("fault", describe_exception(error, job.step.entry))


def _last(job: ToolJob, call: Callable[[], None]) -> CallsMade:
    import torch

    if job.marking == "torch-profiler":
        from kernelbench.measure.kernel_activity import device_activities

        found = device_activities(call, torch.device(job.target.device))
        return CallsMade("done", launches=tuple((a.name, a.start_us, a.end_us) for a in found))
    marked = job.marking == "cuda-profiler"
    with torch.cuda.profiler.profile() if marked else contextlib.nullcontext():
        call()
    return CallsMade("done")
