"""What ``kernelbench.ab`` returns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, ExitCode
from kernelbench.base.table import Row, RowTable
from kernelbench.compare.comparer import VerdictRules, estimate
from kernelbench.compare.session_plan import SessionPlan
from kernelbench.compare.session_samples import SessionSamples
from kernelbench.measure import speed_of_light
from kernelbench.measure.results import error_of
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.model import Step
from kernelbench.records import ledger, run_record
from kernelbench.records.metrics import METRICS, Metric, is_time
from kernelbench.records.run_record import FAILED, UNJUDGED, Result
from kernelbench.stats.inference import Label, Verdict, family
from kernelbench.worker.jobs import Timing


@dataclass(frozen=True)
class ComparisonLine:
    """One line of a comparison: a shape and a metric; ``sol_us`` is the speed of light."""

    collected: SessionSamples
    metric: Metric
    verdict: Verdict
    sol_us: float | None


def judge(everything: Sequence[SessionSamples], rules: VerdictRules) -> tuple[ComparisonLine, ...]:
    """One line per shape and metric; all of them are one family."""
    pairs = [(collected, m) for collected in everything for m in rules.timing.metrics]
    estimates = [estimate(collected, m, rules) for collected, m in pairs]
    ceilings = speed_of_light.datasheet(rules.device)
    lines = []
    for (collected, m), verdict in zip(pairs, family(estimates), strict=True):
        sol = None
        work = collected.work
        if is_time(m) and ceilings is not None and work is not None and work.bytes_total:
            sol = speed_of_light.speed_of_light(work, ceilings, rules.timing.l2).us
        lines.append(ComparisonLine(collected, m, verdict, sol))
    return tuple(lines)


def medians(line: ComparisonLine) -> dict[str, float]:
    """Both arms' medians, by names that say their unit: ``base_us``, ``cand_us``."""
    unit, estimate = METRICS[line.metric].unit, line.verdict.estimate
    return {f"base_{unit}": estimate.base_us, f"cand_{unit}": estimate.cand_us}


@dataclass(frozen=True, repr=False)
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
    def collected(self) -> tuple[SessionSamples, ...]:
        """What the sessions of each shape gave."""
        return tuple({id(line.collected): line.collected for line in self.lines}.values())

    def rows(self) -> list[Row]:
        """One row per shape and metric; times are medians in microseconds, changes fractions."""
        units = dict.fromkeys(unit for line in self.lines for unit in medians(line))
        return [_flat(line, dict.fromkeys(units) | medians(line)) for line in self.lines]

    def _caption(self) -> str:
        title = f"{self.base.name} → {self.cand.name}"
        if not self.lines:
            return f"{title}: {self.not_timed or 'the same code, not timed'}"
        return f"{title} on {self.device}, {METRICS[self.metric].title} decides, seed {self.seed}"


def _flat(line: ComparisonLine, medians: dict[str, float | None]) -> Row:
    verdict, estimate = line.verdict, line.verdict.estimate
    low, high = estimate.change_ci
    return {
        "shape": line.collected.shape.name,
        "metric": line.metric,
        "verdict": verdict.label,
        **medians,
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


def append_to_ledger(folder: Path, found: Comparison, command: str) -> str:
    """Keep raw samples and add every line to the ledger; returns the identifier of its entries.

    Args:
        folder: The results folder.
        found: The comparison.
        command: What made it.

    Raises:
        EnvironmentProblem: If one of the files cannot be written.
    """
    identifier = run_record.new_id()
    device_folder = folder / run_record.device_slug(found.device) / "ab"
    samples = device_folder / f"{identifier}.samples.json.gz"
    raw = [{"shape": each.shape.name, "sessions": each.raw} for each in found.collected]
    run_record.write_samples(samples, raw)
    created, timing = run_record.now_iso(), found.timing
    entries = []
    for line in found.lines:
        e, took = line.verdict.estimate, line.collected.session_s
        # `ab --power` tells it beforehand of later ones.
        seconds = {"session_s": round(statistics.median(took), 2)} if took else {}
        entries.append(
            ledger.LedgerEntry(
                schema=ledger.SCHEMA,
                id=identifier,
                created=created,
                device=found.device,
                command=command,
                why=found.why,
                base=ledger.ArmRecord(found.base.name, source_sha(found.base)),
                cand=ledger.ArmRecord(found.cand.name, source_sha(found.cand)),
                shape=line.collected.shape.name,
                metric=line.metric,
                method=line.collected.methods[line.metric],
                verdict=line.verdict.label,
                reason=line.verdict.reason,
                base_us=e.base_us if is_time(line.metric) else None,
                cand_us=e.cand_us if is_time(line.metric) else None,
                change=e.change,
                ci=e.change_ci,
                p_holm=line.verdict.p_holm,
                figures=_figures(line),
                protocol={
                    "seed": found.seed,
                    "reps": timing.reps,
                    "warmups": timing.warmups,
                    "l2": timing.l2,
                    "batch": timing.batch,
                    "sessions": found.sessions,
                }
                | seconds,
                samples_file=samples.relative_to(folder).as_posix(),
            )
        )
    ledger.append(folder, entries)
    return identifier


def _figures(line: ComparisonLine) -> dict[str, Any]:
    """What a verdict rests on, by name, as the ledger keeps it."""
    e = line.verdict.estimate
    return {
        "p": e.p,
        "p_permutation": e.p_perm,
        "welch_p": e.welch.p,
        "welch_t": e.welch.t,
        "welch_df": e.welch.df,
        "rho1": e.rho1,
        "ess": e.ess,
        "s_d": e.s_d,
        "mde": e.mde,
        "margin": e.margin,
        "margin_source": e.margin_source,
        "blocks": e.blocks,
        "dropped": e.dropped,
        "reps": e.reps,
        "sm_mhz": line.collected.sm_mhz(line.metric),
        "sol_us": line.sol_us,
    } | ({} if is_time(line.metric) else medians(line))


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
