"""What ``kernelbench.check`` returns, and ``kernelbench check --json`` writes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelbench.base import schema
from kernelbench.base.errors import RecordError, ended_early
from kernelbench.base.json_file import read_document, row_lines, write_gzip
from kernelbench.base.table import Row, RowTable
from kernelbench.checks import allowances
from kernelbench.checks.rows import FAILED, CheckRequest, CheckRow, StepCheck
from kernelbench.emulator.settings import Rounding
from kernelbench.machine.environment import cpu_name
from kernelbench.records import run_record
from kernelbench.records.run_record import RUN_SUFFIX, device_slug

CHECK_SCHEMA: Literal["kernelbench.check/1"] = "kernelbench.check/1"


@dataclass(frozen=True, repr=False)
class CheckReport(RowTable):
    """What was found in some steps; as JSON the contract of ``kernelbench check --json``.

    Attributes:
        id: Sorts by time; the record's file is named by it.
        device: The CPU.
        request: What was asked of every step, the seed included.
        inputs: Input classes of the first step.
        complete: Whether everything that was asked for was run; not so after Ctrl-C.
        unmatched: Identities that the command allows and that no step has.
    """

    schema: Literal["kernelbench.check/1"]
    id: str
    device: str
    created: str
    command: str
    seed: int
    sms: tuple[int, ...]
    inputs: tuple[str, ...]
    mma_rounding: Rounding
    request: CheckRequest
    complete: bool
    steps: tuple[StepCheck, ...]
    unmatched: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[CheckRow, ...]:
        """The rows whose step is not right."""
        return tuple(row for step in self.steps for row in step.rows if row.status in FAILED)

    @property
    def skipped(self) -> tuple[CheckRow, ...]:
        """The rows that no schedule was run of."""
        return tuple(row for step in self.steps for row in step.rows if row.status == "skipped")

    def rows(self) -> list[Row]:
        """One row per step and shape; ``findings`` has a line for each different one."""
        return [
            {
                "step": row.step,
                "shape": row.shape,
                "status": row.status,
                "schedules": row.schedules,
                "asked": row.asked,
                "seconds": row.seconds,
                "findings": [f"{seen.finding.kind}: {seen.finding.text}" for seen in row.seen],
                "reason": row.reason,
                "assumptions": list(row.assumptions),
                "dims": row.dims,
            }
            for step in self.steps
            for row in step.rows
        ]

    def _caption(self) -> str:
        sms = ", ".join(map(str, self.sms))
        return f"{self.command}, {self.created}, SMs {sms}, seed {self.seed}"


def report_of(
    asked: CheckRequest,
    inputs: tuple[str, ...],
    mma_rounding: Rounding,
    command: str,
    steps: Sequence[StepCheck],
    failure: BaseException | None,
) -> CheckReport:
    """The report of what was checked.

    Args:
        asked: Of all steps.
        inputs: The first step's input classes.
        mma_rounding: How the sums of an MMA were rounded.
        command: What made it.
        steps: What was checked.
        failure: What ended it early, if anything did.

    Raises:
        KernelbenchError, Interrupted: That; its ``partial`` is the report.
    """
    rows = [row for step in steps for row in step.rows]
    report = CheckReport(
        schema=CHECK_SCHEMA, id=run_record.new_id(), device=cpu_name(),
        created=run_record.now_iso(), command=command, seed=asked.seed, sms=asked.sms,
        inputs=inputs, mma_rounding=mma_rounding, request=asked, complete=failure is None,
        steps=tuple(steps), unmatched=allowances.unmatched(asked.allow, rows),
    )  # fmt: skip
    if failure is not None:
        raise ended_early(failure, report)
    return report


@dataclass(frozen=True)
class LastCheck:
    """The newest check of a step."""

    run: str  #: Identifier of the record.
    created: str
    checked: StepCheck

    def in_words(self) -> str:
        """``clean, 1,234 schedules, 14 shapes, 2 situations not reached (2026-11-22)``."""
        rows = [row for row in self.checked.rows if row.status != "skipped"]
        kinds = dict.fromkeys(row.status for row in rows if row.status != "clean")
        found = dict.fromkeys(
            seen.finding.identity for row in rows for seen in row.seen if not seen.allowed
        )
        parts = [" and ".join(kinds) or ("clean" if rows else "every shape skipped")]
        if found:
            parts[0] += f" ({', '.join([*found][:3])}{', …' if len(found) > 3 else ''})"
        parts.append(_counted(sum(row.schedules for row in rows), "schedule"))
        parts.append(_counted(len(rows), "shape"))
        parts.append(f"{_counted(len(self.checked.not_reached), 'situation')} not reached")
        return f"{', '.join(parts)} ({self.created[:10]})"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def save_check(folder: Path, report: CheckReport) -> Path:
    """Write a check's record below a results folder; its path, or EnvironmentProblem."""
    path = folder / device_slug(report.device) / "checks" / f"{report.id}{RUN_SUFFIX}"
    write_gzip(path, row_lines(schema.encode(report), "steps"))
    return path


def read_check(path: Path) -> CheckReport:
    """A check's record, saved or from ``check --json``; RecordError, with the field."""
    return read_document(path, CheckReport, CHECK_SCHEMA, "record of a check")


def last_checks(
    folder: Path, steps: Collection[str] | None = None
) -> tuple[dict[str, LastCheck], list[str]]:
    """The newest complete check of each step (of ``steps``); a line for each unreadable record."""
    found: dict[str, LastCheck] = {}
    broken: list[str] = []
    paths = folder.glob(f"*/checks/*{RUN_SUFFIX}")
    for path in sorted(paths, key=lambda each: each.name, reverse=True):
        if steps is not None and found.keys() >= set(steps):
            break
        try:
            report = read_check(path)
        except RecordError as error:
            broken.append(str(error))
            continue
        for checked in report.steps:
            if checked.rows and (steps is None or checked.step in steps):
                found.setdefault(checked.step, LastCheck(report.id, report.created, checked))
    return found, broken
