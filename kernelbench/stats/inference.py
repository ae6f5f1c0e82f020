"""Is the candidate slower, faster or the same: inference from interleaved A/B samples.

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

Families. p-values are Holm-adjusted, so the chance of calling *any* unchanged comparison of the
family FASTER or SLOWER is at most alpha. Intervals are per comparison at 1-alpha, as printed:
the margin is a filter of relevance, not a second null hypothesis of the family. SAME is a
two one-sided test at alpha per comparison (Schuirmann 1987).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from kernelbench.stats.blocks import BlockSamples, Floats, block_differences, block_levels
from kernelbench.stats.significance import (
    FLIPS,
    Welch,
    holm,
    permutation_p,
    welch,
    welch_sequential,
)

__all__ = [
    "ALPHA", "FLIPS", "MARGIN", "TICK_US", "BlockSamples", "Estimate", "Label", "Verdict", "Welch",
    "block_differences", "block_levels", "estimate_change", "family", "holm", "permutation_p",
    "welch", "welch_sequential",
]  # fmt: skip

Label = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]

#: Resolution of CUDA event times on the devices seen so far, in microseconds.
TICK_US = 0.032
MARGIN = 0.005
ALPHA = 0.05
#: tick/t above which a kernel counts as too short for single-launch timing.
TICK_LIMIT = 0.002
#: Largest number of sessions that a next step proposes.
MAX_SESSIONS = 30

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
    """What one comparison found. Differences, errors and intervals are in ln units.

    Attributes:
        delta: ln(candidate / base); positive is slower.
        se: Standard error with its degrees of freedom ``df``.
        ci_lo, ci_hi: 1-alpha interval; ``tost_lo``, ``tost_hi``: the 1-2*alpha interval.
        p: The p-value that decides (of no difference), before the family's correction.
        p_perm: The sign-flip p alone; ``p_floor``: the smallest that this many flips can give.
        rho1: Lag-1 autocorrelation of block differences; ``ess``: effective number of blocks.
        correlated: Whether the error was widened for serial correlation; ``se_iid`` and ``df_iid``
            are what they would be without.
        mde: Smallest difference from zero found with probability 0.8; to be called SLOWER with
            that probability a change must exceed ``margin`` by this much.
        s_d: SD of block differences within sessions.
        base_us, cand_us: Medians of raw reps, microseconds.
        margin: Effective margin as a fraction: the largest of the one asked for, three session SDs
            and one timer tick; ``margin_source`` says which.
        within_session: The estimate speaks of this one process only: one session, spread unknown.
        throttled: So many blocks throttled that they could not be dropped.
    """

    sessions: int
    blocks: int
    dropped: int
    reps: int
    base_us: float
    cand_us: float
    delta: float
    se: float
    df: float
    se_iid: float
    df_iid: float
    alpha: float
    ci_lo: float
    ci_hi: float
    tost_lo: float
    tost_hi: float
    p: float
    p_perm: float
    p_floor: float
    welch: Welch
    s_d: float
    rho1: float
    ess: float
    correlated: bool
    mde: float
    margin: float
    margin_source: Literal["asked", "session spread", "timer tick"]
    tick_fraction: float
    session_sd: float | None
    within_session: bool
    throttled: bool
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

    @property
    def speedup(self) -> float:
        """Base time over candidate time."""
        return math.exp(-self.delta)


@dataclass(frozen=True)
class Verdict:
    """The decision on one comparison of a family.

    Attributes:
        p_holm: The Holm-adjusted p.
        reason: Why it is AMBIGUOUS, or what qualifies the verdict; may be empty.
        next_step: What would settle it, as an option of the command line; may be empty.
    """

    label: Label
    p_holm: float
    reason: str
    next_step: str
    estimate: Estimate

    @property
    def may_be_slower(self) -> bool:
        """Whether it is AMBIGUOUS with a best estimate that no gate should let pass."""
        return self.label == "AMBIGUOUS" and self.estimate.beyond_margin

    def __str__(self) -> str:
        if self.label == "SAME":
            return f"same ±{100 * self.estimate.margin:.2g}"
        return self.label


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
        session_sd: SD of a session's offset of delta (ln units), from ``calibrate``.
        session_df: Degrees of freedom of ``session_total``; None: the spread is exactly known.
        session_total: Variance that ``session_sd`` is the rest of (ln units, squared); None:
            session_sd^2, nothing was subtracted; infinite: not known, as if session_sd were not.
        tick_us: Resolution of one sample in microseconds; for n launches per sample, tick/n.

    Raises:
        ValueError: If there is no session or a parameter is out of range.
    """
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
    kept = [session.without_throttled() for session in sessions]
    data = [samples for samples, _, _ in kept]
    count = len(data)
    d = [block_differences(samples) for samples in data]
    means = np.array([x.mean() for x in d])
    blocks = np.array([x.size for x in d])
    delta = float(means.mean())
    residuals = [x - x.mean() for x in d]
    block_df = float(blocks.sum() - count)
    s_d = math.sqrt(sum(float(e @ e) for e in residuals) / block_df)
    weights = np.concatenate([np.full(x.size, 1.0 / (count * x.size)) for x in d])
    p_perm, p_floor = permutation_p(np.concatenate(d), weights, flips=flips, seed=seed)

    total, per_session = int(blocks.sum()), float(blocks.mean())
    rho1 = _autocorrelation(residuals)
    r = min(0.95, max(0.0, rho1 + (1 + 4 * rho1) / per_session))
    correlated = (
        per_session >= _MIN_BLOCKS_FOR_RHO and rho1 + 1 / per_session > _TAIL_5 / math.sqrt(total)
    )
    ess = total * (1 - r) / (1 + r)
    iid_mean = s_d**2 * float((1 / blocks).mean())  # variance of one session's mean
    block_mean = iid_mean * ((1 + r) / (1 - r) if correlated else 1.0)
    iid_df = block_df
    if correlated:
        block_df = max(2.0, ess - count)

    notes: list[str] = []
    # Variance of session_sd^2, halved; Satterthwaite's degrees of freedom are v^2 / (its sum).
    spread_part = 0.0
    if session_sd is not None and session_df is not None:
        spread_part = max(session_total or 0.0, session_sd**2) ** 2 / session_df
    if session_sd is not None and (session_sd**2 + block_mean) ** 2 < _MIN_DF * spread_part:
        session_sd = None
        notes.append("calibrated spread too uncertain beside this noise: not used")
    between = float(means.var(ddof=1)) if count > 1 else 0.0
    use_between = count > 1 and session_sd is None
    variance, df = _combine(block_mean, block_df, session_sd, spread_part)
    iid, df_iid = _combine(iid_mean, iid_df, session_sd, spread_part)
    if session_sd is not None and count > 1 and variance > 0:
        # The spread of session means is independent of that of the blocks within them.
        use_between = float(special.fdtrc(count - 1, df, between / variance)) < 0.01
        if use_between:
            notes.append(SPREAD_EXCEEDED)
    if use_between:
        variance, iid = max(between, variance), max(between, iid)
        df = df_iid = count - 1.0
    se, se_iid = math.sqrt(variance / count), math.sqrt(iid / count)

    within_session = count == 1 and session_sd is None
    p = p_perm
    if not within_session or correlated:
        p = max(p_perm, _t_test_p(delta, se, df))
    half, half_tost = _half_widths(se, df, alpha)

    base = np.concatenate([samples.base.ravel() for samples in data])
    cand = np.concatenate([samples.cand.ravel() for samples in data])
    base_us = float(np.median(base))
    tick_fraction = tick_us / base_us
    margins: list[tuple[float, Literal["asked", "session spread", "timer tick"]]] = [
        (margin, "asked"),
        (3 * (session_sd or 0.0), "session spread"),
        (tick_fraction, "timer tick"),
    ]
    effective, source = max(margins, key=lambda item: item[0])
    return Estimate(
        sessions=count,
        blocks=total,
        dropped=sum(dropped for _, dropped, _ in kept),
        reps=int(base.size),
        base_us=base_us,
        cand_us=float(np.median(cand)),
        delta=delta,
        se=se,
        df=df,
        se_iid=se_iid,
        df_iid=df_iid,
        alpha=alpha,
        ci_lo=delta - half,
        ci_hi=delta + half,
        tost_lo=delta - half_tost,
        tost_hi=delta + half_tost,
        p=p,
        p_perm=p_perm,
        p_floor=p_floor,
        welch=welch(base, cand),
        s_d=s_d,
        rho1=rho1,
        ess=ess,
        correlated=correlated,
        mde=half + float(special.stdtrit(df, 0.8)) * se,
        margin=effective,
        margin_source=source,
        tick_fraction=tick_fraction,
        session_sd=session_sd,
        within_session=within_session,
        throttled=not all(enough for _, _, enough in kept),
        notes=tuple(notes),
    )


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


