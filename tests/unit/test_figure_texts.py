"""Times on the terminal: one unit a table, the spread beside the median; noise is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kernelbench.cli.figure_texts import unit_for
from kernelbench.measure.results import TimedBlock
from kernelbench.records.device_table import TableRow
from kernelbench.records.metrics import summarize
from kernelbench.records.run_record import Result
from kernelbench.runs.shape_rows import NOISY_SPREAD, ShapeRows, with_distance, with_times
from kernelbench.worker.messages import MetricMeasured

ROW = Result(
    step="s", lineage="l", problem="p", shape="A", dims="", inputs="random", executor="gpu",
    status="pass", exact=True, max_abs_err=0.0, metrics={}, reason="",
    source_sha="", binary_sha=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("times", "unit", "texts"),
    [
        ([3.2, 47000.0], "µs", ["3.20", "47000.00"]),
        ([0.4, 12.0], "µs", ["0.40", "12.00"]),
        ([1500.0, None, 2e6], "ms", ["1.50", "–", "2000.00"]),
        ([2.5e6], "s", ["2.50"]),
        ([None], "µs", ["–"]),
    ],
)
def test_one_unit_for_all(times: Sequence[float | None], unit: str, texts: list[str]) -> None:
    found = unit_for(times)
    assert found.name == unit
    assert [found.text(time) for time in times] == texts


def test_a_median_with_its_spread_and_method() -> None:
    unit = unit_for([100.0])
    stats = summarize([90.0, *[100.0] * 18, 130.0], "profiler")
    assert unit.median(stats) == "100.00 prof"
    assert unit.spread(stats) == f"{stats.p05:.2f}–{stats.p95:.2f}"
    assert unit.median(None) == unit.spread(None) == "–"


@pytest.mark.parametrize(("metric", "told"), [("device", True), ("call", False)])
def test_a_noisy_device_time_is_a_note(metric: str, told: bool) -> None:
    """A host's call times scatter anyway, and nobody decides by them."""

    def timed(slow: float) -> Result:
        block = TimedBlock([0] * 20, [0] * 20, [100.0] * 10 + [slow] * 10)
        measured = MetricMeasured("A", metric, "graph", (), 0.0)
        row, _ = with_times(ROW, ShapeRows(samples={metric: [block]}, measured={metric: measured}))
        return row

    quiet, noisy = timed(100 * (1 + NOISY_SPREAD / 2)), timed(100 * (1 + 2 * NOISY_SPREAD))
    assert quiet.notes == ()
    assert any("noisy: 5th to 95th percentile span 26%" in note for note in noisy.notes) == told


def test_a_metric_without_a_time_says_why() -> None:
    why = MetricMeasured("A", "device", "none", ("no device time: capture failed",), 0.0)
    row, samples = with_times(ROW, ShapeRows(measured={"device": why}))
    assert (row.metrics, samples) == ({}, [])
    assert row.notes == ("no device time: capture failed",)


@pytest.mark.parametrize(
    ("before", "l2", "note"),
    [
        (100.0, "cold", ""),
        (104.0, "cold", ""),
        (80.0, "cold", "device time 100.00 µs, +25% against that of 2026-11-20 (80.00 µs)"),
        (125.0, "cold", "device time 100.00 µs, -20% against that of 2026-11-20 (125.00 µs)"),
        (80.0, "warm", ""),
    ],
)
def test_a_time_far_from_the_kept_one_is_a_note(before: float, l2: str, note: str) -> None:
    row = replace(ROW, metrics={"device": summarize([100.0] * 5, "graph")})
    kept = TableRow(
        step="s", shape="A", executor="gpu", l2=l2, status="pass", exact=True, classes=1,
        max_abs_err=0.0, rel_rms_err=0.0, metrics={"device": summarize([before] * 5, "graph")},
        sol_us=None, run="20261120T224026Z", reason="",
    )  # fmt: skip
    other = replace(kept, shape="B", metrics={"device": summarize([1.0] * 5, "graph")})
    (found, untimed) = with_distance([row, ROW], [other, kept], "cold")
    assert found.notes == ((note,) if note else ())
    assert untimed == ROW
