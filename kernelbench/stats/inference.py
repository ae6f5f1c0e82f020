"""Is the candidate slower, faster or the same: verdicts on a family of estimates.

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

from kernelbench.stats.estimate import SPREAD_EXCEEDED, Estimate, half_widths
from kernelbench.stats.significance import holm

Label = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]

#: tick/t above which a kernel counts as too short for single-launch timing.
TICK_LIMIT = 0.002
#: Largest number of sessions that a next step proposes.
MAX_SESSIONS = 30


@dataclass(frozen=True)
class Verdict:
    """The decision on one comparison of a family."""

    label: Label
    p_holm: float  #: The Holm-adjusted p.
    reason: str  #: Why it is AMBIGUOUS, or what qualifies the verdict; may be empty.
    next_step: str  #: What would settle it, as an option of the command line; may be empty.
    estimate: Estimate

    @property
    def may_be_slower(self) -> bool:
        """Whether it is AMBIGUOUS with a best estimate that no gate should let pass."""
        return self.label == "AMBIGUOUS" and self.estimate.beyond_margin

    def __str__(self) -> str:
        if self.label == "SAME":
            return f"same ±{100 * self.estimate.margin:.2g}"
        return self.label


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
        half, half_tost = half_widths(e.se_iid, e.df_iid, e.alpha)
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
