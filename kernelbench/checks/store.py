"""Records of checks in the results folder: ``results/<device>/checks/<id>.json.gz``.

A record is the report of a check, with a step a line; it is never changed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base import schema
from kernelbench.base.errors import RecordError
from kernelbench.base.json_file import read_document, row_lines, write_gzip
from kernelbench.checks.report import CHECK_SCHEMA, CheckReport
from kernelbench.checks.rows import StepCheck
from kernelbench.records.run_record import RUN_SUFFIX, device_slug


@dataclass(frozen=True)
class LastCheck:
    """The newest check of a step.

    Attributes:
        run: Identifier of the record.
    """

    run: str
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
    """Write the record of a check below a results folder.

    Returns:
        The record's path.

    Raises:
        EnvironmentProblem: If it cannot be written.
    """
    path = folder / device_slug(report.device) / "checks" / f"{report.id}{RUN_SUFFIX}"
    write_gzip(path, row_lines(schema.encode(report), "steps"))
    return path


def read_check(path: Path) -> CheckReport:
    """A record of a check, or what ``check --json`` wrote.

    Raises:
        RecordError: If it is none, with the field.
    """
    return read_document(path, CheckReport, CHECK_SCHEMA, "record of a check")


def last_checks(
    folder: Path, steps: Collection[str] | None = None
) -> tuple[dict[str, LastCheck], list[str]]:
    """The newest complete check of each step, and a line for each unreadable record.

    Args:
        steps: Only these; reading ends when all are found.
    """
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
