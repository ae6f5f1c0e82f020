"""The regression gate: two timing tables, or live verdicts, in; one report out. Measures nothing.

*Tables.* Two runs in two sessions differ by what a session brings with it, so a row's margin is
the largest of the margin asked for, one timer tick, and t * sqrt(2) * sigma, where sigma is the
calibrated SD of one arm's ln median between sessions and t the one-sided quantile at alpha / N
(Bonferroni over the N tests of the table: every timed row against its predecessor and its best).
An unchanged table then fails with probability at most alpha, plus what a sigma from few sessions
leaves to chance (its degrees of freedom are in t). Sigma is measured over the sessions of one
calibration: what weeks, or another neighbour on the machine, add is not in it. Uncalibrated, the
margin asked for stands alone and the report says so. Then, and for every time by the wall clock of
a CPU, which belongs to others too, a change beyond the margin is AMBIGUOUS, gain or loss, unless
the stored repetitions lie apart (:func:`_overlap`).

*Best ever.* The least of n noisy medians lies below their mean by sigma * E[max of n normals], so
this much is added to the margin against the best; E is Blom's approximation (1958).

Whatever cannot be compared fails: a row absent from the current table, no longer timed, or timed
by another method. A row that is not correct outranks every time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from scipy import special

from kernelbench.base.errors import RecordError
from kernelbench.compare.gate_report import GateReport, GateRow, RowStatus
from kernelbench.executors.targets import never_timed
from kernelbench.records.calibration_record import SessionSpread
from kernelbench.records.metrics import METRICS, Metric, Metrics, Summary
from kernelbench.records.run_record import FAILED, UNJUDGED, UNKNOWN, Result, RunRecord
from kernelbench.stats.defaults import MARGIN, TICK_US

GateMetric = Metric | Literal["both"]
#: Step, shape, input class, metric.
BestKey = tuple[str, str, str, str]

#: Chance that an unchanged table fails: 1 %, so that 20 unchanged tables in a row mostly pass.
GATE_ALPHA = 0.01


@dataclass(frozen=True)
class Best:
    """The least median ever measured, in microseconds, among ``runs`` comparable runs."""

    median_us: float
    runs: int = 1
    stats: Summary | None = field(default=None, compare=False)  #: The series that it is of.


def expected_maximum(count: int) -> float:
    """E[max of ``count`` standard normals], Blom's approximation; 0 for one."""
    return float(special.ndtri((count - 0.375) / (count + 0.25)))


def best_ever(runs: Iterable[RunRecord], like: RunRecord) -> dict[BestKey, Best]:
    """The best median of every row among the runs comparable with ``like``.

    Runs of another device, protocol or software are passed over, as are incorrect rows, rows of
    another executor or timing method, and ``like`` itself.
    """
    best: dict[BestKey, Best] = {}
    wanted = {row_key(row): row for row in like.results}
    for run in runs:
        if run.id == like.id or differences(run, like):
            continue
        for row in run.results:
            mine = wanted.get(row_key(row))
            if mine is None or row.status != "pass" or row.executor != mine.executor:
                continue
            for metric, now in _measured(mine).items():
                stats = _measured(row).get(metric)
                if stats is None or stats.method != now.method:
                    continue
                key = (*row_key(row), metric)
                old = best.get(key, Best(math.inf, 0))
                least = min(old.stats or stats, stats, key=lambda each: each.median)
                best[key] = Best(least.median, old.runs + 1, least)
    return best


