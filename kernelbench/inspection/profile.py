"""``kernelbench profile`` without its rendering: what each kernel of a call does with the GPU.

With hardware counters, by Nsight Compute. Where those cannot be had, by torch's profiler
(durations) and the compilers (registers, shared memory, theoretical occupancy), and labelled so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kernelbench.base.child_process import Outcome
from kernelbench.base.errors import EnvironmentProblem, IncorrectError, UsageError
from kernelbench.inspection import by_kind, gpu_tool, resources
from kernelbench.inspection.nsight_counters import (
    SECTIONS,
    CountersError,
    Launch,
    metrics,
    missing,
    read_raw_page,
)
from kernelbench.inspection.tool_child import CallsMade
from kernelbench.kinds import cuda_build
from kernelbench.machine.arch import arch_named
from kernelbench.project.building_blocks import source_sha
from kernelbench.runs.runner import StepRun

SCHEMA: Literal["kernelbench.profile/1"] = "kernelbench.profile/1"

#: One to load the code and allocate, one to look at.
_CALLS = 2
_WARP = 32
_PERMISSION = "ERR_NVGPUCTRPERM"
_HINT = "--no-counters asks for no more than this"
_PERMISSION_HINT = (
    "an administrator can allow it: https://developer.nvidia.com/ERR_NVGPUCTRPERM; " + _HINT
)
_NCU_ERROR = re.compile(r"^==ERROR== (?P<text>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class CallTotal:
    """All kernels, copies and fills of one call."""

    busy_us: float  #: Sum of their durations.
    problem_bytes: float  #: What the problem must read and write at least, each byte once.

    @property
    def bytes_per_second(self) -> float:
        """Bytes of the problem by time: no counter saw them pass."""
        return self.problem_bytes / self.busy_us * 1e6


@dataclass(frozen=True)
class ProfileRecord:
    """The JSON contract of ``kernelbench profile --json``."""

    schema: Literal["kernelbench.profile/1"]
    created: str
    command: str
    step: str
    source_sha: str
    shape: str
    dims: str
    inputs: str
    device: str
    seed: int
    counters: bool  #: Whether ``launches`` come from hardware counters.
    why_not: str  #: If not, why.
    tool: str  #: What measured: ``ncu 2025.3.1.0``, say, or torch's profiler.
    launches: tuple[Launch, ...]
    #: Of the whole call; with counters None, because ncu runs each kernel alone.
    total: CallTotal | None
    missing: tuple[str, ...]  #: Columns without any value.
    log: str  #: ncu's output; empty without it.


@dataclass(frozen=True)
class ProfileRequest:
    """What to look at."""

    run: StepRun
    seed: int
    kernel: str | None  #: Pattern of the kernels' names; None for all.
    counters: bool  #: Whether to ask for counters at all.
    limit_s: float  #: Seconds for a run of the step's process.

    @property
    def shape(self) -> Any:
        """The shape that is profiled."""
        return self.run.shapes[0]


class _NoCounters(Exception):
    """Why there are none, in one line."""


def check_request(request: ProfileRequest) -> None:
    """Refuse what cannot be profiled before anything is built: a bad pattern, the soft executor."""
    try:
        re.compile(request.kernel or "")
    except re.error as error:
        raise UsageError(f"--kernel {request.kernel}: not a regular expression: {error}") from error
    run = request.run
    if not run.target.timed:
        raise EnvironmentProblem(
            f"{run.step.name} runs on {run.target.executor.name} here, its tensor cores in "
            "software: "
            f"what the GPU does says nothing of {run.step.arch}",
            f"`kernelbench inspect {run.step.name}` needs no GPU",
        )


def profile(
    request: ProfileRequest, on_progress: Callable[[str], None], *, created: str, command: str
) -> ProfileRecord:
    """Profile one call.

    Raises:
        UsageError: If no kernel matches, or the step does not take the shape.
        IncorrectError: If the step fails.
        EnvironmentProblem: If the step does not compile, or its process cannot be run.
    """
    run = request.run
    name = f"{run.step.name} {request.shape.name}"
    on_progress(f"{run.step.name}: building")
    run.target.executor.prepare(run.step, run.problem, run.target)
    tool, log, why_not, total = "torch's profiler", "", "", None
    try:
        if not request.counters:
            raise _NoCounters("--no-counters")
        on_progress(f"{name}: under ncu")
        launches, tool, log = _with_counters(request)
    except _NoCounters as why:
        on_progress(f"{name}: without counters")
        why_not = str(why)
        launches, total = _without_counters(request)
    return ProfileRecord(
        schema=SCHEMA,
        created=created,
        command=command,
        step=run.step.name,
        source_sha=source_sha(run.step),
        shape=request.shape.name,
        dims=request.shape.describe(),
        inputs=run.classes[0],
        device=run.target.gpu.name if run.target.gpu else run.target.device,
        seed=request.seed,
        counters=not why_not,
        why_not=why_not,
        tool=tool,
        launches=launches,
        total=total,
        missing=missing(launches),
        log=log,
    )


def hint(record: ProfileRecord) -> str:
    """What to do about counters that cannot be had."""
    return _PERMISSION_HINT if _PERMISSION in record.why_not else _HINT


def _with_counters(request: ProfileRequest) -> tuple[tuple[Launch, ...], str, str]:
    """The launches, what measured them, and its log."""
    try:
        tool = gpu_tool.require("ncu", "Nsight Compute (part of the CUDA toolkit)")
    except EnvironmentProblem as error:
        raise _NoCounters(str(error)) from error
    kept = gpu_tool.log_folder("profile", request.run) / "ncu.csv"
    job = gpu_tool.tool_job(request.run, request.seed, _CALLS, "cuda-profiler")
    with gpu_tool.own_log(kept) as log:
        end = gpu_tool.run_tool(_command(tool.path, log, request), job, request.limit_s)
        text = log.read_text(encoding="utf-8", errors="replace")
    try:
        launches = read_raw_page(text)
    except CountersError as error:
        raise _NoCounters(_why(text, end, request.limit_s, f"ncu printed {error}")) from error
    if not launches or end.timed_out:
        raise _NoCounters(_why(text, end, request.limit_s, "ncu profiled no kernel"))
    _require_done(request, end)
    return launches, str(tool), str(kept)


def _command(ncu: Path, log: Path, request: ProfileRequest) -> list[str]:
    gpu = request.run.target.gpu
    asked = metrics(gpu.capability if gpu else (0, 0))
    return [
        str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log),
        # The clocks are left alone; caches are emptied before each pass, as for cold times.
        "--clock-control", "none", "--cache-control", "all",
        "--target-processes", "application-only", "--profile-from-start", "off",
        "--kernel-name-base", "function", "--print-kernel-base", "function",
        "--metrics", ",".join(asked),
        *(word for section in SECTIONS for word in ("--section", section)),
        *(("--kernel-name", f"regex:{request.kernel}") if request.kernel else ()),
    ]  # fmt: skip


def _why(text: str, end: Outcome[CallsMade], limit_s: float, otherwise: str) -> str:
    """Why ncu gave nothing, in one line."""
    said = f"{text}\n{end.output}"
    if _PERMISSION in said:
        return f"this user may not read the GPU's performance counters ({_PERMISSION})"
    if end.timed_out:
        return f"no end within {limit_s:g} s under ncu"
    error = _NCU_ERROR.search(said)
    return f"ncu: {' '.join(error['text'].split())}" if error else otherwise


def _without_counters(request: ProfileRequest) -> tuple[tuple[Launch, ...], CallTotal | None]:
    job = gpu_tool.tool_job(request.run, request.seed, _CALLS, "torch-profiler")
    end = gpu_tool.run_tool([], job, request.limit_s)
    outcome = _require_done(request, end)
    facts = _static_facts(request.run)
    activities = [
        (gpu_tool.plain_kernel_name(name), stop - start) for name, start, stop in outcome.launches
    ]
    pattern = re.compile(request.kernel or "")
    launches = [
        # Named and matched without namespace, as by ncu.
        replace(facts.get(name, Launch("", None)), kernel=_base(name), duration_us=duration)
        for name, duration in activities
        if pattern.search(_base(name))
    ]
    if not activities:
        raise UsageError(f"{request.run.step.name} runs nothing on the GPU")
    if not launches:
        names = ", ".join(dict.fromkeys(_base(name) for name, _ in activities))
        raise UsageError(
            f"no kernel of {request.run.step.name} matches --kernel {request.kernel}",
            f"a call runs {names}",
        )
    busy = sum(duration for _, duration in activities)
    if outcome.work_bytes is None or busy <= 0:
        return tuple(launches), None
    return tuple(launches), CallTotal(busy, outcome.work_bytes)


def _base(name: str) -> str:
    return name.rpartition("::")[2]


def _require_done(request: ProfileRequest, end: Outcome[CallsMade]) -> CallsMade:
    """The outcome of calls that went well."""
    step, outcome = request.run.step.name, end.value
    if end.timed_out:
        raise IncorrectError(f"{step} hangs: no end within {request.limit_s:g} s", "see --timeout")
    if outcome is None:
        said = f": {end.last_line}" if end.last_line else ""
        raise IncorrectError(f"{step}: its process ended with code {end.code}{said}")
    if outcome.status == "limit":
        raise UsageError(f"{step} does not take {request.shape.name}: {outcome.reason}")
    if outcome.status == "fault":
        raise IncorrectError(f"{step}: {outcome.reason}")
    return outcome


def _static_facts(run: StepRun) -> dict[str, Launch]:
    """What the compilers know of a compiled step's kernels, by name."""
    if not run.step.built:
        return {}
    if run.step.kind == "cuda":
        found = by_kind.inspect_cuda(run.step, cuda_build.arch_for(run.step, run.target.gpu))
    else:
        found = resources.inspect(run.step, run.step.arch)
    return {
        gpu_tool.plain_kernel_name(code.kernel): Launch(
            "",
            None,
            registers=code.registers,
            shared_bytes=None
            if code.dynamic_shared_bytes is None
            else code.static_shared_bytes + code.dynamic_shared_bytes,
            occupancy_limit_pct=_occupancy_limit(build.arch, code),
        )
        for build in found.builds
        for code in build.code
    }


def _occupancy_limit(arch: str, code: resources.Code) -> float | None:
    known = arch_named(arch)
    if code.ctas_per_sm is None or not code.threads or known is None:
        return None
    warps = code.ctas_per_sm * -(-code.threads // _WARP)
    return 100.0 * warps / (known.sm.threads // _WARP)
