"""``ab --power``: how many sessions, from the calibrated spread of this device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.compare.comparer import VerdictRules
from kernelbench.records import ledger
from kernelbench.records.calibration_record import MIN_SESSIONS, SessionSpread, load_spreads
from kernelbench.records.metrics import Metric
from kernelbench.stats.inference import MAX_SESSIONS
from kernelbench.stats.planning import power_of, sessions_needed
from kernelbench.worker.jobs import Timing

__all__ = ["SessionPlan", "plan_sessions"]


@dataclass(frozen=True)
class SessionPlan:
    """What a comparison needs to find a change, planned before anything is measured.

    Attributes:
        sessions: Fresh processes per shape.
        power: What they reach, at least what was asked for.
        detect: The change that is found, as a fraction of the base's time.
        margin: The margin that it has to exceed: the one asked for, or three session SDs.
        seconds: How long it takes, from comparisons of this device; None if there was none.
        source: The calibration that it rests on.
    """

    sessions: int
    power: float
    detect: float
    margin: float
    seconds: float | None
    source: str


def plan_sessions(
    rules: VerdictRules, shapes: Sequence[str], metric: Metric, *, power: float, detect: float
) -> SessionPlan:
    """The fewest sessions that call a slowdown of ``detect`` SLOWER with the given probability.

    Args:
        rules: How the samples will be judged; the folder has the ledger, too.
        shapes: Compared together: the level is shared among them and their metrics.
        metric: The time that decides.
        power: Probability, between 0 and 1.
        detect: The slowdown, as a fraction.

    Raises:
        EnvironmentProblem: If the device was never calibrated for the metric.
        UsageError: If the change is not beyond the margin that the device allows, or takes more
            than :data:`~kernelbench.stats.inference.MAX_SESSIONS` sessions.
    """
    results, device, timing = rules.results, rules.device, rules.timing
    spreads = {
        shape: spread
        for (shape, of), spread in load_spreads(results, device, "comparison", timing.l2).items()
        if of == metric and math.isfinite(spread.total_variance)
    }
    if not spreads:
        raise EnvironmentProblem(
            f"--power rests on a calibration of {device} for {metric} time, and there is none",
            "make one with `kernelbench calibrate STEP --shape NAME`, or say --sessions",
        )
    shared = replace(rules, alpha=rules.alpha / (len(shapes) * len(timing.metrics)))
    plans = [_for_shape(spreads, shape, shared, power, detect) for shape in shapes]
    most = max(plans, key=lambda plan: plan.sessions)
    seconds = _seconds_per_session(results, device, timing)
    return replace(most, seconds=seconds and seconds * most.sessions * len(shapes))


def _for_shape(
    spreads: dict[str, SessionSpread], shape: str, rules: VerdictRules, power: float, detect: float
) -> SessionPlan:
    """The plan of one shape; of one that was never calibrated, by the largest spread."""
    margin, alpha = rules.margin, rules.alpha
    own = spreads.get(shape)
    spread = own or max(spreads.values(), key=lambda each: each.total_variance)
    # Without a calibration of its own, a shape's error is that of its own sessions.
    df = spread.sessions - 1.0 if own and spread.sessions > MIN_SESSIONS else None
    allowed = max(margin, 3 * spread.sd) if own else margin
    if detect <= allowed:
        raise UsageError(
            f"a change of {detect:.2%} is not beyond the margin of {allowed:.2%}"
            + ("" if allowed == margin else f", three times the spread of sessions on {shape}"),
            "raise --detect, or lower --margin",
        )
    distance = math.log1p(detect) - math.log1p(allowed)
    total = spread.total_variance
    sessions = sessions_needed(total, distance, power=power, alpha=alpha, df=df)
    if sessions is None:
        raise UsageError(
            f"{shape}: more than {MAX_SESSIONS} sessions to find {detect:.2%} beyond "
            f"{allowed:.2%} with a power of {power:.0%}",
            "raise --detect, or lower --margin or --power",
        )
    reached = power_of(sessions, total, distance, alpha, df)
    return SessionPlan(sessions, reached, detect, allowed, None, spread.source)


def _seconds_per_session(results: Path, device: str, timing: Timing) -> float | None:
    """Median seconds of a session in the newest comparisons of a device with as many reps."""
    seconds = [
        float(entry.protocol["session_s"])
        for entry in ledger.read_ledger(results)
        if entry.device == device
        and entry.protocol.get("reps") == timing.reps
        and "session_s" in entry.protocol
    ]
    return statistics.median(seconds[-20:]) if seconds else None
