"""``kernelbench sanitize`` without its rendering: compute-sanitizer's tools around a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from kernelbench.base.cache_folder import cache_dir, writing
from kernelbench.base.child_process import Outcome
from kernelbench.base.errors import ExitCode
from kernelbench.executors.gpu import SoftGpuExecutor
from kernelbench.inspection import cubin, gpu_tool
from kernelbench.inspection.gpu_tool import Tool
from kernelbench.inspection.sanitizer_log import (
    Log,
    SanitizerFinding,
    explained,
    read_sanitizer_log,
)
from kernelbench.inspection.tool_child import CallsMade
from kernelbench.kinds import cuda_build
from kernelbench.kinds.compiled import LibraryExecutor
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.model import KIND_WORDS, Step
from kernelbench.runs.runner import StepRun

SCHEMA: Literal["kernelbench.sanitize/1"] = "kernelbench.sanitize/1"

Check = Literal["memcheck", "racecheck", "synccheck", "initcheck"]
CHECKS: tuple[Check, ...] = get_args(Check)
#: initcheck is left out: what it takes for initialized depends much on its release.
DEFAULT_CHECKS: tuple[Check, ...] = ("memcheck", "racecheck", "synccheck")

ToolStatus = Literal["clean", "explained", "findings", "fault", "failed"]

_BROUGHT_BY = "the CUDA toolkit, or `pip install nvidia-cuda-sanitizer-api`"
_OPTIONS = (
    # What the step's process starts, a compiler perhaps, runs no kernel of it.
    "--target-processes", "application-only",
    "--show-backtrace", "device",
    "--demangle", "simple",
    "--print-limit", "1000",
)  # fmt: skip
#: Every tensor is an allocation of its own: within torch's pools nothing is out of bounds.
_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
#: Before it, initcheck did not see what kernels outside its filter write (release notes).
_INITCHECK_FILTERS = (2026, 4)
_INITCHECK_BLIND = (
    "initcheck does not see all that tensormap and tcgen05 instructions write (release notes, "
    "known limitations): memory that they wrote can be reported"
)


@dataclass(frozen=True)
class ToolResult:
    """What one of the tools found."""

    tool: Check
    #: ``clean``; ``explained``: only findings with a known cause of false positives; ``findings``;
    #: ``fault``: the step raised without the tool finding anything; ``failed``: the tool did not
    #: come to its end, so nothing is known.
    status: ToolStatus
    count: int  #: Findings in the step's kernels as the tool counts them.
    findings: tuple[SanitizerFinding, ...]  #: Those that it printed.
    elsewhere: int  #: Printed ones in kernels that are not the step's.
    reason: str  #: Why ``fault`` or ``failed``, in one line.
    notes: tuple[str, ...]  #: What restricts the result, a line each.
    log: str  #: The full log.


@dataclass(frozen=True)
class SanitizeRecord:
    """The JSON contract of ``kernelbench sanitize --json``."""

    schema: Literal["kernelbench.sanitize/1"]
    created: str
    command: str
    step: str
    source_sha: str
    shape: str
    dims: str
    inputs: str
    executor: str
    device: str
    sanitizer: str
    seed: int
    calls: int
    #: The step's kernels, which alone are looked at; empty where every kernel of the process is,
    #: and ``notes`` says why.
    kernels: tuple[str, ...]
    notes: tuple[str, ...]
    results: tuple[ToolResult, ...]


@dataclass(frozen=True)
class Session:
    """A step built for sanitizing, and what it is run with."""

    run: StepRun
    tool: Tool
    seed: int
    calls: int
    limit_s: float
    symbols: tuple[str, ...]  #: Its kernels, mangled; empty where they cannot be told from others.
    own_files: frozenset[str]  #: Names of its source files.
    notes: tuple[str, ...]  #: What holds for every tool.

    @property
    def shape(self) -> Any:
        """The shape that the tools run."""
        return self.run.shapes[0]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Its kernels, as logs name them."""
        return tuple(cubin.demangled(symbol) for symbol in self.symbols)


def prepare_session(run: StepRun, *, seed: int, calls: int, limit_s: float) -> Session:
    """Look for compute-sanitizer and build the step.

    Args:
        run: One step, one shape, on a GPU (:func:`gpu_tool.plan_one`).
        limit_s: Seconds for each tool.

    Raises:
        EnvironmentProblem: If there is no compute-sanitizer, or the step does not compile.
    """
    tool = gpu_tool.require("compute-sanitizer", _BROUGHT_BY)
    if run.step.built:
        run.target.executor.prepare(run.step, run.problem, run.target)
    symbols, notes = _symbols(run)
    return Session(run, tool, seed, calls, limit_s, symbols, _own_files(run.step), notes)


def _own_files(step: Step) -> frozenset[str]:
    """Names of the step's sources; a submission is one file in a folder of anything."""
    if step.submission:
        return frozenset([step.entry.name] if step.entry else ())
    return frozenset(path.name for path in step.path.rglob("*") if path.is_file())


def _symbols(run: StepRun) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The step's kernels, if its library has them under these names, else none and a note."""
    executor = run.target.executor
    if not run.step.built:
        words = KIND_WORDS[run.step.kind]
        return (), (f"{words}'s kernels cannot be told from others: all of its process count",)
    if run.step.kind == "cuda":
        arch = cuda_build.arch_for(run.step, run.target.gpu)
        code = cubin.compile_cubin(run.step, arch=arch)
        file = cuda_build.cuda_library(run.step, arch)
    elif isinstance(executor, LibraryExecutor):
        code = cubin.compile_cubin(run.step, soft=isinstance(executor, SoftGpuExecutor))
        file = executor.library(run.step)
    else:
        return (), ("the step has no library of its own: all of its process count",)
    symbols = tuple(kernel.symbol for kernel in code.kernels)
    # Host code registers kernels by name: a filter with a name that is not there checks nothing.
    library = file.read_bytes()
    unknown = [symbol for symbol in symbols if symbol.encode() + b"\0" not in library]
    if symbols and not unknown:
        return symbols, ()
    return (), ("the step's kernels are not known by name: all of its process count",)


