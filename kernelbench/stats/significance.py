"""The tests behind a comparison: sign-flip permutation, Welch's t-test, Holm's correction."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernelbench.stats.blocks import Floats

#: Random sign patterns: enough for the smallest corrected alpha of a family of some 200.
FLIPS = 20_000


@dataclass(frozen=True)
class Welch:
    """Welch's unequal-variance t-test; t is positive where the second sample is slower.

    t and df are None where both samples are constant; p is then 1 if they are equal, else 0.
    """

    t: float | None
    df: float | None
    p: float


def welch(base: ArrayLike, cand: ArrayLike) -> Welch:
    """Welch's t-test on raw times (Welch 1947), by ``scipy.stats.ttest_ind(equal_var=False)``."""
    from scipy import stats

    first, second = (np.asarray(x, dtype=np.float64).ravel() for x in (base, cand))
    if np.ptp(first) == 0 and np.ptp(second) == 0:
        return Welch(None, None, 1.0 if first[0] == second[0] else 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = stats.ttest_ind(second, first, equal_var=False)
    return Welch(float(result.statistic), float(result.df), float(result.pvalue))


def permutation_p(
    differences: ArrayLike, weights: ArrayLike | None = None, *, flips: int = FLIPS, seed: int = 0
) -> tuple[float, float]:
    """Two-sided sign-flip p of the weighted sum of [N] differences, and the smallest p possible.

    Exact over all 2^N sign patterns if these are no more than ``flips``; else ``flips`` random
    patterns, p = (1 + hits) / (1 + flips).

    Args:
        differences: [N], in ln units.
        weights: [N]; equal ones if None.
        flips: Sign patterns, at most.
        seed: Of those that are drawn.
    """
    d = np.asarray(differences, dtype=np.float64)
    values = d / d.size if weights is None else d * np.asarray(weights, dtype=np.float64)
    # Patterns that tie with the one observed must count, whatever the order of summation.
    threshold = abs(values.sum()) - 1e-12 * np.abs(values).sum()
    exact = values.size < 63 and 2**values.size <= flips
    hits = sum(
        int((np.abs(values.sum() - 2.0 * (flipped @ values)) >= threshold).sum())
        for flipped in _flip_chunks(values.size, 2**values.size if exact else flips, seed, exact)
    )
    if exact:
        return hits / 2**values.size, min(1.0, 2.0 / 2**values.size)
    return (1 + hits) / (1 + flips), 1 / (1 + flips)


def _flip_chunks(n: int, count: int, seed: int, exact: bool) -> Iterator[Floats]:
    """Patterns [chunk, N] of 0 (keep) and 1 (flip), ``count`` in all."""
    if exact or n <= 64:
        yield _flips(n, count, seed, exact)
        return
    chunk = max(1, 500_000 // n)
    for start in range(0, count, chunk):
        yield _random_flips(n, min(chunk, count - start), (seed, start))


@functools.lru_cache(maxsize=4)
def _flips(n: int, count: int, seed: int, exact: bool) -> Floats:
    if exact:
        patterns = np.arange(count, dtype=np.int64)[:, None] >> np.arange(n) & 1
        return patterns.astype(np.float64)
    return _random_flips(n, count, (seed, 0))


def _random_flips(n: int, count: int, seed: tuple[int, int]) -> Floats:
    data = np.frombuffer(np.random.default_rng(seed).bytes((n * count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(data)[: n * count].reshape(count, n).astype(np.float64)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values (Holm 1979), in the order given, capped at 1."""
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted
