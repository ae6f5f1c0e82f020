"""The gate: unchanged tables pass, regressions are named, and what cannot be compared fails."""

from __future__ import annotations

import dataclasses
import math
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import with_metrics

from kernelbench.base.errors import ExitCode, RecordError
from kernelbench.compare import gate_tables
from kernelbench.compare.gate_report import GateReport, GateRow, LiveRow, from_live
from kernelbench.compare.gate_tables import Best, best_ever, compare_tables, expected_maximum
from kernelbench.records.calibration_record import SessionSpread
from kernelbench.records.metrics import Summary
from kernelbench.records.run_record import RUN_SCHEMA, Environment, Protocol, Result, RunRecord
from kernelbench.report import gate_markdown
from kernelbench.stats.blocks import BlockSamples
from kernelbench.stats.estimate import Estimate, estimate_change
from kernelbench.stats.inference import Verdict, family

ENVIRONMENT = Environment(
    device="NVIDIA H200",
    kind="cuda",
    arch="sm_90",
    sms=132,
    l2_bytes=50 << 20,
    memory_bytes=141 << 30,
    driver="580.65",
    cuda="13.0",
    torch="2.11.0",
    python="3.12.3",
    kernelbench="0.1.0",
)
PROTOCOL = Protocol(seed=1, reps=500, warmups=50, l2="cold", call="single", flush_bytes=100 << 20)
SIGMA = 0.003
STEPS = [f"v{i:02d}" for i in range(24)]


def time(median: float, method: str = "graph") -> Summary:
    return Summary(median, median, median, median, median, 0.0, 500, method)


def result(step: str = "v01", shape: str = "A", **changes: Any) -> Result:
    row = Result(
        step=step,
        lineage="group_gemm",
        problem="group_gemm",
        shape=shape,
        dims="",
        inputs="gpu-mode",
        executor="gpu",
        status="pass",
        exact=True,
        max_abs_err=0.0,
        metrics={"device": time(40.0), "call": time(60.0, "events")},
        reason="",
    )
    return with_metrics(row, **changes)


def record(*rows: Result, **changes: Any) -> RunRecord:
    run = RunRecord(
        schema=RUN_SCHEMA,
        id="run",
        created="",
        command="kernelbench run",
        device="NVIDIA H200",
        environment=ENVIRONMENT,
        protocol=PROTOCOL,
        results=rows,
    )
    return dataclasses.replace(run, **changes)


def table(
    rng: np.random.Generator, name: str, planted: tuple[str, str, float] | None = None
) -> RunRecord:
    """A session's table of 24 steps and 4 shapes, both metrics, each off by its session."""
    rows = []
    for step in STEPS:
        for number, shape in enumerate("ABCD"):
            factor = 1 + planted[2] if planted and planted[:2] == (step, shape) else 1.0
            device, call = factor * (40 + 10 * number) * np.exp(rng.normal(0, SIGMA, 2))
            rows.append(
                result(step, shape, device_us=time(device), call_us=time(call + 20, "events"))
            )
    return record(*rows, id=name)


def spreads(rng: np.random.Generator) -> dict[tuple[str, str], SessionSpread]:
    """Spreads as 40 sessions of calibration estimate them."""
    return {
        (shape, metric): SessionSpread(SIGMA * math.sqrt(rng.chisquare(39) / 39), 39, 0.004, 40)
        for shape in "ABCD"
        for metric in ("device", "call")
    }


# -- tables: error rates


@pytest.mark.parametrize("metric", ["device", "both"])
def test_unchanged_tables_pass_and_three_percent_is_named(metric: Any) -> None:
    rng = np.random.default_rng(51)
    passed = caught = 0
    for trial in range(100):
        history = [table(rng, f"r{i}") for i in range(6)]
        known = spreads(rng)
        unchanged = table(rng, "now")
        report = compare_tables(
            history[-1],
            unchanged,
            best=best_ever(history, unchanged),
            spreads=known,
            metric=metric,
        )
        passed += report.exit_code == ExitCode.PASS
        victim = (STEPS[trial % 24], "ABCD"[trial % 4])
        slower = table(rng, "slow", (*victim, 0.03))
        report = compare_tables(
            history[-1], slower, best=best_ever(history, slower), spreads=known, metric=metric
        )
        found = {(row.step, row.shape) for row in report.with_status("regression")}
        caught += victim in found and victim[0] in report.headline
    assert passed >= 95  # 19 of 20
    assert caught >= 99