def _half_widths(se: float, df: float, alpha: float) -> tuple[float, float]:
    """Half-widths of the 1-alpha and the 1-2*alpha interval."""
    return float(special.stdtrit(df, 1 - alpha / 2)) * se, float(
        special.stdtrit(df, 1 - alpha)
    ) * se


def _t_test_p(delta: float, se: float, df: float) -> float:
    if se == 0:
        return 1.0 if delta == 0 else 0.0
    return float(2 * special.stdtr(df, -abs(delta) / se))


def family(estimates: Sequence[Estimate]) -> list[Verdict]:
    """Decide a family of comparisons together, in the order given.

    With m the effective margin: SLOWER if the Holm-adjusted p is below alpha and the interval lies
    above +m; FASTER likewise below -m; SAME if the 1-2*alpha interval lies within (-m, m);
    else, and where throttled blocks could not be dropped, AMBIGUOUS.

    Raises:
        ValueError: If the estimates were made with different alphas.
    """
    if len({estimate.alpha for estimate in estimates}) > 1:
        raise ValueError("the estimates of one family must share one alpha")
    adjusted = holm([estimate.p for estimate in estimates])
    return [_decide(e, p, len(estimates)) for e, p in zip(estimates, adjusted, strict=True)]


def _decide(e: Estimate, p_holm: float, size: int) -> Verdict:
    bound = math.log1p(e.margin)
    if e.throttled:
        reason = "the device throttled in most blocks"
        return Verdict("AMBIGUOUS", p_holm, reason, "let it cool and rerun, or lock the clock", e)
    label: Label | None = None
    if p_holm < e.alpha and e.ci_lo > bound:
        label = "SLOWER"
    elif p_holm < e.alpha and e.ci_hi < -bound:
        label = "FASTER"
    elif -bound < e.tost_lo and e.tost_hi < bound:
        label = "SAME"
    if label is None:
        return Verdict("AMBIGUOUS", p_holm, *_why_ambiguous(e, p_holm, size), e)
    qualified = e.within_session and label != "SAME"
    return Verdict(
        label,
        p_holm,
        "in this session; spread between sessions unknown" if qualified else "",
        "--sessions 5, or `kernelbench calibrate`" if qualified else "",
        e,
    )


