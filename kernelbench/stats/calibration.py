"""Does the method hold on this device: analysis and record of ``kernelbench calibrate``.

The runner collects samples; this module judges them:

* *False positives*: A/A comparisons (one kernel loaded twice). Rejections of "no difference" at
  alpha must lie in the 97 % binomial band, p must be uniform, and both signs equally frequent.
* *Power*: slowdowns planted as real device work, and synthetic ones (stored A/A samples with the
  candidate multiplied by 1+x), which tell a fault of the statistics from one of the planting.
* *Spread between sessions*: what differs from one process to the next beyond the blocks' noise.
* *Negative control*: the same kernel timed A...A B...B under Welch's test. If that does not reject
  too often, there was no drift, and the false-positive rate of the blocks proves little.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbench.records import run_record
from kernelbench.records.calibration_record import (
    MIN_SESSIONS,
    CalibrationRecord,
    FalsePositives,
    Power,
    SequentialControl,
    SessionSpread,
    Share,
)
from kernelbench.stats.blocks import BlockSamples, Floats
from kernelbench.stats.defaults import ALPHA, MARGIN
from kernelbench.stats.estimate import Estimate, estimate_change
from kernelbench.stats.inference import Verdict, family
from kernelbench.stats.significance import welch

#: Synthetic slowdowns applied to stored A/A samples.
LEVELS = (0.005, 0.01, 0.02)


@dataclass(frozen=True)
class AASample:
    """One A/A comparison: both arms are the same code. ``session`` numbers the process."""

    session: int
    samples: BlockSamples


@dataclass(frozen=True)
class PlantedSample:
    """One comparison whose candidate does extra work."""

    level: float  #: The slowdown asked for, as a fraction; trials are grouped by it.
    planted: float  #: The slowdown that the planted work makes by itself, measured apart.
    samples: BlockSamples
    #: Whether the level is margin + 2 MDE, where :data:`REQUIRED_POWER` is demanded.
    target: bool = False


def binomial_band(total: int, alpha: float = ALPHA) -> tuple[int, int]:
    """The shortest band of counts that holds 97 % (rounded) of Binomial(total, alpha).

    For 200 comparisons at 0.05 it is 4 to 16, inclusive.
    """
    from scipy import stats

    mass = stats.binom.pmf(np.arange(total + 1), total, alpha)
    order = np.argsort(-mass, kind="stable")
    needed = int(np.searchsorted(np.cumsum(mass[order]), 0.965)) + 1
    chosen = order[:needed]
    return int(chosen.min()), int(chosen.max())


def share(count: int, total: int) -> Share:
    """A share with its exact 95 % interval; ValueError if ``total`` is 0."""
    from scipy import stats

    if total < 1:
        raise ValueError("a share needs at least one trial")
    interval = stats.binomtest(count, total).proportion_ci(0.95, "exact")
    return Share(count, total, float(interval.low), float(interval.high))


def false_positives(verdicts: Sequence[Verdict], alpha: float = ALPHA) -> FalsePositives:
    """Judge A/A comparisons, each a family of its own; ValueError if there are none."""
    from scipy import stats

    p_values = tuple(verdict.estimate.p for verdict in verdicts)
    rejections = share(sum(p < alpha for p in p_values), len(p_values))
    low, high = binomial_band(len(p_values), alpha)
    positive = sum(verdict.estimate.delta > 0 for verdict in verdicts)
    moved = sum(verdict.estimate.delta != 0 for verdict in verdicts)
    return FalsePositives(
        rejections=rejections,
        band_lo=low,
        band_hi=high,
        ks_p=float(stats.kstest(p_values, "uniform").pvalue),
        positive=positive,
        sign_p=float(stats.binomtest(positive, moved).pvalue) if moved else 1.0,
        p_values=p_values,
        verdicts=dict(Counter(verdict.label for verdict in verdicts)),
    )


def session_spread(
    values: Mapping[int, Sequence[float]], block_variance: float = 0.0
) -> SessionSpread | None:
    """SD of one comparison's value in a fresh session, beyond ``block_variance``.

    The variance of a single value is that between session means plus that within sessions
    (one-way variance components); ``block_variance`` is subtracted and the rest floored at 0. The
    degrees of freedom are Satterthwaite's for the difference, falling to 0 with it, and the upper
    limit is one-sided 95 %, by chi-square with sessions-1 degrees of freedom on the variance before
    subtraction. That many is the worst case, all of the variance lying between sessions. The
    subtrahend counts as known: it is the mean over all comparisons and all their blocks.

    Args:
        values: Values in ln units by session.
        block_variance: Variance within a session, in their squared units.

    Returns:
        None with fewer than :data:`MIN_SESSIONS` sessions.
    """
    from scipy import stats

    groups = [np.asarray(group, dtype=np.float64) for group in values.values()]
    count = len(groups)
    if count < MIN_SESSIONS:
        return None
    between = float(np.var([group.mean() for group in groups], ddof=1))
    # A session mean of n values holds only 1/n of the variance within; a single value all of it.
    inside = [g.var(ddof=1) * (1 - 1 / g.size) if g.size > 1 else 0.0 for g in groups]
    found = between + float(np.mean(inside))
    ceiling = found * (count - 1) / float(stats.chi2.ppf(0.05, count - 1))
    upper = math.sqrt(max(0.0, ceiling - block_variance))
    # The block noise is part of every value: less than that was found by chance.
    total = max(found, block_variance)
    excess = total - block_variance
    df = (count - 1) * (excess / total) ** 2 if total > 0 else float(count - 1)
    return SessionSpread(math.sqrt(excess), df, upper, count, total=total)


def _comparison_spread(
    sessions: Sequence[int], estimates: Sequence[Estimate]
) -> SessionSpread | None:
    values: dict[int, list[float]] = {}
    for session, estimate in zip(sessions, estimates, strict=True):
        values.setdefault(session, []).append(estimate.delta)
    if not estimates:
        return None
    return session_spread(values, float(np.mean([estimate.se_iid**2 for estimate in estimates])))


def _power(
    level: float, planted: Sequence[float], verdicts: Sequence[Verdict], target: bool
) -> Power:
    slower = sum(verdict.label == "SLOWER" for verdict in verdicts)
    return Power(
        level=level,
        planted=float(np.mean(planted)),
        median_change=float(np.median([verdict.estimate.change for verdict in verdicts])),
        slower=share(slower, len(verdicts)),
        verdicts=dict(Counter(verdict.label for verdict in verdicts)),
        target=target,
    )


def target_slowdown(estimates: Sequence[Estimate]) -> float:
    """Margin + 2 MDE as a fraction of time, from the median A/A comparison: the level to plant."""
    levels = [math.log1p(estimate.margin) + 2 * estimate.mde for estimate in estimates]
    return math.expm1(float(np.median(levels)))


#: The verdict about one comparison; with the spread of sessions, if it is known.
_Judge = Callable[..., Verdict]


def analyze(
    aa: Sequence[AASample],
    planted: Sequence[PlantedSample] = (),
    sequential: Sequence[tuple[Floats, Floats]] = (),
    *,
    device: str,
    step: str,
    shape: str,
    metric: str,
    margin: float = MARGIN,
    alpha: float = ALPHA,
    protocol: Mapping[str, Any] | None = None,
    complete: bool = True,
) -> CalibrationRecord:
    """Analyse one calibration. Each comparison is judged alone, as one session.

    Args:
        aa: A/A comparisons, at least one.
        planted: Comparisons with extra work in the candidate.
        sequential: Pairs of raw times [n] in microseconds measured A...A B...B.
        device: Name of the GPU or CPU.
        step: The test object.
        shape: Its shape.
        metric: Which time.
        margin: Change below which nobody cares, as a fraction.
        alpha: Level of the tests.
        protocol: How it was measured; kept as it is.
        complete: Whether all that was planned was measured.

    Raises:
        ValueError: If ``aa`` is empty.
    """

    def judge(samples: BlockSamples, spread: SessionSpread | None = None) -> Verdict:
        estimate = estimate_change(
            [samples],
            margin=margin,
            alpha=alpha,
            session_sd=spread.sd if spread else None,
            session_df=spread.sessions - 1 if spread else None,
            session_total=spread.total_variance if spread else None,
        )
        return family([estimate])[0]

    if not aa:
        raise ValueError("a calibration needs A/A comparisons")
    verdicts = [judge(trial.samples) for trial in aa]
    estimates = [verdict.estimate for verdict in verdicts]
    numbers = [trial.session for trial in aa]
    levels: dict[int, list[float]] = {}
    for trial, estimate in zip(aa, estimates, strict=True):
        levels.setdefault(trial.session, []).append(math.log(estimate.base_us))
    target = target_slowdown(estimates)
    return CalibrationRecord(
        schema="kernelbench.calibration/1",
        id=run_record.new_id(),
        created=run_record.now_iso(),
        device=device,
        step=step,
        shape=shape,
        metric=metric,
        margin=margin,
        alpha=alpha,
        false_positives=false_positives(verdicts, alpha),
        session_aware=_session_aware(aa, estimates, judge, alpha),
        planted=_planted_power(planted, judge),
        synthetic=_synthetic_power(aa, target, judge),
        sequential=_sequential_control(sequential, alpha),
        comparison_spread=_comparison_spread(numbers, estimates),
        level_spread=session_spread(levels),
        target_slowdown=target,
        complete=complete,
        protocol=dict(protocol or {}),
    )


def _session_aware(
    aa: Sequence[AASample], estimates: Sequence[Estimate], judge: _Judge, alpha: float
) -> FalsePositives | None:
    """False positives where each session is judged with the spread of the others."""
    numbers = [trial.session for trial in aa]
    if len(set(numbers)) <= MIN_SESSIONS:
        return None
    spreads = {}
    for session in set(numbers):
        others = [i for i, number in enumerate(numbers) if number != session]
        spreads[session] = _comparison_spread(
            [numbers[i] for i in others], [estimates[i] for i in others]
        )
    return false_positives([judge(trial.samples, spreads[trial.session]) for trial in aa], alpha)


def _planted_power(planted: Sequence[PlantedSample], judge: _Judge) -> tuple[Power, ...]:
    """What was found of the device work that was planted, by level."""
    groups: dict[float, list[PlantedSample]] = {}
    for trial in planted:
        groups.setdefault(trial.level, []).append(trial)
    return tuple(
        _power(
            level,
            [trial.planted for trial in trials],
            [judge(trial.samples) for trial in trials],
            any(trial.target for trial in trials),
        )
        for level, trials in sorted(groups.items())
    )


def _synthetic_power(aa: Sequence[AASample], target: float, judge: _Judge) -> tuple[Power, ...]:
    """What is found where the candidate's A/A samples are multiplied by 1 + level."""
    return tuple(
        _power(
            level,
            [level],
            [judge(trial.samples.scaled(1 + level)) for trial in aa],
            target=level == target,
        )
        for level in (*LEVELS, target)
    )


def _sequential_control(
    sequential: Sequence[tuple[Floats, Floats]], alpha: float
) -> SequentialControl | None:
    """How often Welch's test rejects for one kernel timed A...A B...B."""
    if not sequential:
        return None
    count = sum(welch(a, b).p < alpha for a, b in sequential)
    high = binomial_band(len(sequential), alpha)[1]
    return SequentialControl(share(count, len(sequential)), high, count > high)