def test_uncalibrated_tables_fail_on_session_noise_and_say_so() -> None:
    rng = np.random.default_rng(52)
    report = compare_tables(table(rng, "a"), table(rng, "b"))
    assert report.exit_code == ExitCode.REGRESSION
    assert "calibrate" in report.margin_note


def test_best_of_many_runs_is_not_held_against_an_unchanged_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate_tables, "GATE_ALPHA", 0.05)
    monkeypatch.setattr(gate_tables, "TICK_US", 0.0)
    rng = np.random.default_rng(53)
    runs, trials = 50, 2000
    best = 40 * np.exp(rng.normal(0, SIGMA, (trials, runs)).min(axis=1))
    now = 40 * np.exp(rng.normal(0, SIGMA, trials))
    key = ("v01", "A", "gpu-mode", "device")
    spread = {("A", "device"): SessionSpread(SIGMA, 39, 0.004, 40)}
    naive = corrected = 0
    for least, current in zip(best, now, strict=True):
        for count in (1, runs):
            report = compare_tables(
                record(result(device_us=time(float(current)))),
                record(result(device_us=time(float(current)))),
                best={key: Best(float(least), count)},
                spreads=spread,
                margin=0.0,
            )
            if count == 1:
                naive += bool(report.failures)
            else:
                corrected += bool(report.failures)
    assert naive > 0.1 * trials
    assert corrected <= 0.05 * trials


@pytest.mark.parametrize("count", [1, 2, 10, 100])
def test_expected_maximum(count: int) -> None:
    draws = np.random.default_rng(54).normal(size=(20_000, count)).max(axis=1)
    assert expected_maximum(count) == pytest.approx(draws.mean(), abs=0.03)


def test_creep_fails_against_the_best() -> None:
    spread = {("A", "device"): SessionSpread(0.001, 39, 0.0012, 40)}
    medians = [40.0 * 1.004**i for i in range(6)]
    runs = [record(result(device_us=time(m)), id=str(i)) for i, m in enumerate(medians)]
    report = compare_tables(runs[-2], runs[-1], best=best_ever(runs[:-1], runs[-1]), spreads=spread)
    (row,) = report.rows
    assert row.status == "regression"
    assert "best of 5 runs" in row.reason and "predecessor" not in row.reason
    assert compare_tables(runs[-2], runs[-1], spreads=spread).exit_code == ExitCode.PASS


# -- tables: what fails, what does not


def statuses(report: GateReport) -> list[str]:
    return [row.status for row in report.rows]


def test_missing_rows_fail() -> None:
    base = record(result("v01"), result("v02"))
    report = compare_tables(base, record(result("v01")))
    assert report.exit_code == ExitCode.REGRESSION
    assert [row.step for row in report.failures] == ["v02"]
    assert "v02" in report.headline


@pytest.mark.parametrize(
    "changes",
    [
        {"device_us": None},
        {"status": "skipped", "reason": "no GPU", "device_us": None, "call_us": None},
        {"device_us": time(40.0, "profiler")},
    ],
)
def test_rows_no_longer_comparable_fail(changes: dict[str, Any]) -> None:
    report = compare_tables(record(result()), record(result(**changes)))
    assert statuses(report) == ["missing"]
    assert report.exit_code == ExitCode.REGRESSION
    assert report.failures[0].reason


