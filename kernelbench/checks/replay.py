"""Schedules that show a finding, made shorter, saved and run again; recorded checks run again."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kernelbench.base.errors import UsageError
from kernelbench.base.json_file import read_document, write_json
from kernelbench.base.observer import Observer, OnProgress
from kernelbench.checks.api import CheckPlan, make_report
from kernelbench.checks.checker import other_shape
from kernelbench.checks.report import CheckReport, read_check
from kernelbench.checks.rows import CheckRequest, CheckRow, Seen, StepCheck
from kernelbench.emulator.decisions import Decision
from kernelbench.emulator.findings import Access, Finding
from kernelbench.emulator.settings import Emulation, Rounding
from kernelbench.executors.emulated import EMULATOR
from kernelbench.measure.results import error_of
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

SCHEDULE_SCHEMA: Literal["kernelbench.schedule/1"] = "kernelbench.schedule/1"


@dataclass(frozen=True)
class ScheduleFile:
    """One schedule of a step."""

    schema: Literal["kernelbench.schedule/1"]
    step: str
    shape: str
    inputs: str
    sms: int
    identity: str  #: What it shows: a finding's identity, or ``wrong`` for wrong values.
    text: str  #: The same in a line.
    source_sha: str  #: Of the step's sources; a changed step has other schedules.
    seed: int  #: The check's, of which that of the inputs is derived.
    index: int  #: Which schedule of the check it was.
    calls: str  #: Which call of its sequence, or empty.
    other_shape: str  #: The second shape of a sequence; empty if there was none.
    mma_rounding: Rounding
    max_findings: int
    #: Launch, cluster, who, number and value of each one that is not the usual one; None: the seed
    #: draws all of them.
    decisions: tuple[Decision, ...] | None
    made: int  #: Decisions of the schedule that the check ran.
    kept: int  #: Those that were not usual.


def read_schedule(path: Path) -> ScheduleFile:
    """Read it; RecordError, with the field, if the file is no schedule."""
    return read_document(path, ScheduleFile, SCHEDULE_SCHEMA, "schedule of check --minimize")


#: What a schedule without a finding shows.
_NOTHING = Finding("", "", Access(), None, "", (), 0, -1, -1)
#: Seconds to look for a shorter schedule of one finding.
FEWEST_S = 60.0


@dataclass(frozen=True)
class Shortened:
    """What came of making a schedule shorter."""

    step: str
    shape: str
    identity: str
    path: Path | None  #: The file; None if there is none, and then ``why`` says why.
    file: ScheduleFile | None
    trials: int
    why: str = ""


def shorten_findings(
    report: CheckReport,
    steps: Sequence[str],
    folder: Path,
    timeout_s: float,
    on_progress: OnProgress,
) -> Iterator[Shortened]:
    """Write a file below ``folder`` for each identity that a step of the report has.

    Args:
        report: What a check found.
        steps: What was checked, as :func:`kernelbench.check` was told it.
        folder: Where to write the schedules.
        timeout_s: Seconds after which one schedule counts as hung.
        on_progress: Told what is going on, in a line.

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
                again = _named_again(context, steps, row.step)
                shapes = [each.shape for each in step.rows]
                run = _planned(context, again, shapes, seen.inputs, report.mma_rounding)
                file = _as_drawn(report, again, run, row, (identity, seen, text))
                yield _shorten(run, file, folder, timeout_s, on_progress)


def _shown(row: CheckRow) -> Iterator[tuple[str, Seen, str]]:
    for seen in row.seen:
        yield seen.finding.identity, seen, f"{seen.finding.kind}: {seen.finding.text}"


def _named_again(context: Context, steps: Sequence[str], name: str) -> str:
    """What finds a checked step again: its name, or its folder if that is outside the project."""
    lineages = context.lineages
    checked = next(step for step in lineages.select(steps) if step.name == name)
    known = any(step.path == checked.path for step in lineages.all_steps)
    return name if known else str(checked.path)


def _planned(
    context: Context, step: str, shapes: list[str], inputs: str, rounding: Rounding
) -> StepRun:
    emulation = Emulation(mma_rounding=rounding)
    (run,) = plan_check(context, [step], shapes, [inputs], emulation, warn=lambda _line: None)
    return run


