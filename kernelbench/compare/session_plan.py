"""``ab --power``: how many sessions, from the calibrated spread of this device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scipy import special

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.compare.comparer import VerdictRules
from kernelbench.records import ledger
from kernelbench.records.calibration_record import MIN_SESSIONS, SessionSpread, load_spreads
from kernelbench.records.metrics import Metric
from kernelbench.stats.inference import MAX_SESSIONS
from kernelbench.worker.jobs import Timing


@dataclass(frozen=True)
class SessionPlan:
    """What a comparison needs to find a change, planned before anything is measured."""

    sessions: int  #: Fresh processes per shape.
    power: float  #: What they reach, at least what was asked for.
    detect: float  #: The change that is found, as a fraction of the base's time.
    margin: float  #: The margin that it has to exceed: the one asked for, or three session SDs.
    #: How long it takes, from comparisons of this device; None if there was none.
    seconds: float | None
    source: str  #: The calibration that it rests on.


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


def power_of(sessions: int, total: float, distance: float, alpha: float, df: float | None) -> float:
    """Probability that the 1-alpha interval of a change ends ``distance`` short of it.

    A comparison is SLOWER where its whole interval lies beyond the margin: with the half-width h,
    where the estimate is farther than h from the margin. The estimate scatters by the same error
    that makes h, both by the t distribution.

    Args:
        sessions: How many.
        total: Variance of what one session finds, in ln units: spread of sessions and block noise.
        distance: From the margin to the change, in ln units.
        alpha: Level of the interval, after the correction for the number of comparisons.
        df: Degrees of freedom of ``total``; None if the sessions themselves have to give it.
    """
    freedom = df if df is not None else sessions - 1.0
    if freedom <= 0:
        return 0.0
    if total <= 0:
        return 1.0 if distance > 0 else 0.0
    error = math.sqrt(total / sessions)
    half = float(special.stdtrit(freedom, 1 - alpha / 2))
    return float(special.stdtr(freedom, distance / error - half))


def sessions_needed(
    total: float, distance: float, *, power: float, alpha: float, df: float | None
) -> int | None:
    """The fewest sessions that find a change with this power; None above :data:`MAX_SESSIONS`.

    The arguments are those of :func:`power_of`.

    Args:
        total: Variance of what one session finds, in ln units.
        distance: From the margin to the change, in ln units.
        power: Probability, between 0 and 1.
        alpha: Level of the interval.
        df: Degrees of freedom of ``total``; None if the sessions have to give it.
    """
    for sessions in range(1, MAX_SESSIONS + 1):
        if power_of(sessions, total, distance, alpha, df) >= power:
            return sessions
    return None
