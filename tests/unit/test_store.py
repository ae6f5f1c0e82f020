"""The results folder: records are kept, tables follow from them."""

from __future__ import annotations

import csv
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import PROTOCOL, run_record
from conftest import result_row as row

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.records import run_record as records
from kernelbench.records import store
from kernelbench.records.run_record import Result, RunRecord


def record(name: str, *rows: Result, **changes: Any) -> RunRecord:
    return run_record(*rows, id=name, **changes)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "nvidia-h200" / "table.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_layout(tmp_path: Path) -> None:
    path = store.save_run(tmp_path, record("r1", row()), [{"t": [1]}])
    assert path == tmp_path / "nvidia-h200" / "runs" / "r1.json"
    assert records.read_run(path).samples_file == "r1.samples.json.gz"
    assert records.read_samples(path.with_name("r1.samples.json.gz")) == [{"t": [1]}]
    files = {p.name for p in (tmp_path / "nvidia-h200").iterdir() if p.is_file()}
    assert files - {".lock"} == {"table.md", "table.csv"}


def test_no_samples_no_file(tmp_path: Path) -> None:
    path = store.save_run(tmp_path, record("r1", row()), [])
    assert records.read_run(path).samples_file is None
    assert list(path.parent.iterdir()) == [path]


def test_tables_hold_the_newest_of_each_row_in_natural_order(tmp_path: Path) -> None:
    store.save_run(
        tmp_path, record("r1", row("v10"), row("v2"), row("v2", median=50.0, shape="B")), []
    )
    store.save_run(tmp_path, record("r2", row("v2", median=60.0)), [])
    warm = replace(PROTOCOL, l2="warm")
    store.save_run(tmp_path, record("r3", row("v2", median=30.0), protocol=warm), [])
    found = [
        (r["step"], r["shape"], r["l2"], float(r["device_median_us"])) for r in table(tmp_path)
    ]
    assert found == [
        ("v2", "A", "cold", 60.0),
        ("v2", "A", "warm", 30.0),
        ("v2", "B", "cold", 50.0),
        ("v10", "A", "cold", 40.0),
    ]


def test_another_device_has_another_table(tmp_path: Path) -> None:
    store.save_run(tmp_path, record("r1", row()), [])
    store.save_run(tmp_path, record("r2", row("v01"), device="NVIDIA B200"), [])
    assert [r["step"] for r in table(tmp_path)] == ["v00"]
    runs, broken = store.load_runs(tmp_path)
    assert [run.id for run in runs] == ["r1", "r2"]
    assert broken == []
    assert [run.id for run in store.load_runs(tmp_path, "nvidia-b200")[0]] == ["r2"]


def test_an_unreadable_record_does_not_cost_the_others(tmp_path: Path) -> None:
    path = store.save_run(tmp_path, record("r1", row()), [])
    path.with_name("r0.json").write_text('{"schema": "kernelbench.run/0"}')
    store.save_run(tmp_path, record("r2", row("v01")), [])
    assert [r["step"] for r in table(tmp_path)] == ["v00", "v01"]
    runs, broken = store.load_runs(tmp_path)
    assert len(runs) == 2
    (line,) = broken
    assert "r0.json" in line


def test_a_record_that_cannot_be_written_takes_its_samples_with_it(tmp_path: Path) -> None:
    (tmp_path / "nvidia-h200" / "runs" / "r1.json").mkdir(parents=True)
    with pytest.raises(EnvironmentProblem, match=r"r1\.json"):
        store.save_run(tmp_path, record("r1", row()), [{"t": [1]}])
    left = [p for p in (tmp_path / "nvidia-h200" / "runs").iterdir() if p.name != "r1.json"]
    assert left == []


def test_reasons_cannot_break_a_table(tmp_path: Path) -> None:
    bad = row(status="wrong", device_us=None, reason='a | b c, "d"', exact=False)
    store.save_run(tmp_path, record("r1", bad, row("v01")), [])
    (first, second) = table(tmp_path)
    assert first["reason"].split() == ["a", "|", "b", "c,", '"d"']
    markdown = (tmp_path / "nvidia-h200" / "table.md").read_text().splitlines()
    rows = [line for line in markdown if line.startswith("| v0")]
    assert len(rows) == 2
    header = next(line for line in markdown if line.startswith("| step"))
    assert all(r.replace("\\|", "").count("|") == header.count("|") for r in rows)
    assert second["step"] == "v01"


def _save(folder: Path, number: int) -> None:
    store.save_run(folder, record(f"r{number}", row(f"v{number:02d}")), [{"n": number}])


def test_many_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_save, args=(tmp_path, n)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert [r["step"] for r in table(tmp_path)] == ["v00", "v01", "v02", "v03"]
