"""How much slower or faster the candidate is: an estimate from interleaved A/B samples.

One comparison is one or more *sessions* (fresh processes); a session is K blocks, each holding R
reps of both arms in randomized ABBA quads. Drift is common to both arms of a block, so the block
difference is the unit of inference, never the single rep:

* y = ln t; a block's level is the 20 % trimmed mean of y (each tail cut; robust to spikes, and
  unlike the median not held to the timer's grid); d_k = level of candidate - level of base.
* delta is the mean over sessions of the mean d_k; exp(-delta) is the speedup.
* The decisive p is that of a sign-flip permutation of d_k (Fisher 1935, section 21): exact when all
  flips can be listed, else by seeded random flips with the +1 correction (Phipson & Smyth 2010).
* Several sessions, a known session spread or correlated blocks widen the standard error beyond
  what flips can see; then p is the larger of the permutation p and the t-test's p with that error.

Welch's t-test on all raw reps (microseconds, not logarithms) is computed beside it because most
published comparisons use it. It is conservative on interleaved samples, wrong on sequential ones.

Serial correlation of d. Calling every |rho1| > 2/sqrt(K) ambiguous would reject some 5 % of clean
comparisons. Instead: only positive correlation makes the test too eager; when it is significant
(one-sided 5 %), the block part of the variance is multiplied by (1+r)/(1-r), r being rho1 with the
small-sample bias -(1+4 rho)/K removed (Kendall 1954, Marriott & Pope 1954), and the degrees of
freedom follow the effective sample size. The verdict becomes AMBIGUOUS only where that undoes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from kernelbench.stats.blocks import BlockSamples, Floats, block_differences
from kernelbench.stats.defaults import ALPHA, MARGIN, TICK_US
from kernelbench.stats.significance import FLIPS, Welch, permutation_p, welch

SPREAD_EXCEEDED = "sessions differ by more than calibrated"

_MAX_DF = 1e9
#: With fewer, a calibrated spread is mostly the uncertainty of what was subtracted from it.
_MIN_DF = 3.0
#: Where intervals end that too few sessions leave practically unbounded, in ln units.
_CI_LIMIT = 10.0
_MIN_BLOCKS_FOR_RHO = 8
_TAIL_5 = 1.6448536269514722


@dataclass(frozen=True)
class Estimate:
    """What one comparison found. Differences, errors and intervals are in ln units."""

    sessions: int
    blocks: int
    dropped: int
    reps: int
    #: ``base_us``, ``cand_us``: Medians of raw reps, microseconds.
    base_us: float
    cand_us: float
    delta: float  #: ln(candidate / base); positive is slower.
    se: float  #: Standard error with its degrees of freedom ``df``.
    df: float
    se_iid: float
    df_iid: float
    alpha: float
    #: ``ci_lo``, ``ci_hi``: 1-alpha interval; ``tost_lo``, ``tost_hi``: the 1-2*alpha interval.
    ci_lo: float
    ci_hi: float
    tost_lo: float
    tost_hi: float
    p: float  #: The p-value that decides (of no difference), before the family's correction.
    p_perm: float  #: The sign-flip p alone.
    p_floor: float  #: The smallest that this many flips can give.
    welch: Welch
    s_d: float  #: SD of block differences within sessions.
    rho1: float  #: Lag-1 autocorrelation of block differences.
    ess: float  #: Effective number of blocks.
    #: Whether the error was widened for serial correlation; ``se_iid`` and ``df_iid`` are what they
    #: would be without.
    correlated: bool
    #: Smallest difference from zero found with probability 0.8; to be called SLOWER with that
    #: probability a change must exceed ``margin`` by this much.
    mde: float
    #: Effective margin as a fraction: the largest of the one asked for, three session SDs and one
    #: timer tick; ``margin_source`` says which.
    margin: float
    margin_source: Literal["asked", "session spread", "timer tick"]
    tick_fraction: float
    session_sd: float | None
    #: The estimate speaks of this one process only: one session, spread unknown.
    within_session: bool
    throttled: bool  #: So many blocks throttled that they could not be dropped.
    notes: tuple[str, ...] = ()

    @property
    def change(self) -> float:
        """Change of time as a fraction: +0.02 is 2 % slower."""
        return math.expm1(self.delta)

    @property
    def beyond_margin(self) -> bool:
        """Whether more is lost than the margin, as the best estimate has it."""
        return self.change > self.margin

    @property
    def change_ci(self) -> tuple[float, float]:
        """The 1-alpha interval of :attr:`change`, ended at a factor of e**10 either way."""
        lo, hi = (
            math.expm1(min(_CI_LIMIT, max(-_CI_LIMIT, bound))) for bound in (self.ci_lo, self.ci_hi)
        )
        return lo, hi


def _autocorrelation(residuals: Sequence[Floats]) -> float:
    power = sum(float(e @ e) for e in residuals)
    return sum(float(e[:-1] @ e[1:]) for e in residuals) / power if power > 0 else 0.0


def estimate_change(
    sessions: Sequence[BlockSamples],
    *,
    margin: float = MARGIN,
    alpha: float = ALPHA,
    session_sd: float | None = None,
    session_df: float | None = None,
    session_total: float | None = None,
    tick_us: float = TICK_US,
    flips: int = FLIPS,
    seed: int = 0,
) -> Estimate:
    """Estimate ln(candidate / base) from one or more sessions.

    The squared standard error, with S sessions of K blocks:

    * ``session_sd`` known: session_sd^2/S + s_d^2/(S K), degrees of freedom by Satterthwaite. The
      spread is what was left of ``session_total`` when the calibration's block noise was taken
      off, so its variance is 2 session_total^2/session_df however little was left, also nothing.
      Where that alone leaves under three degrees of freedom (this comparison is much quieter than
      the calibration, which cannot see so small a spread), as if unknown, and noted. If the
      sessions differ by more than that explains (F test, 1 %), their own spread is used as in the
      next case, and noted.
    * unknown, S >= 2: the larger of the variance of session means over S and s_d^2/(S K), with
      S-1 degrees of freedom: valid for any spread, at the price of power. Calibrate to win it back.
    * unknown, S = 1: s_d^2/K with K-1; the estimate is flagged ``within_session``.

    Args:
        sessions: One BlockSamples per fresh process.
        margin: Change, as a fraction, below which nobody cares.
        alpha: Level of the tests.
        session_sd: SD of a session's offset of delta (ln units), from ``calibrate``.
        session_df: Degrees of freedom of ``session_total``; None: the spread is exactly known.
        session_total: Variance that ``session_sd`` is the rest of (ln units, squared); None:
            session_sd^2, nothing was subtracted; infinite: not known, as if session_sd were not.
        tick_us: Resolution of one sample in microseconds; for n launches per sample, tick/n.
        flips: Sign patterns of the permutation test, at most.
        seed: Of those that are drawn.

    Raises:
        ValueError: If there is no session or a parameter is out of range.
    """
    _require_in_range(
        sessions, margin, alpha, session_sd, session_df, session_total, tick_us, flips
    )
    kept = [session.without_throttled() for session in sessions]
    data = [samples for samples, _, _ in kept]
    count = len(data)
    d = [block_differences(samples) for samples in data]
    means = np.array([x.mean() for x in d])
    blocks = np.array([x.size for x in d])
    delta = float(means.mean())
    noise = _block_noise(d, means, blocks)
    weights = np.concatenate([np.full(x.size, 1.0 / (count * x.size)) for x in d])
    p_perm, p_floor = permutation_p(np.concatenate(d), weights, flips=flips, seed=seed)
    error = _standard_error(means, noise, session_sd, session_df, session_total)

    within_session = count == 1 and error.session_sd is None
    p = p_perm
    if not within_session or noise.correlated:
        p = max(p_perm, _t_test_p(delta, error.se, error.df))
    half, half_tost = half_widths(error.se, error.df, alpha)

    base = np.concatenate([samples.base.ravel() for samples in data])
    cand = np.concatenate([samples.cand.ravel() for samples in data])
    base_us = float(np.median(base))
    tick_fraction = tick_us / base_us
    margins: list[tuple[float, Literal["asked", "session spread", "timer tick"]]] = [
        (margin, "asked"),
        (3 * (error.session_sd or 0.0), "session spread"),
        (tick_fraction, "timer tick"),
    ]
    effective, source = max(margins, key=lambda item: item[0])
    return Estimate(
        sessions=count,
        blocks=int(blocks.sum()),
        dropped=sum(dropped for _, dropped, _ in kept),
        reps=int(base.size),
        base_us=base_us,
        cand_us=float(np.median(cand)),
        delta=delta,
        se=error.se,
        df=error.df,
        se_iid=error.se_iid,
        df_iid=error.df_iid,
        alpha=alpha,
        ci_lo=delta - half,
        ci_hi=delta + half,
        tost_lo=delta - half_tost,
        tost_hi=delta + half_tost,
        p=p,
        p_perm=p_perm,
        p_floor=p_floor,
        welch=welch(base, cand),
        s_d=noise.s_d,
        rho1=noise.rho1,
        ess=noise.ess,
        correlated=noise.correlated,
        mde=half + float(special.stdtrit(error.df, 0.8)) * error.se,
        margin=effective,
        margin_source=source,
        tick_fraction=tick_fraction,
        session_sd=error.session_sd,
        within_session=within_session,
        throttled=not all(enough for _, _, enough in kept),
        notes=error.notes,
    )


def _require_in_range(
    sessions: Sequence[BlockSamples],
    margin: float,
    alpha: float,
    session_sd: float | None,
    session_df: float | None,
    session_total: float | None,
    tick_us: float,
    flips: int,
) -> None:
    if not sessions:
        raise ValueError("no sessions to compare")
    if not (0 < alpha < 0.5 and margin >= 0 and tick_us >= 0 and flips >= 1):
        raise ValueError("alpha must be in (0, 0.5), margin and tick_us >= 0, flips >= 1")
    if session_sd is not None and not (math.isfinite(session_sd) and session_sd >= 0):
        raise ValueError("session_sd must be finite and >= 0")
    if session_df is not None and not session_df > 0:
        raise ValueError("session_df must be positive")
    if session_total is not None and not session_total >= 0:
        raise ValueError("session_total must be >= 0")


@dataclass(frozen=True)
class _BlockNoise:
    """How block differences scatter within sessions."""

    s_d: float
    rho1: float
    ess: float
    correlated: bool
    #: Variance of one session's mean, widened if ``correlated``; ``df`` its degrees of freedom;
    #: ``iid_mean`` and ``iid_df`` are what they would be without.
    mean: float
    df: float
    iid_mean: float
    iid_df: float


def _block_noise(d: Sequence[Floats], means: Floats, blocks: Floats) -> _BlockNoise:
    residuals = [x - mean for x, mean in zip(d, means, strict=True)]
    total, count = int(blocks.sum()), len(d)
    df = float(total - count)
    s_d = math.sqrt(sum(float(e @ e) for e in residuals) / df)
    per_session = float(blocks.mean())
    rho1 = _autocorrelation(residuals)
    r = min(0.95, max(0.0, rho1 + (1 + 4 * rho1) / per_session))
    correlated = (
        per_session >= _MIN_BLOCKS_FOR_RHO and rho1 + 1 / per_session > _TAIL_5 / math.sqrt(total)
    )
    ess = total * (1 - r) / (1 + r)
    iid_mean = s_d**2 * float((1 / blocks).mean())
    if not correlated:
        return _BlockNoise(s_d, rho1, ess, correlated, iid_mean, df, iid_mean, df)
    widened = iid_mean * ((1 + r) / (1 - r))
    return _BlockNoise(s_d, rho1, ess, correlated, widened, max(2.0, ess - count), iid_mean, df)


@dataclass(frozen=True)
class _StandardError:
    """The error of delta; ``session_sd`` is None where the calibrated one is not used."""

    se: float
    df: float
    se_iid: float
    df_iid: float
    session_sd: float | None
    notes: tuple[str, ...]


def _standard_error(
    means: Floats,
    noise: _BlockNoise,
    session_sd: float | None,
    session_df: float | None,
    session_total: float | None,
) -> _StandardError:
    count = len(means)
    notes: list[str] = []
    # Variance of session_sd^2, halved; Satterthwaite's degrees of freedom are v^2 / (its sum).
    spread_part = 0.0
    if session_sd is not None and session_df is not None:
        spread_part = max(session_total or 0.0, session_sd**2) ** 2 / session_df
    if session_sd is not None and (session_sd**2 + noise.mean) ** 2 < _MIN_DF * spread_part:
        session_sd = None
        notes.append("calibrated spread too uncertain beside this noise: not used")
    between = float(means.var(ddof=1)) if count > 1 else 0.0
    use_between = count > 1 and session_sd is None
    variance, df = _combine(noise.mean, noise.df, session_sd, spread_part)
    iid, df_iid = _combine(noise.iid_mean, noise.iid_df, session_sd, spread_part)
    if session_sd is not None and count > 1 and variance > 0:
        # The spread of session means is independent of that of the blocks within them.
        use_between = float(special.fdtrc(count - 1, df, between / variance)) < 0.01
        if use_between:
            notes.append(SPREAD_EXCEEDED)
    if use_between:
        variance, iid = max(between, variance), max(between, iid)
        df = df_iid = count - 1.0
    se, se_iid = math.sqrt(variance / count), math.sqrt(iid / count)
    return _StandardError(se, df, se_iid, df_iid, session_sd, tuple(notes))


def _combine(
    block: float, block_df: float, session_sd: float | None, spread_part: float
) -> tuple[float, float]:
    """Variance of one session's mean and its degrees of freedom (Satterthwaite 1946).

    Both parts count once for every session, so the number of sessions cancels.
    """
    if session_sd is None:
        return block, block_df
    parts = block**2 / block_df + spread_part
    variance = session_sd**2 + block
    return variance, min(_MAX_DF, variance**2 / parts) if parts > 0 else _MAX_DF


def half_widths(se: float, df: float, alpha: float) -> tuple[float, float]:
    """Half-widths of the 1-alpha and the 1-2*alpha interval.

    Args:
        se: Standard error.
        df: Its degrees of freedom.
        alpha: Level of the tests.
    """
    return float(special.stdtrit(df, 1 - alpha / 2)) * se, float(
        special.stdtrit(df, 1 - alpha)
    ) * se


def _t_test_p(delta: float, se: float, df: float) -> float:
    if se == 0:
        return 1.0 if delta == 0 else 0.0
    return float(2 * special.stdtr(df, -abs(delta) / se))