@pytest.mark.parametrize("status", ["wrong", "hang", "fault"])
def test_incorrect_rows_outrank_regressions(status: Any) -> None:
    base = record(result("v01"), result("v02"))
    now = record(
        result("v01", device_us=time(80.0)), result("v02", status=status, reason="one element")
    )
    report = compare_tables(base, now)
    assert report.exit_code == ExitCode.INCORRECT
    assert [row.status for row in report.failures] == ["incorrect", "regression"]
    fresh = compare_tables(record(result("v01")), record(result("v01"), *now.results[1:]))
    assert fresh.exit_code == ExitCode.INCORRECT


def test_faster_and_new_rows_pass() -> None:
    report = compare_tables(
        record(result("v01")), record(result("v01", device_us=time(30.0)), result("v02"))
    )
    assert statuses(report) == ["faster", "new"]
    assert report.exit_code == ExitCode.PASS


def test_rows_that_were_wrong_before_are_new_or_skipped() -> None:
    wrong = {"status": "wrong", "reason": "x"}
    base = record(result("v01"), result("v02", **wrong), result("v03", **wrong))
    report = compare_tables(base, record(result("v01"), result("v02")))
    assert statuses(report) == ["ok", "new", "skipped"]
    assert report.exit_code == ExitCode.PASS


def test_call_time_stands_in_where_there_is_no_device_time() -> None:
    base = record(result(device_us=None))
    slow = compare_tables(base, record(result(device_us=None, call_us=time(70.0, "events"))))
    assert (slow.rows[0].metric, slow.rows[0].status) == ("call", "regression")
    both = compare_tables(record(result()), record(result()), metric="both")
    assert [row.metric for row in both.rows] == ["device", "call"]


def test_emulated_times_are_not_compared() -> None:
    base = record(result(executor="gpu-soft"))
    now = record(result(executor="gpu-soft", device_us=time(400.0)))
    report = compare_tables(base, now)
    assert report.exit_code == ExitCode.PASS
    assert report.rows[0].delta is None
    assert "no time was compared" in report.headline
    wrong = record(result(executor="gpu-soft", status="wrong", reason="NaN"))
    assert compare_tables(base, wrong).exit_code == ExitCode.INCORRECT


def test_ticks_are_a_margin_on_a_gpu_only() -> None:
    base = record(result(device_us=time(2.4)))
    now = record(result(device_us=time(2.43)))
    assert compare_tables(base, now).exit_code == ExitCode.PASS
    cpu = dataclasses.replace(ENVIRONMENT, kind="cpu")
    report = compare_tables(
        dataclasses.replace(base, environment=cpu), dataclasses.replace(now, environment=cpu)
    )
    assert report.exit_code == ExitCode.REGRESSION


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device": "NVIDIA B200"}, "device"),
        ({"environment": dataclasses.replace(ENVIRONMENT, sms=66)}, "number of SMs"),
        ({"environment": dataclasses.replace(ENVIRONMENT, mig=True)}, "MIG"),
        ({"environment": dataclasses.replace(ENVIRONMENT, driver="590")}, "driver"),
        ({"protocol": dataclasses.replace(PROTOCOL, l2="warm")}, "L2 mode (cold, warm)"),
        ({"protocol": dataclasses.replace(PROTOCOL, call="competition")}, "call mode"),
        ({"results": (result(executor="torch"),)}, "executor of v01 A"),
    ],
)
def test_incomparable_tables_are_refused(change: dict[str, Any], said: str) -> None:
    base = record(result())
    with pytest.raises(RecordError) as caught:
        compare_tables(base, dataclasses.replace(base, **change))
    assert said in str(caught.value)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_unusable_baselines_are_refused() -> None:
    now = record(result())
    for base, said in (
        (record(result(), complete=False), "interrupted"),
        (record(result(status="wrong")), "no correct row"),
        (record(), "no correct row"),
        (record(result(), result()), "twice"),
    ):
        with pytest.raises(RecordError, match=said):
            compare_tables(base, now)


def test_an_interrupted_current_run_fails_by_its_missing_rows() -> None:
    base = record(result("v01"), result("v02"))
    report = compare_tables(base, record(result("v01"), complete=False))
    assert report.exit_code == ExitCode.REGRESSION
    assert any("interrupted" in note for note in report.notes)


