"""Schedules that show a finding: made shorter, saved, and run again."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelbench.base.callbacks import OnProgress
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
from kernelbench.emulator.findings import Access, Finding
from kernelbench.emulator.settings import Emulation, Rounding
from kernelbench.executors.emulated import EMULATOR
from kernelbench.measure.outcomes import error_of
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.context import Context
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
    StateTold,
    StepNotLoaded,
)

#: What a schedule without a finding shows.
_NOTHING = Finding("", "", Access(), None, "", (), 0, -1, -1)
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
        for message in _messages(run, file, timeout_s, Look(), FEWEST_S):
            if isinstance(message, ScheduleShortened):
                trials = message.trials
                if message.decisions is None:
                    return without("the schedule alone, apart from the check, does not show it")
                file = replace(
                    file, decisions=message.decisions, made=message.made, kept=message.kept
                )
    if not _looked(run, file, Look(), timeout_s).shown:
        return without("it was not seen again in a process of its own")
    path = folder / f"{file.step}-{file.shape.replace('/', '_')}-{file.identity}.json"
    write_schedule(path, file)
    return Shortened(file.step, file.shape, file.identity, path, file, trials)


@dataclass(frozen=True)
class Replayed:
    """A schedule that was run again.

    Attributes:
        runs: What came of each time; shown: how often it showed the file's identity.
        state: Of the last time, at the finding; empty if it was not asked for, or not made.
    """

    file: ScheduleFile
    runs: tuple[ScheduleRun, ...]
    shown: int
    state: tuple[str, ...] = ()


@dataclass(frozen=True)
class Look:
    """What to see of a schedule beside its findings.

    Attributes:
        trace: File for its trace; None for none.
        state: Whether to tell the state at the finding.
        times: How often to run it.
    """

    trace: Path | None = None
    state: bool = False
    times: int = 1


def replay_file(path: Path, look: Look, timeout_s: float, on_progress: OnProgress) -> Replayed:
    """Run the schedule of a file again.

    Raises:
        RecordError: If it is none.
        UsageError: If the step is gone or has changed since.
    """
    file, run = planned_file(path)
    on_progress(f"{file.step} {file.shape}: building for the checker")
    EMULATOR.prepare_runtime(run.step)
    EMULATOR.prepare_step(run.step, check=True)
    return _looked(run, file, look, timeout_s)


def look_at_report(
    report: CheckReport, look: Look, timeout_s: float, on_progress: OnProgress
) -> Replayed | None:
    """The schedule of a report's first finding once more; if there is none, its first schedule.

    None if the report has no schedule.
    """
    context = Context.find()
    rows = [(step, row) for step in report.steps for row in step.rows if row.rounds]
    for step, row in sorted(rows, key=lambda each: not each[1].seen):
        found = next(_shown(row), None)
        first = Seen(_NOTHING, next(iter(row.rounds)), report.sms[0], 0)
        identity, seen, text = found or ("", first, "no finding")
        shapes = [each.shape for each in step.rows]
        run = _planned(context, row.step, shapes, seen.inputs, report.mma_rounding)
        on_progress(f"{row.step} {row.shape}: once more, for a closer look")
        return _looked(run, _as_drawn(report, run, row, seen, identity, text), look, timeout_s)
    return None


def planned_file(path: Path) -> tuple[ScheduleFile, StepRun]:
    """A schedule's file, and the step as it would be run.

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
    return file, run


def _looked(run: StepRun, file: ScheduleFile, look: Look, timeout_s: float) -> Replayed:
    messages = [*_runs(run, file, timeout_s, look)]
    runs = tuple(each for each in messages if isinstance(each, ScheduleRun))
    state = [each.lines for each in messages if isinstance(each, StateTold)]
    shown = sum(_shows(file, each) for each in runs)
    return Replayed(file, runs, shown, state[-1] if state else ())


def _shows(file: ScheduleFile, run: ScheduleRun) -> bool:
    return any(finding.identity == file.identity for finding in run.report.findings)


def _runs(run: StepRun, file: ScheduleFile, timeout_s: float, look: Look) -> Iterator[Message]:
    """What comes of running it; in a process of its own where calls before belong to it."""
    for _ in range(look.times if file.calls else 1):
        yield from _messages(run, file, timeout_s, look)


def _messages(
    run: StepRun, file: ScheduleFile, timeout_s: float, look: Look, fewest_s: float = 0.0
) -> Iterator[Message]:
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as counters, Launcher() as launcher:
        messages = launcher.run(job_of(run, file, timeout_s, look, counters, fewest_s))
        with contextlib.closing(messages):  # type: ignore[type-var]
            for message in messages:
                _raise_failure(message)
                if not isinstance(message, PhaseBegins):
                    yield message
        ending = launcher.ending
        if ending is not None and ending.kind != "done":
            raise error_of("harness", f"the replay of {file.step} {file.shape}: {ending.reason}")


def job_of(
    run: StepRun,
    file: ScheduleFile,
    timeout_s: float,
    look: Look,
    counters: str = "",
    fewest_s: float = 0.0,
) -> ReplayJob:
    """What a worker is asked to do with a schedule."""
    return ReplayJob(
        _check_job(run, file, timeout_s, counters),
        index=file.index,
        calls=file.calls,
        identity=file.identity,
        decisions=file.decisions,
        times=look.times,
        fewest_s=fewest_s,
        trace=str(look.trace.resolve()) if look.trace else "",
        state=look.state,
    )


def _raise_failure(message: Message) -> None:
    if isinstance(message, StepNotLoaded):
        raise UsageError(message.reason)
    if isinstance(message, JobFailed):
        raise message.as_error()


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
