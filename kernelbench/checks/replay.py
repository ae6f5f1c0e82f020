"""Schedules that show a finding: made shorter, saved, and run again."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelbench.base.callbacks import OnProgress
from kernelbench.base.defects import defect
from kernelbench.base.errors import UsageError
from kernelbench.checks.checker import other_shape
from kernelbench.checks.report import CheckReport
from kernelbench.checks.rows import CheckRow, Seen
from kernelbench.checks.schedule_file import (
    SCHEDULE_SCHEMA,
    ScheduleFile,
    read_schedule,
    write_schedule,
)
from kernelbench.emulator.settings import Emulation, Rounding
from kernelbench.executors.emulated import EMULATOR
from kernelbench.measure.outcomes import error_of
from kernelbench.project.context import Context
from kernelbench.project.registry import source_sha
from kernelbench.runs.plan import plan_check
from kernelbench.runs.runner import StepRun
from kernelbench.worker.jobs import CheckJob, ReplayJob
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import (
    JobFailed,
    Message,
    PhaseBegins,
    ScheduleRun,
    ScheduleShortened,
    StepNotLoaded,
)

#: Seconds to look for a shorter schedule of one finding.
FEWEST_S = 60.0


@dataclass(frozen=True)
class Shortened:
    """What came of making a schedule shorter.

    Attributes:
        path: The file; None if there is none, and then ``why`` says why.
    """

    step: str
    shape: str
    identity: str
    path: Path | None
    file: ScheduleFile | None
    trials: int
    why: str = ""


def shorten_findings(
    report: CheckReport, folder: Path, timeout_s: float, on_progress: OnProgress
) -> Iterator[Shortened]:
    """Write a file below ``folder`` for each identity that a step of the report has.

    Args:
        timeout_s: Seconds after which one schedule counts as hung.

    Raises:
        KernelbenchError: As of every check.
    """
    context = Context.find()
    for step in report.steps:
        known: set[str] = set()
        for row in step.rows:
            for identity, seen, text in _shown(row):
                if identity in known:
                    continue
                known.add(identity)
                run = _planned(
                    context, row.step, [r.shape for r in step.rows], seen.inputs,
                    report.mma_rounding,
                )  # fmt: skip
                file = _as_drawn(report, run, row, seen, identity, text)
                yield _shorten(run, file, folder, timeout_s, on_progress)


def _shown(row: CheckRow) -> Iterator[tuple[str, Seen, str]]:
    for seen in row.seen:
        yield seen.finding.identity, seen, f"{seen.finding.kind}: {seen.finding.text}"


def _planned(
    context: Context, step: str, shapes: list[str], inputs: str, rounding: Rounding
) -> StepRun:
    emulation = Emulation(mma_rounding=rounding)
    (run,) = plan_check(context, [step], shapes, [inputs], emulation, warn=lambda _line: None)
    return run


def _as_drawn(
    report: CheckReport, run: StepRun, row: CheckRow, seen: Seen, identity: str, text: str
) -> ScheduleFile:
    other = other_shape(run, _shape_of(run, row.shape))
    return ScheduleFile(
        SCHEDULE_SCHEMA,
        step=row.step,
        shape=row.shape,
        inputs=seen.inputs,
        sms=seen.sms,
        identity=identity,
        text=text,
        source_sha=source_sha(run.step),
        seed=report.seed,
        index=seen.index,
        calls=seen.calls,
        other_shape=other.name if seen.calls and other is not None else "",
        mma_rounding=report.mma_rounding,
        max_findings=report.request.max_findings,
        decisions=None,
        made=0,
        kept=0,
    )


def _shorten(
    run: StepRun, file: ScheduleFile, folder: Path, timeout_s: float, on_progress: OnProgress
) -> Shortened:
    trials = 0

    def without(why: str) -> Shortened:
        return Shortened(file.step, file.shape, file.identity, None, None, trials, why)

    if file.text.startswith("hang: the kernel has not ended"):
        return without("each trial would take --timeout seconds")
    if not file.calls:
        on_progress(f"{file.step} {file.shape}: the shortest schedule that shows {file.identity}")
        for message in _messages(run, file, timeout_s, fewest_s=FEWEST_S):
            if isinstance(message, ScheduleShortened):
                trials = message.trials
                if message.decisions is None:
                    return without("the schedule alone, apart from the check, does not show it")
                file = replace(
                    file, decisions=message.decisions, made=message.made, kept=message.kept
                )
    if not all(_shows(file, each) for each in _runs(run, file, timeout_s, 1)):
        return without("it was not seen again in a process of its own")
    path = folder / f"{file.step}-{file.shape.replace('/', '_')}-{file.identity}.json"
    write_schedule(path, file)
    return Shortened(file.step, file.shape, file.identity, path, file, trials)


@dataclass(frozen=True)
class Replayed:
    """A schedule that was run again.

    Attributes:
        runs: What came of each time; shown: how often it showed the file's identity.
    """

    file: ScheduleFile
    runs: tuple[ScheduleRun, ...]
    shown: int


def replay_file(path: Path, times: int, timeout_s: float, on_progress: OnProgress) -> Replayed:
    """Run the schedule of a file again.

    Raises:
        RecordError: If it is none.
        UsageError: If the step is gone or has changed since.
    """
    file = read_schedule(path)
    shapes = [file.shape, *([file.other_shape] if file.other_shape else [])]
    run = _planned(Context.find(), file.step, shapes, file.inputs, file.mma_rounding)
    if source_sha(run.step) != file.source_sha:
        raise UsageError(
            f"{path.name} is a schedule of {file.step} as it was (sources "
            f"{file.source_sha[:12]}); it has changed since, and its schedules with it",
            f"look again: kernelbench check {file.step} --shape {file.shape}",
        )
    on_progress(f"{file.step} {file.shape}: building for the checker")
    EMULATOR.prepare_runtime(run.step)
    EMULATOR.library(run.step, check=True)
    found = tuple(_runs(run, file, timeout_s, times))
    return Replayed(file, found, sum(_shows(file, each) for each in found))


def _shows(file: ScheduleFile, run: ScheduleRun) -> bool:
    return any(finding.identity == file.identity for finding in run.report.findings)


def _runs(run: StepRun, file: ScheduleFile, timeout_s: float, times: int) -> Iterator[ScheduleRun]:
    """Each in a process of its own where the calls before are a part of it."""
    for _ in range(times if file.calls else 1):
        for message in _messages(run, file, timeout_s, times=times):
            if isinstance(message, ScheduleRun):
                yield message


def _messages(
    run: StepRun, file: ScheduleFile, timeout_s: float, *, times: int = 1, fewest_s: float = 0.0
) -> Iterator[Message]:
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as counters, Launcher() as launcher:
        job = ReplayJob(
            _check_job(run, file, timeout_s, counters),
            *(file.index, file.calls, file.identity, file.decisions, times, fewest_s),
        )
        messages = launcher.run(job)
        with contextlib.closing(messages):  # type: ignore[type-var]
            for message in messages:
                _raise_failure(message)
                if not isinstance(message, PhaseBegins):
                    yield message
        ending = launcher.ending
        if ending is not None and ending.kind != "done":
            raise error_of("harness", f"the replay of {file.step} {file.shape}: {ending.reason}")


def _raise_failure(message: Message) -> None:
    if isinstance(message, StepNotLoaded):
        raise UsageError(message.reason)
    if isinstance(message, JobFailed):
        if message.traceback:
            raise defect(message.reason, message.traceback)
        raise error_of(message.status, message.reason)


def _check_job(run: StepRun, file: ScheduleFile, timeout_s: float, counters: str) -> CheckJob:
    shape = _shape_of(run, file.shape)
    return CheckJob(
        step=run.step,
        lineage=run.lineage,
        shapes=(shape,),
        classes=(file.inputs,),
        target=run.target,
        sms=(file.sms,),
        schedules=1,
        seed=file.seed,
        call_limit_s=timeout_s,
        max_findings=file.max_findings,
        counters=counters,
        os_threads=1,
        other_shape=_shape_of(run, file.other_shape) if file.other_shape else None,
    )


def _shape_of(run: StepRun, name: str) -> Any:
    return next(shape for shape in run.shapes if shape.name == name)
