"""``ab --power``: as many sessions as find a change, by what the device's calibration left."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.base.json_file import read_json
from kernelbench.compare.comparer import VerdictRules
from kernelbench.compare.session_plan import (
    SessionPlan,
    plan_sessions,
    power_of,
    sessions_needed,
)
from kernelbench.compare.session_samples import block_samples
from kernelbench.measure.results import TimedBlock
from kernelbench.records.calibration_record import load_spreads, read_calibration, save_calibration
from kernelbench.records.metrics import Metric
from kernelbench.stats.blocks import BlockSamples
from kernelbench.stats.estimate import estimate_change
from kernelbench.stats.inference import family
from kernelbench.worker.jobs import Timing

RESULTS = Path(__file__).resolve().parents[2] / "results"
A_A_SAMPLES = Path(__file__).resolve().parents[1] / "fixtures" / "a_a_samples.json.gz"
H200 = "NVIDIA H200"
BOTH = Timing(500, 50, "cold", "single", ("device", "call"), 1.0)


def planned(
    results: Path, device: str, shapes: list[str], metric: Metric, timing: Timing,
    detect: float = 0.005,
) -> SessionPlan:  # fmt: skip
    rules = VerdictRules(results, timing, alpha=0.05, margin=0.002, seed=1, device=device)
    return plan_sessions(rules, shapes, metric, power=0.95, detect=detect)


def a_a_samples() -> list[BlockSamples]:
    """A comparison of each session of an H200's calibration (20261120T153731Z-b1e34789)."""
    return [
        block_samples([TimedBlock(b["arm"], b["input"], b["t_us"]) for b in each["blocks"]], "D")
        for each in read_json(A_A_SAMPLES)
    ]


def test_a_plan_keeps_what_it_says_on_samples_of_a_gpu() -> None:
    """Real A/A samples of an H200, the candidate's times half a per cent longer by calculation."""
    spread = load_spreads(RESULTS, H200, "comparison", "cold")["D", "device"]
    plan = planned(RESULTS, H200, ["D"], "device", BOTH)
    sessions = a_a_samples()
    rng = np.random.default_rng(1)
    slower = {0.0: 0, 0.005: 0}
    trials = 100
    for _ in range(trials):
        drawn = rng.choice(len(sessions), plan.sessions, replace=False)
        picked = [sessions[which] for which in drawn]
        for change in slower:
            found = estimate_change(
                [samples.scaled(1 + change) for samples in picked], margin=0.002, alpha=0.025,
                session_sd=spread.sd, session_df=spread.sessions - 1,
                session_total=spread.total_variance, flips=500,
            )  # fmt: skip
            slower[change] += family([found])[0].label == "SLOWER"
    # Three standard errors of so many trials below what was asked for.
    assert slower[0.005] / trials > 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)
    assert slower[0.0] <= 1


def test_power_is_what_a_simulation_gives() -> None:
    rng = np.random.default_rng(2)
    sessions, total, distance, df = 3, 0.001**2, 0.002, 39
    found = distance + rng.standard_normal(40_000) * math.sqrt(total / sessions)
    variances = total * rng.chisquare(df, found.size) / df
    from scipy import stats

    half = stats.t.ppf(0.975, df) * np.sqrt(variances / sessions)
    share = float((found > half).mean())
    assert power_of(sessions, total, distance, 0.05, df) == pytest.approx(share, abs=0.01)


def test_more_sessions_find_more() -> None:
    powers = [power_of(n, 0.002**2, 0.003, 0.05, None) for n in range(1, 12)]
    assert powers[0] == 0, "one session does not know its own error"
    assert powers == sorted(powers)
    needed = sessions_needed(0.002**2, 0.003, power=0.9, alpha=0.05, df=None)
    assert needed is not None
    assert powers[needed - 1] >= 0.9 > powers[needed - 2]
    assert sessions_needed(0.002**2, 0.0001, power=0.9, alpha=0.05, df=None) is None


def test_no_noise_needs_one_session() -> None:
    assert sessions_needed(0.0, 0.001, power=0.99, alpha=0.05, df=39) == 1


def test_a_shape_that_was_not_calibrated_takes_more() -> None:
    own = planned(RESULTS, H200, ["D"], "device", BOTH)
    other = planned(RESULTS, H200, ["A"], "device", BOTH)
    assert other.sessions > own.sessions, "its own sessions have to give its error"
    assert own.seconds is not None and own.seconds > 0, "as long as m15 against m16"
    assert own.power >= 0.95
    both = planned(RESULTS, H200, ["A", "D"], "device", BOTH)
    assert both.sessions >= other.sessions, "the level is shared"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"detect": 0.002}, "a change of 0.20% is not beyond the margin of 0.20%"),
        ({"detect": 0.0022}, "D: more than 30 sessions to find 0.22% beyond 0.20% with a power"),
    ],
)
def test_what_cannot_be_planned(options: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        planned(RESULTS, H200, ["D"], "device", BOTH, **options)


def test_a_device_without_a_calibration(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="a calibration of NVIDIA H200 for call time"):
        planned(RESULTS, H200, ["D"], "call", BOTH)
    with pytest.raises(EnvironmentProblem, match="kernelbench calibrate STEP"):
        planned(tmp_path, H200, ["D"], "device", BOTH)


def test_a_spread_of_sessions_widens_the_margin(tmp_path: Path) -> None:
    record = read_calibration(min((RESULTS / "nvidia-h200/calibration").glob("*[0-9a-f].json")))
    assert record.comparison_spread is not None
    wide = replace(record.comparison_spread, sd=0.002, total=0.003**2)
    save_calibration(replace(record, comparison_spread=wide), tmp_path)
    plan: SessionPlan = planned(tmp_path, H200, ["D"], "device", BOTH, detect=0.02)
    assert plan.margin == pytest.approx(0.006)
    with pytest.raises(UsageError, match="three times the spread of sessions on D"):
        planned(tmp_path, H200, ["D"], "device", BOTH)
