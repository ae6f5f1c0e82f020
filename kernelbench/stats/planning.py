"""How many sessions a comparison takes to find a change of a given size."""

from __future__ import annotations

import math

from scipy import special

from kernelbench.stats.inference import MAX_SESSIONS

__all__ = ["power_of", "sessions_needed"]


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