def run_checks(
    session: Session, checks: Sequence[Check], on_progress: Callable[[str], None]
) -> Iterator[ToolResult]:
    """Run each tool on the step, one after another, each in a process of its own."""
    root = cache_dir()
    folder = gpu_tool.log_folder("sanitize", session.run)
    job = gpu_tool.tool_job(session.run, session.seed, session.calls)
    for check in checks:
        on_progress(f"{session.run.step.name} {session.shape.name}: {check}")
        kept = folder / f"{check}.log"
        with gpu_tool.own_log(kept) as log:
            command = _command(session, check, log)
            end = gpu_tool.run_tool(command, job, session.limit_s, _ENVIRONMENT)
            text = log.read_text(encoding="utf-8", errors="replace")
            if end.output.strip():
                with writing(root):
                    log.write_text(f"{text}\n--- printed by the process ---\n{end.output}")
        yield judge_log(session, check, read_sanitizer_log(text), end, kept)


def _command(session: Session, check: Check, log: Path) -> list[str]:
    version = session.tool.version
    filters = []
    if check != "initcheck" or version[:2] >= _INITCHECK_FILTERS:
        filters = [word for s in session.symbols for word in ("--kernel-name", f"kne={s}")]
    options = {
        # The child reports errors of the CUDA API; torch probes with calls that may fail.
        "memcheck": ("--report-api-errors", "no"),
        "racecheck": ("--racecheck-report", "analysis"),
    }
    return [
        str(session.tool.path), "--tool", check, "--log-file", str(log), *_OPTIONS,
        "--launch-timeout", str(int(session.limit_s) + 1), *options.get(check, ()), *filters,
    ]  # fmt: skip


def judge_log(
    session: Session, check: Check, log: Log, end: Outcome[CallsMade], path: Path
) -> ToolResult:
    """What a log and the way the process ended mean."""
    own = [finding for finding in log.findings if not _foreign(session, finding)]
    elsewhere = len(log.findings) - len(own)
    found = tuple(explained(check, session.tool.version, finding) for finding in own)
    count = max(len(found), (log.count or 0) - elsewhere)
    status, reason = _verdict(session, log, end, found, count)
    blind = [_INITCHECK_BLIND] if check == "initcheck" and found else []
    notes = (*log.notes, *blind)
    return ToolResult(check, status, count, found, elsewhere, reason, notes, str(path))


def _foreign(session: Session, finding: SanitizerFinding) -> bool:
    """Whether a finding is in a kernel that is certainly not the step's.

    Steps are built with line tables, torch and cuBLAS are not.
    """
    return (
        bool(session.symbols and finding.frames)
        and not any(frame.file for frame in finding.frames)
        and not any(frame.function in session.kernels for frame in finding.frames)
    )


def _verdict(
    session: Session,
    log: Log,
    end: Outcome[CallsMade],
    found: Sequence[SanitizerFinding],
    count: int,
) -> tuple[ToolStatus, str]:
    outcome = end.value
    if outcome is not None and outcome.status == "limit":
        return "failed", f"the step does not take the call: {outcome.reason}"
    if any(not finding.explanation for finding in found) or count > len(found):
        return "findings", "" if found else f"{count} findings, none of them printed"
    if end.timed_out:
        return "failed", (
            f"no end within {session.limit_s:g} s: a hang, or slow under the tool; choose a "
            "smaller --shape or a longer --timeout"
        )
    if log.failures:
        why = f"; the step's process: {outcome.reason}" if outcome and outcome.reason else ""
        return "failed", "; ".join(log.failures) + why + _printed(end)
    if log.count is None:
        return "failed", f"it ended with code {end.code} and no summary{_printed(end)}"
    if outcome is None:
        return "failed", f"the step's process ended before its calls were done{_printed(end)}"
    if outcome.status == "fault":
        return "fault", outcome.reason
    return ("explained" if found else "clean"), ""


def _printed(end: Outcome[CallsMade]) -> str:
    return f"; last printed: {end.last_line}" if end.last_line else ""


def sanitize_exit_code(results: Sequence[ToolResult], *, strict: bool) -> ExitCode:
    """3 for findings (explained ones if ``strict``) or a fault; else 5 if a tool failed; else 0."""
    bad = {"findings", "fault"} | ({"explained"} if strict else set())
    if any(result.status in bad for result in results):
        return ExitCode.INCORRECT
    if any(result.status == "failed" for result in results):
        return ExitCode.ENVIRONMENT
    return ExitCode.PASS


def sanitize_record(
    session: Session, results: Sequence[ToolResult], *, created: str, command: str
) -> SanitizeRecord:
    """What is written as JSON."""
    run = session.run
    return SanitizeRecord(
        schema=SCHEMA,
        created=created,
        command=command,
        step=run.step.name,
        source_sha=source_sha(run.step),
        shape=session.shape.name,
        dims=session.shape.describe(),
        inputs=run.classes[0],
        executor=run.target.executor.name,
        device=run.target.gpu.name if run.target.gpu else run.target.device,
        sanitizer=str(session.tool),
        seed=session.seed,
        calls=session.calls,
        kernels=session.kernels,
        notes=session.notes,
        results=tuple(results),
    )
