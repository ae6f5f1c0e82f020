"""What ``kernelbench.check`` returns, and ``kernelbench check --json`` writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelbench.base.row_table import Row, RowTable
from kernelbench.checks.rows import FAILED, CheckRequest, CheckRow, StepCheck
from kernelbench.emulator.settings import Rounding

CHECK_SCHEMA: Literal["kernelbench.check/1"] = "kernelbench.check/1"


@dataclass(frozen=True)
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
