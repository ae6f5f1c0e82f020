"""What the gate found: rows, conclusion and exit code, from stored tables or live verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelbench.base.errors import ExitCode
from kernelbench.stats.defaults import MARGIN
from kernelbench.stats.estimate import Estimate
from kernelbench.stats.inference import Verdict

RowStatus = Literal[
    "ok", "faster", "regression", "missing", "incorrect", "ambiguous", "new", "skipped"
]


@dataclass(frozen=True)
class GateRow:
    """One comparison of the gate."""

    step: str
    shape: str
    inputs: str
    metric: str
    status: RowStatus
    reason: str = ""  #: What decided, in one line; empty where nothing needs saying.
    #: ``base``, ``current``, ``best``: Medians in microseconds; None where there is none.
    base: float | None = None
    current: float | None = None
    best: float | None = None
    delta: float | None = None  #: Change against the predecessor as a fraction, positive is slower.
    delta_best: float | None = None  #: Against the best.
    margin: float | None = None  #: Largest change that passes.
    margin_best: float | None = None  #: The same against the best.
    next_step: str = ""  #: What to do about it; may be empty.
    #: Whether an ambiguous row's best estimate is a loss beyond the margin: too little is known to
    #: call it a regression, and too much to let it pass. Of stored tables a gain, too: noise that
    #: makes one hides a loss.
    beyond_margin: bool = False

    @property
    def name(self) -> str:
        """Step, shape and metric, and the input class where known, as printed."""
        inputs = f" ({self.inputs})" if self.inputs else ""
        return f"{self.step} {self.shape}{inputs} {self.metric}".rstrip()


@dataclass(frozen=True)
class GateReport:
    """What the gate found."""

    #: ``tables`` of stored medians, or ``live`` interleaved comparisons.
    form: Literal["tables", "live"]
    device: str
    rows: tuple[GateRow, ...]
    margin_note: str  #: Where the margins come from, in one line.
    notes: tuple[str, ...] = ()  #: What limits the comparison.
    #: Statuses of rows that fail the gate beside those that always do.
    fail_on: tuple[RowStatus, ...] = ()

    def with_status(self, *statuses: RowStatus) -> tuple[GateRow, ...]:
        """The rows with one of these statuses, in order."""
        return tuple(row for row in self.rows if row.status in statuses)

    @property
    def failures(self) -> tuple[GateRow, ...]:
        """The rows that fail the gate, the gravest first."""
        order = dict.fromkeys((*_ALWAYS, *_IF_ASKED))
        return tuple(
            row for status in order for row in self.with_status(status) if self._fails(row)
        )

    def _fails(self, row: GateRow) -> bool:
        return row.status in (*_ALWAYS, *self.fail_on) or row.beyond_margin

    @property
    def nothing_ran(self) -> bool:
        """Whether every row was skipped, so that the gate has looked at nothing."""
        return all(row.status == "skipped" for row in self.rows)

    @property
    def exit_code(self) -> ExitCode:
        """3 if a row is incorrect, else 1 on regression or missing, else 4, 5 or 0."""
        if self.failures:
            return _CODES[self.failures[0].status]
        return ExitCode.ENVIRONMENT if self.nothing_ran else ExitCode.PASS

    @property
    def headline(self) -> str:
        """The conclusion in one line, naming the steps that fail."""
        counts = [
            f"{len(rows)} {word}"
            for status, word in _WORDS.items()
            if (rows := self.with_status(status))
        ]
        tally = " · ".join(counts) if counts else "no rows"
        if not self.failures and self.nothing_ran:
            return f"FAIL: nothing was compared: {tally}"
        if not self.failures:
            timed = any(row.delta is not None for row in self.rows)
            return f"PASS: {tally}" + ("" if timed else "; no time was compared")
        steps = list(dict.fromkeys(row.step for row in self.failures))
        named = ", ".join(steps[:6]) + (f" and {len(steps) - 6} more" if len(steps) > 6 else "")
        return f"FAIL: {named}: {tally}"


#: What fails the gate whatever was asked, the gravest first; and what fails it if asked to.
_ALWAYS: tuple[RowStatus, ...] = ("incorrect", "regression", "missing")
_IF_ASKED: tuple[RowStatus, ...] = ("ambiguous", "skipped")

_CODES: dict[RowStatus, ExitCode] = {
    "incorrect": ExitCode.INCORRECT,
    "regression": ExitCode.REGRESSION,
    "missing": ExitCode.REGRESSION,
    "ambiguous": ExitCode.AMBIGUOUS,
    "skipped": ExitCode.ENVIRONMENT,
}

_WORDS: dict[RowStatus, str] = {
    "incorrect": "incorrect",
    "regression": "regressed",
    "missing": "missing",
    "ambiguous": "ambiguous",
    "ok": "unchanged",
    "faster": "faster",
    "new": "new",
    "skipped": "skipped",
}


@dataclass(frozen=True)
class LiveRow:
    """A live comparison."""

    step: str
    shape: str
    metric: str
    #: Verdict of the current code against that of the baseline.
    against_predecessor: Verdict | None = None
    against_best: Verdict | None = None  #: Verdict against the best step or revision, if another.
    confirmed: bool = False  #: Whether a fresh run repeated what is SLOWER.
    again: Estimate | None = None  #: What that run estimated.
    failure: str = ""  #: Why the current code is not correct, if it is not.
    missing: str = ""  #: Why it could not be compared, if it could not.
    #: The predecessor is the same code and was not timed. Each makes the verdicts optional.
    same_code: bool = False


def from_live(
    comparisons: Sequence[LiveRow],
    *,
    device: str,
    notes: Sequence[str] = (),
    fail_on: tuple[RowStatus, ...] = (),
) -> GateReport:
    """The report of live, interleaved comparisons; only a confirmed SLOWER is a regression.

    Args:
        comparisons: One for each step, shape and reference.
        device: Name of the GPU or CPU.
        notes: Lines for the reader.
        fail_on: Beside what always fails: ``ambiguous``, ``skipped``.
    """
    rows = tuple(_live_row(comparison) for comparison in comparisons)
    widest = max((row.margin for row in rows if row.margin is not None), default=MARGIN)
    note = f"margin up to {100 * widest:.2g}%; only a second run that agrees makes a regression"
    return GateReport("live", device, rows, note, tuple(notes), fail_on)


def _live_row(live: LiveRow) -> GateRow:
    first, second = live.against_predecessor, live.against_best
    status: RowStatus = "ok"
    reason, next_step = "", ""
    slower = [
        (name, verdict)
        for name, verdict in (("predecessor", first), ("best", second))
        if verdict is not None and verdict.label == "SLOWER"
    ]
    unclear = [v for v in (first, second) if v is not None and v.label == "AMBIGUOUS"]
    if live.failure:
        status, reason = "incorrect", live.failure
    elif live.missing or (first is None and not live.same_code):
        status, reason = "missing", live.missing or "was not compared"
    elif slower:
        status = "regression" if live.confirmed else "ambiguous"
        said = " and ".join(
            f"{100 * verdict.estimate.change:+.2f}% against the {name}" for name, verdict in slower
        )
        reason = said + (", confirmed" if live.confirmed else ", not confirmed by a second run")
        next_step = "" if live.confirmed else "--sessions 5"
    elif unclear:
        status, reason, next_step = "ambiguous", unclear[0].reason, unclear[0].next_step
    elif first is None:
        reason = "identical code"
    elif first.label == "FASTER":
        status = "faster"
    beyond = status == "ambiguous" and _beyond_margin(live, slower=bool(slower))
    if beyond:
        reason += "; the best estimate is beyond the margin"
        next_step = next_step or "--sessions 5"
    return GateRow(
        step=live.step,
        shape=live.shape,
        metric=live.metric,
        base=first.estimate.base_us if first else None,
        current=first.estimate.cand_us if first else None,
        best=second.estimate.base_us if second else None,
        delta=first.estimate.change if first else None,
        delta_best=second.estimate.change if second else None,
        margin=first.estimate.margin if first else None,
        status=status,
        reason=reason,
        inputs="",
        margin_best=second.estimate.margin if second else None,
        next_step=next_step,
        beyond_margin=beyond,
    )


def _beyond_margin(live: LiveRow, *, slower: bool) -> bool:
    """Whether the newest estimate says that more is lost than the margin."""
    if slower:
        return live.again is None or live.again.beyond_margin
    found = [v.estimate for v in (live.against_predecessor, live.against_best) if v is not None]
    return any(estimate.beyond_margin for estimate in found)