def _as_drawn(
    report: CheckReport, step: str, run: StepRun, row: CheckRow, found: tuple[str, Seen, str]
) -> ScheduleFile:
    identity, seen, text = found
    other = other_shape(run, _shape_of(run, row.shape))
    return ScheduleFile(
        SCHEDULE_SCHEMA,
        step=step,
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
    path = folder / f"{run.step.name}-{file.shape.replace('/', '_')}-{file.identity}.json"
    write_json(path, file)
    return Shortened(file.step, file.shape, file.identity, path, file, trials)


@dataclass(frozen=True)
class Replayed:
    """A schedule that was run again."""

    file: ScheduleFile
    runs: tuple[ScheduleRun, ...]  #: What came of each time.
    shown: int  #: How often it showed the file's identity.
    #: Of the last time, at the finding; empty if it was not asked for, or not made.
    state: tuple[str, ...] = ()


@dataclass(frozen=True)
class Look:
    """What to see of a schedule beside its findings."""

    trace: Path | None = None  #: File for its trace; None for none.
    state: bool = False  #: Whether to tell the state at the finding.
    times: int = 1  #: How often to run it.


def replay_file(path: Path, look: Look, timeout_s: float, on_progress: OnProgress) -> Replayed:
    """Run the schedule of a file again.

    Args:
        path: A file of ``check --minimize``.
        look: What to look at, and how often.
        timeout_s: Seconds after which the schedule counts as hung.
        on_progress: Told what is going on, in a line.

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
    report: CheckReport, steps: Sequence[str], look: Look, timeout_s: float, on_progress: OnProgress
) -> Replayed | None:
    """The schedule of a report's first finding once more; if there is none, its first schedule.

    ``steps`` is what was checked, as :func:`kernelbench.check` was told it. None if the report has
    no schedule.

    Args:
        report: What a check found.
        steps: What was checked, as :func:`kernelbench.check` was told it.
        look: What to look at.
        timeout_s: Seconds after which the schedule counts as hung.
        on_progress: Told what is going on, in a line.
    """
    context = Context.find()
    rows = [(step, row) for step in report.steps for row in step.rows if row.rounds]
    for step, row in sorted(rows, key=lambda each: not each[1].seen):
        first = Seen(_NOTHING, next(iter(row.rounds)), report.sms[0], 0)
        found = next(_shown(row), ("", first, "no finding"))
        shapes = [each.shape for each in step.rows]
        again = _named_again(context, steps, row.step)
        run = _planned(context, again, shapes, found[1].inputs, report.mma_rounding)
        on_progress(f"{row.step} {row.shape}: once more, for a closer look")
        return _looked(run, _as_drawn(report, again, run, row, found), look, timeout_s)
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
    # In a process of its own each time, where calls before belong to it.
    processes = range(look.times if file.calls else 1)
    messages = [each for _ in processes for each in _messages(run, file, timeout_s, look)]
    runs = tuple(each for each in messages if isinstance(each, ScheduleRun))
    state = [each.lines for each in messages if isinstance(each, StateTold)]
    shown = sum(_shows(file, each) for each in runs)
    return Replayed(file, runs, shown, state[-1] if state else ())


def _shows(file: ScheduleFile, run: ScheduleRun) -> bool:
    return any(finding.identity == file.identity for finding in run.report.findings)


def _messages(
    run: StepRun, file: ScheduleFile, timeout_s: float, look: Look, fewest_s: float = 0.0
) -> Iterator[Message]:
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as counters, Launcher() as launcher:
        messages = launcher.run(job_of(run, file, timeout_s, look, counters, fewest_s))
        with contextlib.closing(messages):  # type: ignore[type-var]
            for message in messages:
                if isinstance(message, StepNotLoaded):
                    raise UsageError(message.reason)
                if isinstance(message, JobFailed):
                    raise message.as_error()
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
    """What a worker is asked to do with a schedule.

    Args:
        run: The step.
        file: The schedule.
        timeout_s: Seconds after which it counts as hung.
        look: What to look at.
        counters: Folder of counters of branches; empty for none.
        fewest_s: Seconds to look for fewer decisions; 0: the schedule is run as it is.
    """
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


def repeat_check(
    file: Path, *, jobs: int, command: str, observer: Observer
) -> tuple[CheckReport, tuple[str, ...]]:
    """Run what a record says was run.

    Args:
        file: A record of a check.
        jobs: Shapes to check at the same time.
        command: What the new report says made it.
        observer: Told what happens.

    Returns:
        The report, and a line for each row that came out otherwise.

    Raises:
        RecordError: If the file is no record of a check.
        UsageError: If a step is gone or has changed since.
    """
    record = read_check(file)
    context = Context.find()
    planned = [
        _recorded_run(context, record, step)
        for step in record.steps
        if any(r.rounds for r in step.rows)
    ]
    if not planned:
        raise UsageError(f"{file}: no schedule was run in that check")
    observer.planned(CheckPlan(tuple(run for run, _ in planned), planned[0][1]))
    report = make_report(
        [(run, replace(asked, jobs=jobs)) for run, asked in planned],
        record.request, record.mma_rounding, command, observer,
    )  # fmt: skip
    return report, tuple(_differences(record, report))


def _recorded_run(
    context: Context, record: CheckReport, step: StepCheck
) -> tuple[StepRun, CheckRequest]:
    rows = [row for row in step.rows if row.rounds]
    classes = [*dict.fromkeys(name for row in rows for name in row.rounds)]
    (run,) = plan_check(
        context, [step.step], [row.shape for row in step.rows], classes,
        Emulation(mma_rounding=record.mma_rounding), warn=lambda _line: None,
    )  # fmt: skip
    if source_sha(run.step) != step.source_sha:
        raise UsageError(
            f"{step.step} has changed since that check: its sources were {step.source_sha[:12]}",
            f"check it anew: kernelbench check {step.step}",
        )
    rounds = {row.shape: row.rounds for row in rows}
    skip = run.skip | {
        row.shape: "skipped: as in the record" for row in step.rows if not row.rounds
    }
    return replace(run, skip=skip), replace(record.request, rounds=rounds)


def _differences(record: CheckReport, report: CheckReport) -> Iterator[str]:
    after = {(row.step, row.shape): row for step in report.steps for row in step.rows}
    for step in record.steps:
        for row in step.rows:
            if not row.rounds or row.status == "interrupted":
                continue
            other = after.get((row.step, row.shape))
            if other is None or _outcome(row) != _outcome(other):
                yield f"{row.step} {row.shape}: was {_words(row)}, is {_words(other)}"


def _outcome(row: CheckRow) -> tuple[object, ...]:
    seen = tuple((s.finding.identity, s.finding.count, s.sms, s.index, s.calls) for s in row.seen)
    return row.status, row.schedules, row.calls, seen


def _words(row: CheckRow | None) -> str:
    if row is None:
        return "missing"
    found = [seen.finding.identity for seen in row.seen]
    return ", ".join([row.status, f"{row.schedules} schedules", *found])
