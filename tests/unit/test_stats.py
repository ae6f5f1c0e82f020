"""The statistics of comparisons, held against simulations with fixed seeds."""

from __future__ import annotations

import dataclasses
import math
from itertools import product

import numpy as np
import pytest
from scipy import stats as scipy_stats

from kernelbench.stats.blocks import BlockSamples, block_levels
from kernelbench.stats.calibration import session_spread
from kernelbench.stats.estimate import Estimate, estimate_change
from kernelbench.stats.inference import family
from kernelbench.stats.significance import holm, permutation_p, welch

K, R = 25, 20
FEW_FLIPS = 1999


def drift(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """ln t of n consecutive launches of one kernel."""
    noise = rng.normal(0, 0.003, n)
    if kind == "ar":
        steps = noise * math.sqrt(1 - 0.95**2)
        out = np.empty(n)
        out[0] = noise[0]
        for i in range(1, n):
            out[i] = 0.95 * out[i - 1] + steps[i]
        return out
    if kind == "ramp":
        return noise + np.linspace(0, 0.01, n)
    if kind == "walk":
        return noise + np.cumsum(rng.normal(0, 0.005 / math.sqrt(n), n))
    if kind == "clock steps":
        return noise + 0.015 * (np.cumsum(rng.random(n) < 4 / n) % 2)
    assert kind == "iid"
    return noise


def abba(
    kind: str, rng: np.random.Generator, change: float = 0.0, blocks: int = K, reps: int = R
) -> BlockSamples:
    """A session measured in randomized ABBA quads."""
    y = drift(kind, 2 * blocks * reps, rng).reshape(blocks, reps // 2, 4)
    coin = rng.random((blocks, reps // 2, 1)) < 0.5
    arm = np.where(coin, [0, 1, 1, 0], [1, 0, 0, 1])
    base, cand = y[arm == 0].reshape(blocks, reps), y[arm == 1].reshape(blocks, reps)
    return BlockSamples(40 * np.exp(base), 40 * (1 + change) * np.exp(cand))


def binomial_bounds(n: int, rate: float = 0.05, mass: float = 0.999) -> tuple[int, int]:
    low, high = scipy_stats.binom.interval(mass, n, rate)
    return int(low), int(high)


def only(estimate: Estimate) -> str:
    return family([estimate])[0].label


# -- false positives under drift


@pytest.mark.parametrize("kind", ["iid", "ar", "ramp", "walk", "clock steps"])
def test_paired_blocks_keep_alpha_under_drift(kind: str) -> None:
    rng = np.random.default_rng(11)
    n = 500
    estimates = [estimate_change([abba(kind, rng)], flips=FEW_FLIPS) for _ in range(n)]
    low, high = binomial_bounds(n)
    assert low <= sum(e.p_perm < 0.05 for e in estimates) <= high
    assert low <= sum(e.ci_lo > 0 or e.ci_hi < 0 for e in estimates) <= high
    # p also takes in the correction for correlated blocks, which may only lower the count.
    assert sum(e.p < 0.05 for e in estimates) <= high


@pytest.mark.parametrize(
    ("kind", "at_least"), [("ar", 0.5), ("ramp", 0.99), ("walk", 0.7), ("clock steps", 0.7)]
)
def test_welch_on_sequential_data_is_fooled_by_drift(kind: str, at_least: float) -> None:
    rng = np.random.default_rng(12)
    times = [np.exp(drift(kind, 2 * K * R, rng)) for _ in range(100)]
    rejected = sum(welch(t[: K * R], t[K * R :]).p < 0.05 for t in times)
    assert rejected >= at_least * 100


def test_welch_on_interleaved_data_is_conservative_under_clock_steps() -> None:
    rng = np.random.default_rng(13)
    estimates = [
        estimate_change([abba("clock steps", rng, 0.001)], flips=FEW_FLIPS) for _ in range(200)
    ]
    paired = sum(e.p < 0.05 for e in estimates)
    assert paired >= 170
    assert sum(e.welch.p < 0.05 for e in estimates) < paired - 20


# -- serial correlation of block differences


def correlated(rho: float, rng: np.random.Generator) -> BlockSamples:
    d = np.empty(K)
    d[0] = rng.normal()
    for k in range(1, K):
        d[k] = rho * d[k - 1] + math.sqrt(1 - rho**2) * rng.normal()
    return BlockSamples(np.full((K, 1), 40.0), 40 * np.exp(0.001 * d[:, None]))


def test_correlated_blocks_are_noticed_and_widen_the_error() -> None:
    rng = np.random.default_rng(14)
    estimates = [estimate_change([correlated(0.7, rng)], flips=FEW_FLIPS) for _ in range(300)]
    assert sum(e.correlated for e in estimates) > 240
    assert all(e.se > e.se_iid and e.p >= e.p_perm for e in estimates if e.correlated)
    naive = sum(e.p_perm < 0.05 for e in estimates) / 300
    corrected = sum(e.p < 0.05 for e in estimates) / 300
    assert naive > 0.3
    assert corrected < 0.15


def test_clean_blocks_are_seldom_called_correlated_and_the_verdict_survives() -> None:
    rng = np.random.default_rng(15)
    estimates = [estimate_change([abba("iid", rng, 0.02)], flips=FEW_FLIPS) for _ in range(200)]
    flagged = [e for e in estimates if e.correlated]
    assert 0 < len(flagged) < 30
    assert {only(e) for e in flagged} == {"SLOWER"}


def test_correlation_that_decides_makes_the_verdict_ambiguous() -> None:
    slow_wave = 0.006 + 0.002 * np.sin(np.arange(K) * 2 * np.pi / K) / math.sqrt(0.5)
    noise = np.random.default_rng(16).normal(0, 1e-4, K)
    cand = 40 * np.exp((slow_wave + noise)[:, None])
    verdict = family([estimate_change([BlockSamples(np.full((K, 1), 40.0), cand)], margin=0.005)])[
        0
    ]
    assert verdict.label == "AMBIGUOUS"
    assert "correlated" in verdict.reason
    assert "--sessions" in verdict.next_step


# -- sessions


def sessions(count: int, rng: np.random.Generator, sd: float = 0.003) -> list[BlockSamples]:
    return [abba("iid", rng, math.expm1(rng.normal(0, sd))) for _ in range(count)]


def test_one_session_mistakes_its_offset_for_a_difference() -> None:
    rng = np.random.default_rng(17)
    estimates = [estimate_change(sessions(1, rng), flips=FEW_FLIPS) for _ in range(200)]
    assert all(e.within_session for e in estimates)
    assert sum(e.p < 0.05 for e in estimates) > 100


@pytest.mark.parametrize(
    ("sd", "df", "count"), [(0.003, 39.0, 1), (0.003, 39.0, 3), (None, None, 3)]
)
def test_the_spread_of_sessions_restores_alpha(
    sd: float | None, df: float | None, count: int
) -> None:
    rng = np.random.default_rng(18)
    n = 400
    estimates = []
    for _ in range(n):
        estimated = None if sd is None or df is None else sd * math.sqrt(rng.chisquare(df) / df)
        estimates.append(
            estimate_change(
                sessions(count, rng), session_sd=estimated, session_df=df, flips=FEW_FLIPS
            )
        )
    low, high = binomial_bounds(n)
    assert low <= sum(e.ci_lo > 0 or e.ci_hi < 0 for e in estimates) <= high
    assert sum(e.p < 0.05 for e in estimates) <= high


def test_known_spread_gives_the_documented_standard_error() -> None:
    rng = np.random.default_rng(19)
    data = [abba("iid", rng, 0.02) for _ in range(5)]
    e = estimate_change(data, session_sd=0.003, session_df=39)
    assert e.se == pytest.approx(math.sqrt(0.003**2 / 5 + e.s_d**2 / (5 * K)), rel=1e-12)
    assert 39 < e.df < 60
    assert e.mde == pytest.approx(
        (scipy_stats.t.ppf(0.975, e.df) + scipy_stats.t.ppf(0.8, e.df)) * e.se, rel=1e-6
    )
    assert e.margin == pytest.approx(0.009)
    assert e.margin_source == "session spread"


def test_sessions_that_differ_more_than_calibrated_use_their_own_spread() -> None:
    rng = np.random.default_rng(20)
    data = [abba("iid", rng, change) for change in (-0.03, 0.0, 0.03)]
    e = estimate_change(data, session_sd=0.001, session_df=39)
    assert e.notes == ("sessions differ by more than calibrated",)
    assert e.df == 2
    assert only(e) == "AMBIGUOUS"


# -- single estimate


def test_single_session_is_the_paired_t_interval() -> None:
    session = abba("iid", np.random.default_rng(21), 0.01)
    e = estimate_change([session])
    d = block_levels(session.cand) - block_levels(session.base)
    expected = scipy_stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert (e.ci_lo, e.ci_hi) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert e.p == e.p_perm
    reference = scipy_stats.ttest_ind(session.cand.ravel(), session.base.ravel(), equal_var=False)
    assert (e.welch.t, e.welch.df, e.welch.p) == pytest.approx(
        (reference.statistic, reference.df, reference.pvalue)
    )


def test_block_level_is_the_trimmed_mean_of_logarithms() -> None:
    times = np.random.default_rng(22).lognormal(3, 0.1, (4, R))
    expected = scipy_stats.trim_mean(np.log(times), 0.2, axis=1)
    assert block_levels(times) == pytest.approx(expected)


def test_spikes_cost_no_power() -> None:
    rng = np.random.default_rng(23)
    found = welch_found = mean_found = 0
    for _ in range(100):
        clean = abba("iid", rng, 0.001)
        arms = []
        for times in (clean.base, clean.cand):
            arms.append(times * np.where(rng.random(times.shape) < 0.01, 1.5, 1.0))
        e = estimate_change([BlockSamples(*arms)], flips=FEW_FLIPS)
        plain = np.log(arms[1]).mean(axis=1) - np.log(arms[0]).mean(axis=1)
        found += e.p < 0.05
        welch_found += e.welch.p < 0.05
        mean_found += scipy_stats.ttest_1samp(plain, 0).pvalue < 0.05
    assert found > 90
    assert welch_found < 30
    assert mean_found < 30


def test_permutation_is_exact_for_few_blocks() -> None:
    d = np.array([0.3, -0.1, 0.2, 0.5, 0.05])
    sums = [abs(np.dot(signs, d)) for signs in product((1, -1), repeat=5)]
    expected = sum(total >= abs(d.sum()) - 1e-12 for total in sums) / 32
    assert permutation_p(d) == (expected, 2 / 32)


def test_random_permutations_agree_with_the_exact_p_and_with_themselves() -> None:
    d = np.random.default_rng(24).normal(0.4, 1, 14)
    exact, _ = permutation_p(d, flips=2**14)
    drawn, floor = permutation_p(d, flips=2**14 - 1)
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact / 2**14))
    assert floor == 1 / 2**14
    assert permutation_p(d, flips=5000) == permutation_p(d, flips=5000)
    assert permutation_p(np.ones(25)) == (1 / 20_001, 1 / 20_001)
    many = np.random.default_rng(25).normal(0.1, 1, 125)
    p, _ = permutation_p(many)
    assert p == pytest.approx(scipy_stats.ttest_1samp(many, 0).pvalue, abs=0.02)


def test_constant_times_do_not_divide_by_zero() -> None:
    flat = np.full((K, R), 40.0)
    same = estimate_change([BlockSamples(flat, flat)])
    assert (same.p, same.delta, same.welch.p) == (1.0, 0.0, 1.0)
    assert only(same) == "SAME"
    slower = estimate_change([BlockSamples(flat, flat * 1.02)])
    assert slower.welch.p == 0.0
    assert only(slower) == "SLOWER"


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("arm", ["base", "cand"])
def test_impossible_samples_are_refused(bad: float, arm: str) -> None:
    arms = {"base": np.full((K, R), 40.0), "cand": np.full((K, R), 40.0)}
    arms[arm][3, 4] = bad
    with pytest.raises(ValueError, match=arm):
        BlockSamples(**arms)


def test_shapes_and_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="alike"):
        BlockSamples(np.ones((3, 4)), np.ones((3, 5)))
    with pytest.raises(ValueError, match="alike"):
        BlockSamples(np.ones((1, 4)), np.ones((1, 4)))
    with pytest.raises(ValueError, match="throttled"):
        BlockSamples(np.ones((3, 4)), np.ones((3, 4)), np.zeros(4, dtype=bool))
    with pytest.raises(ValueError, match="no sessions"):
        estimate_change([])
    for total in (-1.0, math.nan):
        with pytest.raises(ValueError, match="session_total"):
            estimate_change([BlockSamples(np.ones((3, 4)), np.ones((3, 4)))], session_total=total)
    with pytest.raises(ValueError, match="session_df"):
        estimate_change(
            [BlockSamples(np.ones((3, 4)), np.ones((3, 4)))], session_sd=0.1, session_df=0
        )


def test_throttled_blocks_go_whole() -> None:
    session = abba("iid", np.random.default_rng(26))
    base, cand = session.base.copy(), session.cand.copy()
    cand[:4] *= 1.5
    flags = np.arange(K) < 4
    e = estimate_change([BlockSamples(base, cand, flags)])
    assert (e.blocks, e.dropped, e.reps) == (21, 4, 21 * R)
    assert only(e) == "SAME"
    assert e == dataclasses.replace(estimate_change([BlockSamples(base[4:], cand[4:])]), dropped=4)
    hot = family([estimate_change([BlockSamples(base, cand, np.arange(K) < 20)])])[0]
    assert hot.label == "AMBIGUOUS"
    assert "throttled" in hot.reason


# -- verdicts and families


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_controls_the_family() -> None:
    rng = np.random.default_rng(27)
    wrong = uncorrected = 0
    families, size = 40, 92
    for _ in range(families):
        batch = [
            estimate_change([abba("iid", rng, blocks=12, reps=4)], margin=0.0, tick_us=0.0)
            for _ in range(size)
        ]
        wrong += any(v.label in ("FASTER", "SLOWER") for v in family(batch))
        uncorrected += any(e.p < 0.05 for e in batch)
    assert uncorrected >= 36
    assert wrong <= binomial_bounds(families)[1]


@pytest.mark.parametrize(
    ("change", "label"), [(0.01, "SLOWER"), (0.02, "SLOWER"), (-0.01, "FASTER"), (0.0, "SAME")]
)
def test_clear_changes_get_their_label(change: float, label: str) -> None:
    rng = np.random.default_rng(28)
    labels = [
        only(estimate_change([abba("walk", rng, change)], flips=FEW_FLIPS)) for _ in range(100)
    ]
    assert labels.count(label) >= 98


def test_margin_plus_two_mde_is_found() -> None:
    rng = np.random.default_rng(29)
    typical = estimate_change([abba("iid", rng)])
    change = math.expm1(math.log1p(typical.margin) + 2 * typical.mde)
    labels = [
        only(estimate_change([abba("iid", rng, change)], flips=FEW_FLIPS)) for _ in range(100)
    ]
    assert labels.count("SLOWER") >= 95


def test_a_change_at_the_margin_is_seldom_called() -> None:
    """Neither SAME nor SLOWER may be claimed more often than alpha of the change being m."""
    rng = np.random.default_rng(30)
    n = 300
    labels = [only(estimate_change([abba("iid", rng, 0.005)], flips=FEW_FLIPS)) for _ in range(n)]
    assert labels.count("SAME") <= binomial_bounds(n)[1]
    assert labels.count("SLOWER") <= binomial_bounds(n, 0.025)[1]


def test_short_kernels_are_called_timer_limited() -> None:
    rng = np.random.default_rng(31)
    t = 2.4 * np.exp(rng.normal(0, 0.004, (2, K, R)))
    t[1] *= 1.013
    ticked = np.round(t / 0.032) * 0.032
    verdict = family([estimate_change([BlockSamples(*ticked)])])[0]
    assert verdict.estimate.margin_source == "timer tick"
    assert verdict.label == "AMBIGUOUS"
    assert verdict.reason.startswith("tick/t 1.3%")
    assert verdict.next_step == "--batch 7 (timer-limited)"


def test_too_few_blocks_for_the_family_says_so() -> None:
    rng = np.random.default_rng(32)
    batch = [estimate_change([abba("iid", rng, 0.05, blocks=5)])]
    verdict = family(batch)[0]
    assert verdict.label == "AMBIGUOUS"
    assert "5 blocks" in verdict.reason


def test_significant_alone_but_not_in_the_family() -> None:
    rng = np.random.default_rng(33)
    d = np.random.default_rng(34).normal(0, 1, K)
    d = (d - d.mean()) / d.std(ddof=1)
    cand = 40 * np.exp(0.0061 + 0.0025 * d)[:, None]
    lone = estimate_change([BlockSamples(np.full((K, 1), 40.0), cand)], margin=0.0, tick_us=0.0)
    assert only(lone) == "SLOWER"
    weak = estimate_change(
        [BlockSamples(np.full((K, 1), 40.0), 40 * np.exp(0.0013 + 0.0025 * d)[:, None])],
        margin=0.0,
        tick_us=0.0,
    )
    assert only(weak) == "SLOWER"
    others = [estimate_change([abba("iid", rng)], margin=0.0, tick_us=0.0) for _ in range(30)]
    verdict = family([weak, *others])[0]
    assert verdict.label == "AMBIGUOUS"
    assert "among 31 comparisons" in verdict.reason


def test_verdict_of_one_session_is_qualified() -> None:
    verdict = family([estimate_change([abba("iid", np.random.default_rng(35), 0.02)])])[0]
    assert verdict.label == "SLOWER"
    assert "in this session" in verdict.reason
    assert "calibrate" in verdict.next_step


def test_one_alpha_per_family() -> None:
    session = abba("iid", np.random.default_rng(36))
    with pytest.raises(ValueError, match="alpha"):
        family([estimate_change([session]), estimate_change([session], alpha=0.01)])


def test_signs_point_the_right_way() -> None:
    session = abba("iid", np.random.default_rng(37), 0.02)
    e = estimate_change([session])
    assert e.change == pytest.approx(0.02, abs=0.001)
    assert e.cand_us > e.base_us
    assert e.welch.t is not None and e.welch.t > 0
    assert estimate_change([BlockSamples(session.cand, session.base)]).delta == pytest.approx(
        -e.delta
    )
    assert welch(session.base, session.base * 1.0).p == 1.0
    assert session.scaled(0.5).cand == pytest.approx(session.cand / 2)


def test_a_calibrated_spread_that_is_all_uncertainty_is_not_used() -> None:
    rng = np.random.default_rng(11)
    sessions = [
        BlockSamples(*(100 * np.exp(1e-4 * rng.standard_normal((25, 20))) for _ in range(2)))
        for _ in range(3)
    ]
    # As calibrated on a kernel ten times noisier: hardly any excess, hardly any degree of freedom.
    estimate = estimate_change(sessions, session_sd=9e-5, session_df=0.0019)
    assert estimate.session_sd is None
    assert any("too uncertain" in note for note in estimate.notes)
    assert estimate.df == 2
    known = estimate_change(sessions, session_sd=9e-5, session_df=39.0)
    assert known.session_sd == 9e-5
    # The same calibration as it is now handed over, and an old record that does not tell.
    for sd, total in ((9e-5, 1.2e-6), (0.0, 1.2e-6), (0.0, math.inf)):
        again = estimate_change(sessions, session_sd=sd, session_df=39, session_total=total)
        assert (again.session_sd, again.df, again.notes) == (None, 2, estimate.notes)
    alone = estimate_change(sessions[:1], session_sd=0.0, session_df=39, session_total=1.2e-6)
    assert alone.within_session and alone.df == K - 1


def quiet_session(rng: np.random.Generator, sd: float, noise: float) -> BlockSamples:
    """A session whose mean has the SD ``noise`` from its blocks and ``sd`` from its offset."""
    d = rng.normal(rng.normal(0, sd), noise * math.sqrt(K), K)
    return BlockSamples(np.full((K, 1), 40.0), 40 * np.exp(d[:, None]))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("true_sd", [0.0, 0.0005, 0.003])
def test_a_calibration_of_40_sessions_keeps_alpha(true_sd: float, count: int) -> None:
    """Each trial draws its own calibration: 40 sessions of 5 comparisons, noise 0.1 %."""
    rng = np.random.default_rng(38)
    noise, n, rejected, floored = 0.001, 300, 0, 0
    for _ in range(n):
        values = {s: list(rng.normal(0, true_sd) + rng.normal(0, noise, 5)) for s in range(40)}
        block_variance = noise**2 * float(rng.chisquare(4800)) / 4800
        spread = session_spread(values, block_variance)
        assert spread is not None
        e = estimate_change(
            [quiet_session(rng, true_sd, noise) for _ in range(count)],
            session_sd=spread.sd,
            session_df=spread.sessions - 1,
            session_total=spread.total_variance,
            flips=999,
        )
        assert e.session_sd is not None
        rejected += e.ci_lo > 0 or e.ci_hi < 0
        floored += spread.sd == 0
    low, high = binomial_bounds(n)
    assert low <= rejected <= high
    assert (floored > 50) == (true_sd == 0)


def test_a_spread_of_nearly_zero_is_one_of_zero() -> None:
    rng = np.random.default_rng(39)
    data = [quiet_session(rng, 0.0, 0.001) for _ in range(3)]
    found = [
        estimate_change(data, session_sd=sd, session_df=39, session_total=1e-6)
        for sd in (0.0, 1e-7, 1e-6, 1e-5)
    ]
    for e in found:
        assert e.session_sd is not None
        for name in ("se", "df", "p", "ci_lo", "ci_hi"):
            assert getattr(e, name) == pytest.approx(getattr(found[0], name), rel=1e-3)
    block = found[0].s_d ** 2 / K
    assert found[0].df == pytest.approx(1 / ((1e-6 / block) ** 2 / 39 + 1 / 72))


def test_an_unbounded_interval_is_printable() -> None:
    rng = np.random.default_rng(12)
    sessions = [
        BlockSamples(
            100 * np.exp(rng.standard_normal((3, 4))),
            100 * np.exp(shift + rng.standard_normal((3, 4))),
        )
        for shift in (-60.0, 60.0)
    ]
    low, high = estimate_change(sessions).change_ci
    assert math.isfinite(low) and math.isfinite(high)
    assert low < 0 < high
