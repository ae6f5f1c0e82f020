"""NVIDIA's command-line tools around one step: finding them, and running a step under one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelbench.base.cache_folder import cache_dir, writing
from kernelbench.base.child_process import Outcome, run_in_child
from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.gpu import GPU
from kernelbench.inspection.tool_child import CallsMade, Marking, ToolJob, perform
from kernelbench.machine.toolchain import cuda_tools
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import StepRun

_VERSION = re.compile(r"Version (\d+(?:\.\d+)+)")
_VERSION_LIMIT_S = 60


@dataclass(frozen=True)
class Tool:
    """A tool that answers."""

    name: str
    path: Path
    version: tuple[int, ...]  #: As it says itself, (2025, 3, 1, 0), say.

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"


def find(name: str) -> Path | None:
    """A tool of the CUDA toolkit: on ``PATH``, in ``CUDA_HOME``, in the usual place, from PyPI."""
    # Nsight Compute also installs apart from the toolkit, the newest last by name.
    apart = sorted(Path("/opt/nvidia/nsight-compute").glob(f"*/{name}"), reverse=True)
    found = (path for path in (*cuda_tools(name), *apart) if os.access(path, os.X_OK))
    return next(found, None)


def require(name: str, what: str) -> Tool:
    """The tool ``name``; EnvironmentProblem, with ``what`` brings it, if it does not run."""
    path = find(name)
    if path is None:
        raise EnvironmentProblem(
            f"no {name} on PATH, in CUDA_HOME/bin, in /usr/local/cuda/bin or in the Python "
            "environment",
            f"install {what}",
        )
    try:
        run = subprocess.run(
            [str(path), "--version"],
            capture_output=True, text=True, errors="replace", timeout=_VERSION_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{path} does not run: {error}", f"install {what}") from error
    match = _VERSION.search(run.stdout)
    if run.returncode or match is None:
        said = " ".join((run.stderr or run.stdout).split())[:200]
        raise EnvironmentProblem(
            f"{path} --version fails: {said or f'status {run.returncode}'}", f"install {what}"
        )
    return Tool(name, path, tuple(map(int, match[1].split("."))))


def plan_one(
    context: Context,
    step: str,
    shape: str | None,
    device: int,
    *,
    small: bool,
    warn: Callable[[str], None],
) -> StepRun:
    """One step with one shape that it takes, on a GPU.

    Args:
        small: Without ``shape``, whether to take a small one (the problem's first for checking)
            or the first benchmark shape.

    Raises:
        UsageError: If ``step`` or ``shape`` means several, or the step does not take the shape.
        EnvironmentProblem: If the step runs on no GPU here.
    """
    runs = plan(context, [step], [shape] if shape else [], "auto", [], device, warn=warn)
    if len(runs) != 1:
        raise UsageError(f"{step} means {len(runs)} steps", "name one")
    [run] = runs
    chosen = run.shapes
    if shape is not None and len(chosen) != 1:
        raise UsageError(f"--shape {shape} means {len(chosen)} shapes", "name one")
    if shape is None and small:
        names = context.check_shapes(run.problem)
        chosen = context.shapes_for(run.problem, names) if names else chosen
    broken = {one.name: run.problem.broken_limit(one, run.step.limits) for one in chosen}
    fitting = tuple(one for one in chosen if not broken[one.name])
    if not fitting:
        name, limit = next(iter(broken.items()))
        raise UsageError(f"{run.step.name} does not take {name}: {limit}", "choose with --shape")
    _require_gpu(run)
    return replace(run, shapes=fitting[:1], skip={})


def _require_gpu(run: StepRun) -> None:
    """Refuse what has no GPU under it: these tools look at nothing else."""
    where = run.target
    if where.gpu is not None:
        return
    _, reason = GPU.availability(run.step, 0)
    hint = "`kernelbench doctor` shows what is missing"
    if where.executor == EMULATOR:
        hint = f"without it, `kernelbench check {run.step.name}` and `kernelbench inspect` work"
    raise EnvironmentProblem(
        f"this needs {run.step.name} on a GPU, not on {where.executor.name}: {reason}", hint
    )


def log_folder(command: str, run: StepRun) -> Path:
    """Where a command keeps what tools last printed of a step and shape; or EnvironmentProblem."""
    root = cache_dir()
    # Steps of several projects may have one name.
    project = hashlib.sha256(str(run.step.path).encode()).hexdigest()[:8]
    names = (f"{run.step.name}-{project}", run.shapes[0].name)
    folder = root.joinpath(command, *(re.sub(r"[^\w.=,-]+", "_", name) for name in names))
    with writing(root):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def own_log(path: Path) -> Iterator[Path]:
    """An empty file for a tool to write in place of ``path``, which it becomes at the end.

    Another process may have the same step under the same tool: what is read is this one's.

    Raises:
        EnvironmentProblem: If the cache folder cannot be written.
    """
    root = cache_dir()
    with writing(root):
        descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        os.close(descriptor)
    try:
        yield Path(name)
    finally:
        with writing(root):
            Path(name).replace(path)


def plain_kernel_name(function: str) -> str:
    """``kb::step::gemm`` for ``void kb::step::gemm<128>(int *)``, as tools print it."""
    # "[clone f(int)] g()" is g as compiled for its caller f.
    name = re.sub(r"^\[clone [^\]]*\] ?", "", function.strip()).removeprefix("void ")
    name = name.replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", name, maxsplit=1)[0].strip() or function


def tool_job(run: StepRun, seed: int, calls: int, marking: Marking = "every") -> ToolJob:
    """The calls of a planned run of one shape."""
    return ToolJob(
        run.step, run.lineage, run.shapes[0], run.classes[0], run.target, seed, calls, marking
    )


def run_tool(
    prefix: Sequence[str],
    job: ToolJob,
    limit_s: float,
    environment: Mapping[str, str] | None = None,
) -> Outcome[CallsMade]:
    """Make the calls of :mod:`kernelbench.inspection.tool_child` under a tool.

    Args:
        prefix: The tool's command up to the program that it runs; empty for no tool.
        limit_s: Seconds after which it is killed.
        environment: Variables beside those of this process.

    Raises:
        EnvironmentProblem: If the tool cannot be started.
    """
    return run_in_child(
        perform, [job], CallsMade, limit_s, before=(load_problem, job.lineage), prefix=prefix,
        environment=os.environ | dict(environment or {}),
    )  # fmt: skip