def test_uncalibrated_shapes_borrow_the_largest_spread() -> None:
    known = {
        ("A", "device"): SessionSpread(0.001, 39, 0.0012, 40),
        ("B", "device"): SessionSpread(0.004, 39, 0.005, 40),
    }
    base = record(result(shape="Z"))
    report = compare_tables(base, base, spreads=known)
    alone = compare_tables(record(result(shape="B")), record(result(shape="B")), spreads=known)
    assert report.rows[0].margin == alone.rows[0].margin
    assert any("Z device" in note for note in report.notes)


def test_best_ever_counts_comparable_runs_only() -> None:
    now = record(result(), id="now")
    runs = [
        record(result(device_us=time(38.0)), id="a"),
        record(result(device_us=time(39.0)), id="b"),
        record(result(device_us=time(1.0)), id="c", device="NVIDIA B200"),
        record(result(device_us=time(2.0), status="wrong"), id="d"),
        record(result(device_us=time(3.0, "profiler")), id="e"),
        record(result(device_us=time(4.0)), id="now"),
        record(result(device_us=time(5.0), inputs="full"), id="f"),
    ]
    found = best_ever(runs, now)
    assert found["v01", "A", "gpu-mode", "device"] == Best(38.0, 2)


def test_input_classes_are_told_apart() -> None:
    base = record(result(), result(inputs="full", device_us=time(50.0)))
    now = record(result(), result(inputs="full", device_us=time(60.0)))
    (failed,) = compare_tables(base, now).failures
    assert failed.name == "v01 A (full) device"


# -- live


def verdict(change: float, noise: float = 0.001, seed: int = 55) -> Verdict:
    arms = 40 * np.exp(np.random.default_rng(seed).normal(0, noise, (2, 25, 20)))
    return family([estimate_change([BlockSamples(arms[0], arms[1] * (1 + change))])])[0]


def test_live_rows() -> None:
    same, slower, faster = verdict(0.0), verdict(0.03), verdict(-0.03)
    unclear = verdict(0.005)
    rows = [
        LiveRow("v01", "A", "device", same),
        LiveRow("v02", "A", "device", slower, same, confirmed=True),
        LiveRow("v03", "A", "device", slower),
        LiveRow("v04", "A", "device", faster),
        LiveRow("v05", "A", "device", unclear),
        LiveRow("v06", "A", "device", same, slower, confirmed=True),
    ]
    report = from_live(rows, device="NVIDIA H200")
    assert statuses(report) == [
        "ok", "regression", "ambiguous", "faster", "ambiguous", "regression",
    ]  # fmt: skip
    assert report.exit_code == ExitCode.REGRESSION
    assert "against the best, confirmed" in report.rows[5].reason
    assert report.rows[1].delta == pytest.approx(0.03, abs=0.001)


def test_live_ambiguity_fails_only_when_asked() -> None:
    # A SLOWER that a second run puts within the margin.
    rows = [LiveRow("v03", "A", "device", verdict(0.03), again=verdict(0.001).estimate)]
    assert from_live(rows, device="d").exit_code == ExitCode.PASS
    asked = from_live(rows, device="d", fail_on=("ambiguous",))
    assert asked.exit_code == ExitCode.AMBIGUOUS


@pytest.mark.parametrize("confirmation", [None, verdict(0.03).estimate])
def test_a_loss_beyond_the_margin_never_passes(confirmation: Estimate | None) -> None:
    rows = [LiveRow("v03", "A", "device", verdict(0.03), again=confirmation)]
    report = from_live(rows, device="d")
    assert report.exit_code == ExitCode.AMBIGUOUS
    assert report.headline.startswith("FAIL: v03")
    assert "the best estimate is beyond the margin" in report.rows[0].reason


