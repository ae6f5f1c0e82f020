"""A process that does nothing on the GPU but call one step, for tools to look at.

Run as ``python -m kernelbench.inspection.tool_child JOB OUTCOME``. It draws the inputs, calls the
step, and writes how that went to the file OUTCOME. No reference is computed here: a tool would
report the kernels of the reference, too, and whether results are right is ``kernelbench run``'s
to say.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kernelbench.executors.targets import Target
from kernelbench.project.model import Lineage, Step
from kernelbench.project.problem import Kernel, Problem
from kernelbench.project.problem_loading import load_problem

#: ``every``: tools see all calls; ``cuda-profiler``: the last one is between cudaProfilerStart and
#: Stop; ``torch-profiler``: no tool is there, torch's profiler records the last one.
Marking = Literal["every", "cuda-profiler", "torch-profiler"]


@dataclass(frozen=True)
class ToolJob:
    """The calls to make.

    Attributes:
        calls: How many, on the same inputs.
    """

    step: Step
    lineage: Lineage
    shape: Any
    input_class: str
    target: Target
    seed: int
    calls: int = 2
    marking: Marking = "every"


@dataclass(frozen=True)
class Outcome:
    """How the calls went.

    Attributes:
        status: ``done``; ``limit`` if the step does not take the shape; ``fault`` if it raised.
        reason: One line; empty for ``done``.
        launches: Of the last call, with ``torch-profiler``: name, start and end in µs.
        work_bytes: What the call must read and write at least, with ``torch-profiler``.
    """

    status: Literal["done", "limit", "fault"]
    reason: str = ""
    launches: tuple[tuple[str, float, float], ...] = ()
    work_bytes: float | None = None


def write_job(path: Path, job: ToolJob) -> None:
    """Write what :func:`main` reads."""
    with path.open("wb") as stream:
        # The lineage first: the shape may be of a class from its problem file.
        pickle.dump(job.lineage, stream)
        pickle.dump(job, stream)


def perform(job: ToolJob, problem: Problem) -> Outcome:
    """Make the calls."""
    import torch

    from kernelbench.executors.callables import describe_exception

    try:
        torch.set_grad_enabled(False)
        torch.cuda.set_device(job.target.device)
        kernel = _load(job, problem)
        inputs = problem.make_inputs(job.shape, job.input_class, job.seed, job.target.device)
        torch.cuda.synchronize()
        for _ in range(job.calls - 1):
            _call(kernel, problem, inputs)
        outcome = _last(job, lambda: _call(kernel, problem, inputs))
        if job.marking != "torch-profiler":
            return outcome
        return replace(outcome, work_bytes=problem.work(job.shape, inputs).bytes_total)
    except NotImplementedError as error:
        return Outcome("limit", " ".join(str(error).split()))
    except Exception as error:
        return Outcome("fault", describe_exception(error, job.step.entry))


def _load(job: ToolJob, problem: Problem) -> Kernel:
    return job.target.executor.load(job.step, problem, job.target, 0.0)


def _call(kernel: Kernel, problem: Problem, inputs: Any) -> None:
    import torch

    problem.outputs_of(kernel(inputs.data), inputs)
    torch.cuda.synchronize()


def _last(job: ToolJob, call: Callable[[], None]) -> Outcome:
    import torch

    if job.marking == "torch-profiler":
        from kernelbench.measure.kernel_activity import device_activities

        found = device_activities(call, torch.device(job.target.device))
        return Outcome("done", launches=tuple((a.name, a.start_us, a.end_us) for a in found))
    if job.marking == "cuda-profiler":
        torch.cuda.profiler.start()
    try:
        call()
    finally:
        if job.marking == "cuda-profiler":
            torch.cuda.profiler.stop()
    return Outcome("done")


def main() -> None:
    """Do the job of the first argument's file, write its outcome to the second."""
    job_file, outcome_file = map(Path, sys.argv[1:])
    with job_file.open("rb") as stream:
        problem = load_problem(pickle.load(stream))
        job: ToolJob = pickle.load(stream)
    outcome_file.write_text(json.dumps(asdict(perform(job, problem))), encoding="utf-8")


if __name__ == "__main__":
    main()
