"""The file of a schedule that shows a finding, for ``check --minimize`` and ``--replay``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelbench.base.json_file import read_document, write_json
from kernelbench.emulator.decisions import Decision
from kernelbench.emulator.settings import Rounding

SCHEDULE_SCHEMA: Literal["kernelbench.schedule/1"] = "kernelbench.schedule/1"


@dataclass(frozen=True)
class ScheduleFile:
    """One schedule of a step.

    Attributes:
        identity: What it shows: a finding's identity, or ``wrong`` for wrong values.
        text: The same in a line.
        source_sha: Of the step's sources; a changed step has other schedules.
        seed: The check's, of which that of the inputs is derived.
        index: Which schedule of the check it was; ``calls``: which call of its sequence, or empty.
        other_shape: The second shape of a sequence; empty if there was none.
        decisions: Launch, cluster, who, number and value of each one that is not the usual one;
            None: the seed draws all of them.
        made: Decisions of the schedule that the check ran; kept: those that were not usual.
    """

    schema: Literal["kernelbench.schedule/1"]
    step: str
    shape: str
    inputs: str
    sms: int
    identity: str
    text: str
    source_sha: str
    seed: int
    index: int
    calls: str
    other_shape: str
    mma_rounding: Rounding
    max_findings: int
    decisions: tuple[Decision, ...] | None
    made: int
    kept: int


def write_schedule(path: Path, file: ScheduleFile) -> None:
    """Write it, whole or not at all.

    Raises:
        EnvironmentProblem: If it cannot be written.
    """
    write_json(path, file)


def read_schedule(path: Path) -> ScheduleFile:
    """Read it.

    Raises:
        RecordError: If the file is no schedule, with the field.
    """
    return read_document(path, ScheduleFile, SCHEDULE_SCHEMA, "schedule of check --minimize")