def compare_tables(
    baseline: RunRecord,
    current: RunRecord,
    *,
    best: Mapping[BestKey, Best] | None = None,
    spreads: Mapping[tuple[str, str], SessionSpread] | None = None,
    margin: float = MARGIN,
    metric: GateMetric = "device",
    fail_on: tuple[RowStatus, ...] = (),
) -> GateReport:
    """Compare two tables of one device.

    Args:
        baseline: The run of before.
        current: The run to judge.
        best: From :func:`best_ever`; rows without an entry are judged against the baseline alone.
        spreads: Level spreads by (shape, metric), from ``calibration_record.load_spreads``. A shape
            that was never calibrated takes the largest of its metric.
        margin: Change below which nobody cares, as a fraction.
        metric: ``device`` compares device time, and call time where the baseline has no other.
        fail_on: Beside what always fails: ``ambiguous``, ``skipped``.

    Raises:
        RecordError: If the tables are of different devices, executors, protocols or software, or
            if the baseline is incomplete or holds no correct row.
    """
    require_comparable(baseline, current)
    best, spreads = best or {}, spreads or {}
    base_rows = _rows(baseline, "baseline")
    current_rows = _rows(current, "current")
    pairs = [
        (key, name, base_rows[key], current_rows.get(key))
        for key in base_rows
        for name in _metrics(base_rows[key], metric)
    ]
    tests = sum(1 + ((*key, name) in best) for key, name, _, now in pairs if now is not None)
    tick = TICK_US if current.environment.kind == "cuda" else 0.0
    margins = _Margins(spreads, margin, max(1, tests), tick)
    rows = [
        _judge(key, name, base, now, best.get((*key, name)), margins)
        for key, name, base, now in pairs
    ]
    for key, row in current_rows.items():
        base = base_rows.get(key)
        if base is None or base.status != "pass":
            rows.append(_unpaired(key, row, base))
    for key, base in base_rows.items():
        if base.status != "pass" and key not in current_rows:
            reason = f"{base.status} in the baseline, absent now"
            rows.append(GateRow(*key, "", "skipped", reason))
    if len({row.inputs for row in rows}) <= 1:  # a column of one class would say nothing
        rows = [replace(row, inputs="") for row in rows]
    return GateReport(
        "tables", current.device, tuple(rows), margins.note(),
        tuple(_notes(baseline, current, margins)), fail_on,
    )  # fmt: skip


def _notes(baseline: RunRecord, current: RunRecord, margins: _Margins) -> list[str]:
    """What a reader of the comparison has to know beside its rows."""
    notes = []
    if not current.complete:
        notes.append("the current run was interrupted: the rows it lacks count as missing")
    for which, record in (("baseline", baseline), ("current", current)):
        if record.environment.gpu_processes:
            notes.append(f"{which}: other processes were on the GPU")
    if baseline.environment.torch != current.environment.torch:
        notes.append(
            f"torch differs ({baseline.environment.torch}, {current.environment.torch}): "
            "call times include it"
        )
    if margins.borrowed:
        notes.append(
            f"not calibrated, largest spread of another shape taken: {', '.join(margins.borrowed)}"
        )
    if margins.few_sessions:
        notes.append(
            f"the spread rests on {margins.few_sessions} sessions, which widens the margins: "
            "calibrate with 40"
        )
    return notes


class _Margins:
    """The margin of each row, and the account of where the margins came from."""

    def __init__(
        self,
        spreads: Mapping[tuple[str, str], SessionSpread],
        margin: float,
        tests: int,
        tick_us: float,
    ) -> None:
        self._spreads, self._margin, self._tests, self._tick_us = spreads, margin, tests, tick_us
        self._used: dict[str, float] = {}
        self.borrowed: list[str] = []
        self.few_sessions = 0

    def of(self, shape: str, metric: str, base_us: float, runs: int = 0) -> tuple[float, str]:
        """Margin as a fraction, and its source; ``runs`` > 0 for the best of so many runs."""
        options = [(self._margin, "--margin"), (self._tick_us / base_us, "timer tick")]
        spread = self._spread(shape, metric)
        if spread is not None:
            if spread.df < 20:
                self.few_sessions = spread.sessions
            quantile = float(special.stdtrit(spread.df, 1 - GATE_ALPHA / self._tests))
            # With one run the bias is zero; with more it is what choosing the least gains.
            shift = expected_maximum(runs) if runs else 0.0
            width = (quantile * math.sqrt(2) + shift) * spread.sd
            options.append((math.expm1(width), "session spread"))
        value, source = max(options)
        self._used[source] = max(value, self._used.get(source, 0.0))
        return value, source

    def _spread(self, shape: str, metric: str) -> SessionSpread | None:
        if (shape, metric) in self._spreads:
            return self._spreads[shape, metric]
        others = [spread for (_, name), spread in self._spreads.items() if name == metric]
        if not others:
            return None
        label = f"{shape} {metric}"
        if label not in self.borrowed:
            self.borrowed.append(label)
        return max(others, key=lambda spread: spread.sd)

    def doubt(self, shape: str, metric: str, before: Summary | None, now: Summary) -> str:
        """Why a change beyond the margin is not certain; empty if it is."""
        calibrated = self._spread(shape, metric) is not None and now.method != "wall"
        return "" if calibrated or not before else _overlap(before, now, GATE_ALPHA / self._tests)

    def note(self) -> str:
        """One line on the margins used."""
        used = ", ".join(
            f"up to {100 * value:.2g}% from {source}" for source, value in self._used.items()
        )
        text = "margin " + (used or f"{100 * self._margin:.2g}%, unused: no time was compared")
        if self._spreads:
            return f"{text} (alpha {GATE_ALPHA:g} over {self._tests} tests)"
        return (
            f"{text}; spread between sessions unknown, so a small change may be the session's: "
            "run `kernelbench calibrate`, or compare live with --against"
        )