def test_an_uncertain_loss_beyond_the_margin_never_passes() -> None:
    """The case seen: +36 % in a single noisy session, AMBIGUOUS, and exit code 0."""
    unclear = verdict(0.36, noise=3.0)
    assert unclear.label == "AMBIGUOUS"
    assert unclear.estimate.change > unclear.estimate.margin
    report = from_live([LiveRow("v01", "A", "device", unclear)], device="d")
    assert report.exit_code == ExitCode.AMBIGUOUS


def test_an_uncertain_gain_passes() -> None:
    unclear = verdict(-0.36, noise=3.0)
    assert unclear.label == "AMBIGUOUS"
    assert from_live([LiveRow("v01", "A", "device", unclear)], device="d").exit_code == 0


def test_nothing_but_skipped_rows_is_no_pass() -> None:
    skipped = GateRow("v01", "A", "", "device", "skipped", "too wide")
    report = dataclasses.replace(from_live([], device="d"), rows=(skipped,))
    assert report.exit_code == ExitCode.ENVIRONMENT
    assert report.headline == "FAIL: nothing was compared: 1 skipped"
    some = from_live([LiveRow("v01", "B", "device", same_code=True)], device="d")
    some = dataclasses.replace(some, rows=(*some.rows, skipped))
    assert some.exit_code == ExitCode.PASS
    assert dataclasses.replace(some, fail_on=("skipped",)).exit_code == ExitCode.ENVIRONMENT


def test_live_failures_need_no_verdict() -> None:
    wrong = from_live([LiveRow("v01", "A", "device", failure="wrong: NaN")], device="d")
    assert wrong.exit_code == ExitCode.INCORRECT
    for row in (LiveRow("v01", "A", "device", missing="gone"), LiveRow("v01", "A", "device")):
        assert from_live([row], device="d").exit_code == ExitCode.REGRESSION
    same = from_live([LiveRow("v01", "A", "device", same_code=True)], device="d")
    assert (same.exit_code, same.rows[0].reason) == (ExitCode.PASS, "identical code")


def test_the_predecessor_s_code_can_still_be_slower_than_the_best() -> None:
    row = LiveRow("v01", "A", "device", against_best=verdict(0.03), confirmed=True, same_code=True)
    report = from_live([row], device="d")
    assert report.exit_code == ExitCode.REGRESSION
    assert "predecessor" not in report.rows[0].reason
    assert "against the best, confirmed" in report.rows[0].reason
    assert report.rows[0].delta is None


# -- renderings


@pytest.fixture
def mixed() -> GateReport:
    base = record(result("v01"), result("v02"), result("v03"), result("v04"))
    now = record(
        result("v01"),
        result("v02", device_us=time(41.2)),
        result("v03", status="fault", reason="a | b <c> & \x00\x1b[31m\nsecond line"),
    )
    return compare_tables(base, now)


def test_markdown(mixed: GateReport) -> None:
    text = gate_markdown.gate_markdown(mixed)
    lines = text.splitlines()
    assert lines[0].startswith("## kernelbench gate: FAIL: v03, v02, v04")
    assert "+3.00% against the predecessor" in text
    cells = [line for line in lines if line.startswith("|")]
    assert len(cells) == 2 + 4
    assert len({line.replace("\\|", "").count("|") for line in cells}) == 1
    assert cells[2].endswith("incorrect |")
    assert "a \\| b &lt;c>" in text
    passing = gate_markdown.gate_markdown(compare_tables(record(result()), record(result())))
    assert passing.startswith("## kernelbench gate: PASS: 1 unchanged")


def test_junit(mixed: GateReport) -> None:
    root = ElementTree.fromstring(gate_markdown.junit_xml(mixed))
    assert root.attrib == {"tests": "4", "failures": "2", "errors": "1", "skipped": "0"}
    cases = {case.attrib["classname"]: case for case in root.iter("testcase")}
    slow = cases["kernelbench.gate.v02"]
    assert slow.attrib["name"] == "A device"
    assert float(slow.attrib["time"]) == pytest.approx(41.2e-6)
    failure = slow.find("failure")
    assert failure is not None and failure.attrib["type"] == "regression"
    error = cases["kernelbench.gate.v03"].find("error")
    assert error is not None and "<c>" in error.attrib["message"]
    assert len(cases["kernelbench.gate.v01"]) == 0


