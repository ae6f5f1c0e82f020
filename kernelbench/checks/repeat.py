"""A recorded check once more: the same shapes, SMs, schedules and calls, whatever the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from kernelbench.base.callbacks import OnProgress
from kernelbench.base.errors import UsageError
from kernelbench.checks import store
from kernelbench.checks.api import CheckPlan, make_report
from kernelbench.checks.report import CheckReport
from kernelbench.checks.rows import CheckRequest, CheckRow, StepCheck
from kernelbench.emulator.settings import Emulation
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.context import Context
from kernelbench.runs.plan import plan_check
from kernelbench.runs.runner import StepRun


def repeat_check(
    file: Path,
    *,
    jobs: int,
    command: str,
    on_plan: Callable[[CheckPlan], None],
    on_progress: OnProgress,
) -> tuple[CheckReport, tuple[str, ...]]:
    """Run what a record says was run.

    Returns:
        The report, and a line for each row that came out otherwise.

    Raises:
        RecordError: If the file is no record of a check.
        UsageError: If a step is gone or has changed since.
    """
    record = store.read_check(file)
    context = Context.find()
    planned = [
        _planned(context, record, step) for step in record.steps if any(r.rounds for r in step.rows)
    ]
    if not planned:
        raise UsageError(f"{file}: no schedule was run in that check")
    on_plan(CheckPlan(tuple(run for run, _ in planned), planned[0][1]))
    report = make_report(
        [(run, replace(asked, jobs=jobs)) for run, asked in planned],
        record.request, record.mma_rounding, command, on_progress, None,
    )  # fmt: skip
    return report, tuple(_differences(record, report))


def _planned(
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