def _judge(
    key: RowKey, metric: str, base: Result, now: Result | None, best: Best | None, margins: _Margins
) -> GateRow:
    base_stats, now_stats = (_measured(row).get(cast(Metric, metric)) for row in (base, now))
    base_us = base_stats.median if base_stats else None
    current_us = now_stats.median if now_stats else None

    def row(status: RowStatus, reason: str, next_step: str = "") -> GateRow:
        best_us = best.median_us if best else None
        bare = GateRow(*key, metric, status, reason)
        return replace(bare, base=base_us, current=current_us, best=best_us, next_step=next_step)

    if now is not None and now.status in FAILED:
        return row("incorrect", f"{now.status}: {now.reason}")
    if now is None:
        return row("missing", "in the baseline, not in the current table", f"run {key[0]} again")
    if now.status in UNKNOWN:
        return row("missing", f"{now.status}: {now.reason}")
    if base_stats is None:
        return row("ok", "correct; not timed in the baseline")
    if now_stats is None:
        return row("missing", f"{metric} time in the baseline, none now")
    if now_stats.method != base_stats.method:
        methods = f"by {base_stats.method} before, by {now_stats.method} now"
        return row("missing", f"{metric} time taken {methods}: not comparable")

    delta = now_stats.median / base_stats.median - 1
    margin, source = margins.of(key[1], metric, base_stats.median)
    delta_best = margin_best = None
    # What is beyond its margin: in words, and why it is not certain.
    beyond = []
    if abs(delta) > margin:
        said = _exceeds(delta, "predecessor", margin, source)
        beyond.append((said, delta > 0, margins.doubt(key[1], metric, base_stats, now_stats)))
    if best is not None:
        delta_best = now_stats.median / best.median_us - 1
        margin_best, source = margins.of(key[1], metric, best.median_us, best.runs)
        if delta_best > margin_best:
            said = _exceeds(delta_best, f"best of {best.runs} runs", margin_best, source)
            beyond.append((said, True, margins.doubt(key[1], metric, best.stats, now_stats)))
    lost = [said for said, loss, doubt in beyond if loss and not doubt]
    unclear = [f"{said}; {doubt}" for said, _, doubt in beyond if doubt]
    status: RowStatus = "ok"
    if beyond:
        status = "regression" if lost else "ambiguous" if unclear else "faster"
    return replace(
        row(status, "; ".join(lost or unclear)),
        delta=delta,
        delta_best=delta_best,
        margin=margin,
        margin_best=margin_best,
        next_step="confirm live: kernelbench gate --against GIT_REF" if lost or unclear else "",
        beyond_margin=status == "ambiguous",
    )


def _exceeds(delta: float, against: str, margin: float, source: str) -> str:
    return f"{100 * delta:+.2f}% against the {against}, margin {100 * margin:.2g}% ({source})"


def _unpaired(key: RowKey, row: Result, base: Result | None) -> GateRow:
    """A current row that the baseline has no figure for."""
    if row.status in FAILED:
        return GateRow(*key, "", "incorrect", f"{row.status}: {row.reason}")
    if row.status in UNJUDGED:
        return GateRow(*key, "", "missing", f"{row.status}: {row.reason}")
    if row.status == "skipped":
        return GateRow(*key, "", "skipped", row.reason)
    name = next((name for name in METRICS if name in _measured(row)), None)
    reason = f"{base.status} in the baseline" if base else "not in the baseline"
    new = GateRow(*key, name or "", "new", reason)
    return replace(new, current=row.metrics[name].median if name else None)