def test_ambiguous_in_junit() -> None:
    row = GateRow(
        "v01", "A", "", "device", "ambiguous", "why", base=1.0, current=1.0, delta=0.0, margin=0.01
    )
    for asked, kind in (((), "skipped"), (("ambiguous",), "failure")):
        report = GateReport("live", "d", (row,), "", (), asked)
        (case,) = ElementTree.fromstring(gate_markdown.junit_xml(report)).iter("testcase")
        assert [child.tag for child in case] == [kind]


# -- tables: what a CPU's noise can and cannot show


def wall(samples: Any) -> Summary:
    """The summary that a record keeps of a series."""
    at = [float(np.percentile(samples, q)) for q in (50, 5, 95)]
    return Summary(
        at[0], float(np.mean(samples)), float(np.min(samples)), at[1], at[2],
        float(np.std(samples)), len(samples), "wall",
    )  # fmt: skip


def on_cpu(stats: Summary, name: str = "run") -> RunRecord:
    return record(result(executor="torch", device_us=None, call_us=stats), id=name)


def test_two_noisy_runs_of_the_same_code_are_ambiguous_both_ways() -> None:
    rng = np.random.default_rng(54)
    # What a busy machine does to a series: mostly fast in one run, mostly slow in the other.
    fast = np.where(rng.random(50) < 0.8, 140, 24000) * rng.uniform(0.9, 1.1, 50)
    slow = np.where(rng.random(50) < 0.4, 140, 24000) * rng.uniform(0.9, 1.1, 50)
    for before, now in ((fast, slow), (slow, fast)):
        report = compare_tables(on_cpu(wall(before)), on_cpu(wall(now)))
        (row,) = report.rows
        assert abs(row.delta or 0) > 0.9
        assert (row.status, report.exit_code) == ("ambiguous", ExitCode.AMBIGUOUS)
        assert "p5–p95" in row.reason and "--against" in row.next_step


def test_series_that_lie_apart_are_decided() -> None:
    rng = np.random.default_rng(55)
    fast, slow = rng.normal(100, 3, 50), rng.normal(150, 3, 50)
    assert statuses(compare_tables(on_cpu(wall(fast)), on_cpu(wall(slow)))) == ["regression"]
    assert statuses(compare_tables(on_cpu(wall(slow)), on_cpu(wall(fast)))) == ["faster"]


@pytest.mark.parametrize(
    ("reps", "status"), [(1, "ambiguous"), (4, "ambiguous"), (5, "regression")]
)
def test_few_repetitions_lie_apart_by_chance(reps: int, status: str) -> None:
    before, now = wall([100.0] * reps), wall([150.0] * reps)
    assert statuses(compare_tables(on_cpu(before), on_cpu(now))) == [status]


def test_the_best_run_s_repetitions_count_too() -> None:
    rng = np.random.default_rng(56)
    runs = [on_cpu(wall(rng.normal(mean, 5, 50)), str(mean)) for mean in (100, 101, 103)]
    report = compare_tables(runs[1], runs[2], best=best_ever(runs[:2], runs[2]))
    (row,) = report.rows
    assert (row.status, row.delta_best is not None) == ("ambiguous", True)
    assert "best of 2 runs" in row.reason


def test_a_calibrated_gpu_decides_by_its_spread() -> None:
    stats = Summary(40.0, 40.0, 39.0, 39.0, 43.0, 1.0, 500, "graph")
    slower = dataclasses.replace(stats, median=41.0, p05=39.5, p95=43.5)
    runs = [record(result(device_us=each)) for each in (stats, slower)]
    known = {("A", "device"): SessionSpread(0.001, 39, 0.0012, 40)}
    assert statuses(compare_tables(*runs, spreads=known)) == ["regression"]
    assert statuses(compare_tables(*runs)) == ["ambiguous"]