def _why_ambiguous(e: Estimate, p_holm: float, size: int) -> tuple[str, str]:
    """Reason and next step; the first that applies, from the measurement's faults outwards."""
    bound = math.log1p(e.margin)
    if e.margin_source == "timer tick" and e.tick_fraction > TICK_LIMIT:
        batch = math.ceil(e.tick_fraction / TICK_LIMIT)
        return f"tick/t {100 * e.tick_fraction:.1f}%", f"--batch {batch} (timer-limited)"
    excludes = e.ci_lo > bound or e.ci_hi < -bound
    if excludes and e.p_floor * size >= e.alpha:
        limit = f"{e.blocks} blocks give no p below {e.p_floor:.2g}, {size} comparisons need less"
        return limit, "more --reps, or compare fewer at a time"
    more = _sessions_needed(e, bound)
    if e.correlated:
        half, half_tost = _half_widths(e.se_iid, e.df_iid, e.alpha)
        lo, hi = e.delta - half, e.delta + half
        tost_lo, tost_hi = e.delta - half_tost, e.delta + half_tost
        if lo > bound or hi < -bound or (-bound < tost_lo and tost_hi < bound):
            return f"blocks correlated, rho1 {e.rho1:+.2f}", more
    if excludes:
        return f"not significant among {size} comparisons (p {p_holm:.2g})", more
    if e.sessions > 1 and e.session_sd is None:
        return f"{e.sessions} sessions, spread uncalibrated", "`kernelbench calibrate`, or " + more
    if SPREAD_EXCEEDED in e.notes:
        return SPREAD_EXCEEDED, "`kernelbench calibrate` anew, or " + more
    where = "straddles" if e.ci_lo <= bound <= e.ci_hi or e.ci_lo <= -bound <= e.ci_hi else "nears"
    return f"interval {where} the margin ±{100 * e.margin:.2g}%", more


def _sessions_needed(e: Estimate, bound: float) -> str:
    """The number of sessions after which the interval would clear the nearer margin."""
    gap = abs(abs(e.delta) - bound)
    half = (e.ci_hi - e.ci_lo) / 2
    needed = math.ceil(e.sessions * (1.2 * half / gap) ** 2) if gap > 0 else MAX_SESSIONS + 1
    if needed > MAX_SESSIONS:
        return f"--sessions {MAX_SESSIONS} or a wider --margin: this one is finer than the noise"
    return f"--sessions {max(needed, 2 * e.sessions, 5)}"