def _rows(record: RunRecord, which: str) -> dict[RowKey, Result]:
    rows: dict[RowKey, Result] = {}
    for row in record.results:
        if row_key(row) in rows:
            raise RecordError(
                f"the {which} table holds {' '.join(row_key(row))} twice", "make it anew"
            )
        for name, stats in row.metrics.items():
            if not stats.median > 0:
                raise RecordError(
                    f"the {which} table has a time of {stats.median:g} {METRICS[name].symbol} for "
                    f"{' '.join(row_key(row))}",
                    "make it anew",
                )
        rows[row_key(row)] = row
    return rows


def _measured(row: Result | None) -> Metrics:
    return {} if row is None or never_timed(row.executor) else row.metrics


def _metrics(base: Result, metric: GateMetric) -> list[str]:
    """Metrics to compare of a baseline row; none if it was not correct."""
    if base.status != "pass":
        return []
    if metric not in ("both", "device"):
        return [metric]
    timed = [name for name in METRICS if name in _measured(base)]
    return [*(timed if metric == "both" else timed[:1])] or [""]


def _overlap(before: Summary, now: Summary, alpha: float) -> str:
    """Why two stored series cannot be told apart, in a few words; empty if they can.

    A record keeps the median of a series, its 5th and its 95th percentile. Where no calibration
    says how far the median of a session moves by itself, all that is known is how far single
    repetitions moved: two medians are taken to differ if the intervals between these percentiles
    have no point in common. With few repetitions that happens by chance: n and m samples of one
    distribution lie apart with a probability of 2 / C(n + m, n), all orders being equally likely.
    """
    if now.p05 <= before.p95 and before.p05 <= now.p95:
        return f"p5–p95 {_range(before)} before, {_range(now)} now: they overlap"
    by_chance = 2 / math.comb(before.reps + now.reps, now.reps)
    if by_chance > alpha:
        return f"{before.reps} and {now.reps} repetitions lie apart by chance with {by_chance:.2g}"
    return ""


def _range(stats: Summary) -> str:
    return f"{stats.p05:.4g} to {stats.p95:.4g} µs"


#: Step, shape, input class.
RowKey = tuple[str, str, str]


def row_key(row: Result) -> RowKey:
    """What makes a row of one table the counterpart of another's."""
    return row.step, row.shape, row.inputs


def differences(first: RunRecord, second: RunRecord) -> list[str]:
    """What makes the times of two runs incomparable, each as ``what (one, other)``."""
    a, b, p, q = first.environment, second.environment, first.protocol, second.protocol
    pairs: dict[str, tuple[object, object]] = {
        "device": (first.device, second.device),
        "device kind": (a.kind, b.kind),
        "arch": (a.arch, b.arch),
        "number of SMs": (a.sms, b.sms),
        "MIG": (a.mig, b.mig),
        "driver": (a.driver, b.driver),
        "CUDA": (a.cuda, b.cuda),
        "L2 mode": (p.l2, q.l2),
        "call mode": (p.call, q.call),
        "flush size": (p.flush_bytes, q.flush_bytes),
    }
    return [f"{name} ({x}, {y})" for name, (x, y) in pairs.items() if x != y]


def require_comparable(baseline: RunRecord, current: RunRecord) -> None:
    """RecordError if device, executor, protocol or software differ, or the baseline is unusable."""
    found = differences(baseline, current)
    before = {row_key(row): row.executor for row in baseline.results}
    for row in current.results:
        executor = before.get(row_key(row), row.executor)
        if executor != row.executor:
            found.append(f"executor of {row.step} {row.shape} ({executor}, {row.executor})")
    if found:
        raise RecordError(
            f"baseline and current differ in {', '.join(found[:4])}: their times say nothing "
            "about the code",
            "make the baseline anew here, or compare live with --against",
        )
    if not baseline.complete:
        raise RecordError("the baseline run was interrupted and lacks rows", "make it anew")
    if not any(row.status == "pass" for row in baseline.results):
        raise RecordError("the baseline holds no correct row", "make it anew")
