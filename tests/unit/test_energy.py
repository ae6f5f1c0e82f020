"""Energy per call: windows of a counter that moves in steps, and the metric up to the tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import result_row, run_record

from kernelbench.base import schema
from kernelbench.base.errors import MachineFault
from kernelbench.compare.comparer import VerdictRules, estimate
from kernelbench.compare.session_samples import SessionSamples, block_samples
from kernelbench.measure import gpu_energy
from kernelbench.measure.results import TimedBlock
from kernelbench.records import device_table, ledger
from kernelbench.records import run_record as run_records
from kernelbench.records.metrics import summarize
from kernelbench.records.run_record import Result
from kernelbench.records.tables import Saved, rows_csv
from kernelbench.report.html.gather import differences_of
from kernelbench.stats.inference import family
from kernelbench.worker.jobs import Timing


class Board:
    """A board that draws ``watts``, its counter moving every ``step_s``; a chunk takes 4 ms."""

    def __init__(self, watts: float, step_s: float = 0.05) -> None:
        self.now, self.watts, self.step_s = 0.0, watts, step_s

    def clock(self) -> float:
        return self.now

    def read(self) -> int:
        steps = math.floor(self.now / self.step_s)
        return 1000 + round(steps * self.step_s * self.watts * 1e3)

    def chunk(self) -> int:
        self.now += 0.004
        return 10


@pytest.mark.parametrize("step_s", [0.02, 0.05, 0.1])
def test_a_window_begins_and_ends_with_a_step_of_the_counter(step_s: float) -> None:
    board = Board(500.0, step_s)
    found = gpu_energy.window(board.read, board.chunk, clock=board.clock)
    assert found.seconds >= gpu_energy.WINDOW_S
    assert found.watts == pytest.approx(500, rel=0.01)
    # 500 W for 0.4 ms; a chunk more or less is all that is not known.
    assert found.mj / found.calls == pytest.approx(200, rel=0.01)
    steps = round(found.mj / (step_s * 500e3))
    assert found.mj == pytest.approx(steps * step_s * 500e3, abs=1)


def test_every_arm_is_measured_for_two_seconds() -> None:
    assert gpu_energy.BLOCKS * gpu_energy.WINDOW_S >= 2


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        (lambda i: 5000 - i, r"went back from 5000 to 4999 mJ"),
        (lambda i: None, "NVML has no energy counter of this GPU"),
        (lambda i: 7, "stands still at 7 mJ"),
    ],
)
def test_a_counter_that_cannot_be_used_is_refused(
    readings: Callable[[int], int | None], why: str
) -> None:
    board = Board(0.0)
    count = iter(range(10_000))
    with pytest.raises(MachineFault, match=why):
        gpu_energy.window(lambda: readings(next(count)), board.chunk, clock=board.clock)


def row(**changes: object) -> Result:
    energy = summarize([20.0, 21.0, 22.0], "nvml")
    found = result_row("m07")
    return replace(found, metrics={**found.metrics, "energy": energy}, **changes)


def test_records_have_it_where_it_was_measured() -> None:
    with_energy, without = (schema.encode(each) for each in (row(), result_row("m07")))
    assert with_energy["energy_mj"]["median"] == 21.0
    assert "energy_mj" not in without
    assert {"device_us", "call_us"} <= without.keys()
    assert schema.decode(Result, with_energy, every_field=True) == row()
    (flat, _) = run_record(row(), result_row("m16")).rows()
    assert (flat["energy_mj"], flat["energy_method"]) == (21.0, "nvml")
    assert "energy_mj" not in run_record(result_row("m07")).rows()[0]


def test_tables_have_a_column_of_it_where_a_row_has_it() -> None:
    rows = device_table.merged({}, [run_record(row(), result_row("m16"), id="20300101T000000Z-0")])
    text = device_table.write_csv(rows.values())
    figures = "energy_median_mj,energy_p05_mj,energy_p95_mj,energy_reps,energy_method"
    assert text.splitlines()[0].endswith(f"call_method,{figures}")
    assert "energy mJ" in device_table.write_markdown("NVIDIA H200", "x", [*rows.values()])
    saved = [Saved(run_record(row()), row())]
    assert "energy_median_mj" in rows_csv(saved)
    alone = device_table.merged({}, [run_record(result_row("m16"), id="20300101T000000Z-0")])
    assert "energy" not in device_table.write_csv(alone.values())


def test_the_table_that_was_written_is_read(tmp_path: Path) -> None:
    rows = device_table.merged({}, [run_record(row(), result_row("m16"), id="20300101T000000Z-0")])
    (tmp_path / "table.csv").write_text(device_table.write_csv(rows.values()))
    assert device_table.read_csv(tmp_path / "table.csv") == rows


def compared(base: float, cand: float, tmp_path: Path) -> str:
    """The verdict on three sessions of windows around these energies."""
    draw = np.random.default_rng(5)
    shape = type("Shape", (), {"name": "A"})()
    collected = SessionSamples(shape, methods={"energy": "nvml"})
    for _ in range(3):
        blocks = [
            TimedBlock([0, 1], [0, 0], [base * draw.normal(1, 0.004), cand * draw.normal(1, 0.004)])
            for _ in range(gpu_energy.BLOCKS)
        ]
        collected.sessions.setdefault("energy", []).append(block_samples(blocks, "A"))
    timing = Timing(500, 50, "cold", "single", ("device", "energy"), 10.0)
    rules = VerdictRules(tmp_path, timing, 0.05, 0.005, 1, "NVIDIA H200")
    found = estimate(collected, "energy", rules)
    (verdict,) = family([found])
    return verdict.label


def test_less_energy_is_faster_and_the_same_is_not_different(tmp_path: Path) -> None:
    assert compared(30.0, 24.0, tmp_path) == "FASTER"
    assert compared(30.0, 36.0, tmp_path) == "SLOWER"
    assert compared(30.0, 30.0, tmp_path) in ("SAME", "AMBIGUOUS")


def test_the_report_reads_its_samples_and_says_its_unit(tmp_path: Path) -> None:
    blocks = [TimedBlock([0, 1], [0, 0], [30.0, 24.0 + i]).to_json("energy") for i in range(3)]
    sessions = [{"metric": "energy", "blocks": blocks}, {"metric": "device", "blocks": []}]
    samples = [{"shape": "A", "sessions": sessions}]
    run_records.write_samples(tmp_path / "s.json.gz", samples)
    arm = ledger.ArmRecord("m07", "0")
    entry = ledger.LedgerEntry(
        schema=ledger.SCHEMA, id="x", created="2030-01-01", device="NVIDIA H200", command="",
        why="", base=arm, cand=arm, shape="A", metric="energy", method="nvml", verdict="FASTER",
        reason="", base_us=None, cand_us=None, change=-0.2, ci=(-0.3, -0.1), p_holm=0.01,
        figures={"p": 0.01, "base_mj": 30.0, "cand_mj": 25.0}, samples_file="s.json.gz",
    )  # fmt: skip
    assert (entry.median("base"), entry.median("cand"), entry.unit) == (30.0, 25.0, " mJ")
    found = differences_of(entry, tmp_path)
    assert found is not None
    assert found.total == 3
