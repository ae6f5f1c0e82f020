"""What ``kernelbench.ab`` returns."""

from __future__ import annotations

from dataclasses import dataclass

from kernelbench.base.errors import EnvironmentProblem, ExitCode
from kernelbench.base.row_table import Row, RowTable
from kernelbench.compare.collected import Collected
from kernelbench.compare.session_plan import SessionPlan
from kernelbench.compare.verdicts import ComparisonLine
from kernelbench.measure.outcomes import error_of
from kernelbench.project.model import Step
from kernelbench.records.run_record import FAILED, UNJUDGED, Metric, Result
from kernelbench.stats.inference import Label
from kernelbench.worker.jobs import Timing


@dataclass(frozen=True)
class Comparison(RowTable):
    """Two steps, timed interleaved on some shapes.

    Attributes:
        device: Name of the device; empty if nothing was timed.
        metric: The time that decides.
        lines: One per shape and metric: medians, intervals, verdict. Empty if nothing was timed.
        same_code: Both arms are the same code. Naming one step twice times it all the same;
            otherwise nothing is timed.
        not_timed: Why nothing could be timed, in one line; empty if something could.
        settled_by: What would give times then.
        checks: Rows of the check of both arms, where only that could be done and was asked for.
        shapes: Names of the shapes that were asked for.
        sessions: Fresh processes per shape.
        plan: Why so many, where a power was asked for.
        complete: Whether all shapes were compared.
        ledger_id: Of its entries in the ledger; empty if it was not saved.
    """

    base: Step
    cand: Step
    metric: Metric
    timing: Timing
    seed: int
    sessions: int
    shapes: tuple[str, ...]
    why: str = ""
    device: str = ""
    lines: tuple[ComparisonLine, ...] = ()
    same_code: bool = False
    not_timed: str = ""
    settled_by: str = ""
    checks: tuple[Result, ...] = ()
    plan: SessionPlan | None = None
    complete: bool = True
    ledger_id: str = ""

    @property
    def verdicts(self) -> dict[str, Label]:
        """The deciding metric's verdict on each shape; SAME for the same code, not timed."""
        if self.same_code and not self.lines:
            return dict.fromkeys(self.shapes, "SAME")
        decided = (line for line in self.lines if line.metric == self.metric)
        return {line.collected.shape.name: line.verdict.label for line in decided}

    @property
    def beyond_margin(self) -> bool:
        """Whether an AMBIGUOUS's best estimate is a loss beyond the margin."""
        return any(line.verdict.may_be_slower for line in self.lines if line.metric == self.metric)

    @property
    def collected(self) -> tuple[Collected, ...]:
        """What the sessions of each shape gave."""
        return tuple({id(line.collected): line.collected for line in self.lines}.values())

    def rows(self) -> list[Row]:
        """One row per shape and metric; times are medians in microseconds, changes fractions."""
        return [_flat(line) for line in self.lines]

    def _caption(self) -> str:
        title = f"{self.base.name} → {self.cand.name}"
        if not self.lines:
            return f"{title}: {self.not_timed or 'the same code, not timed'}"
        return f"{title} on {self.device}, {self.metric} time decides, seed {self.seed}"


def _flat(line: ComparisonLine) -> Row:
    verdict, estimate = line.verdict, line.verdict.estimate
    low, high = estimate.change_ci
    return {
        "shape": line.collected.shape.name,
        "metric": line.metric,
        "verdict": verdict.label,
        "base_us": estimate.base_us,
        "cand_us": estimate.cand_us,
        "change": estimate.change,
        "change_low": low,
        "change_high": high,
        "margin": estimate.margin,
        "p_holm": verdict.p_holm,
        "welch_p": estimate.welch.p,
        "method": line.collected.methods[line.metric],
        "sm_mhz": line.collected.sm_mhz(line.metric),
        "sol_us": line.sol_us,
        "reason": verdict.reason,
        "next_step": verdict.next_step,
    }


class NotTimed(EnvironmentProblem):
    """Two steps cannot be timed against each other here; ``partial`` says what was checked.

    It leaves with the code of a wrong step if one of them is wrong, and with that of what is at
    fault where they could not be judged.
    """

    partial: Comparison

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(
            f"{comparison.base.name} and {comparison.cand.name} were not timed: "
            f"{comparison.not_timed}",
            comparison.settled_by,
        )
        self.partial = comparison
        for row in comparison.checks:
            if row.status in UNJUDGED:
                self.exit_code = error_of(row.status, row.reason).exit_code
        if any(row.status in FAILED for row in comparison.checks):
            self.exit_code = ExitCode.INCORRECT
