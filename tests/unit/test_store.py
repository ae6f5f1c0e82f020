"""The results folder: records are kept, tables follow from them."""

from __future__ import annotations

import csv
import gzip
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import PROTOCOL, ROOT, environment_of, run_record, times
from conftest import result_row as row

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.records import device_table, store
from kernelbench.records import run_record as records
from kernelbench.records.metrics import summarize
from kernelbench.records.run_record import Result, RunRecord


def record(name: str, *rows: Result, **changes: Any) -> RunRecord:
    return run_record(*rows, id=name, **changes)


def tables(folder: Path) -> list[bytes]:
    return [(folder / "nvidia-h200" / name).read_bytes() for name in ("table.md", "table.csv")]


def marks(folder: Path) -> list[Path]:
    return [*(folder / "nvidia-h200").glob(".saving-*")]


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "nvidia-h200" / "table.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_layout(tmp_path: Path) -> None:
    path = store.save_run(tmp_path, record("r1", row()), [{"t": [1]}])
    assert path == tmp_path / "nvidia-h200" / "runs" / "r1.json.gz"
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
    (tmp_path / "nvidia-h200" / "runs" / "r1.json.gz").mkdir(parents=True)
    with pytest.raises(EnvironmentProblem, match=r"r1\.json\.gz"):
        store.save_run(tmp_path, record("r1", row()), [{"t": [1]}])
    left = [p for p in (tmp_path / "nvidia-h200" / "runs").iterdir() if p.name != "r1.json.gz"]
    assert left == []
    assert marks(tmp_path) == []


def test_reasons_cannot_break_a_table(tmp_path: Path) -> None:
    bad = row(status="wrong", device_us=None, reason='a | b c, "d"', exact=False)
    store.save_run(tmp_path, record("r1", bad, row("v01")), [])
    (first, second) = table(tmp_path)
    assert first["reason"].split() == ["a", "|", "b", "c,", '"d"']
    markdown = (tmp_path / "nvidia-h200" / "table.md").read_text().splitlines()
    rows = [line for line in markdown if line.startswith("|v0")]
    assert len(rows) == 2
    heads = [line for line in markdown if line.startswith("|step")]
    widths = {r.replace("\\|", "").count("|") for r in rows}
    assert widths == {head.count("|") for head in heads}
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


def _run(number: int, *rows: Result, **changes: Any) -> RunRecord:
    return record(f"20300101T{number:06d}Z-{number:08x}", *rows, **changes)


def test_a_record_is_json_with_a_row_a_line(tmp_path: Path) -> None:
    saved = record("r1", row(), row("v01"))
    path = store.save_run(tmp_path, saved, [])
    text = gzip.decompress(path.read_bytes()).decode()
    assert [json.loads(line.rstrip(","))["step"] for line in text.splitlines()[1:-1]] == [
        "v00", "v01",
    ]  # fmt: skip
    assert json.loads(text)["schema"] == records.RUN_SCHEMA
    assert records.read_run(path) == saved
    again = store.save_run(tmp_path / "again", saved, [])
    assert again.read_bytes() == path.read_bytes()


def test_a_record_of_many_rows_is_small(tmp_path: Path) -> None:
    """A real run times 90 combinations of step and shape; their figures are all different."""
    draw = random.Random(5)
    rows = [
        row(
            f"m{step:02d}", f"s{shape}", inputs=inputs, max_abs_err=draw.random(),
            source_sha=f"{step:064x}", binary_sha=f"{step:064x}",
            device_us=summarize([draw.random() for _ in range(50)], "graph"),
            call_us=summarize([draw.random() for _ in range(50)], "events"),
        )
        for step in range(9) for shape in range(10) for inputs in ("random", "skewed", "structured")
    ]  # fmt: skip
    assert store.save_run(tmp_path, record("r1", *rows), []).stat().st_size <= 40_000


def test_one_row_for_all_input_classes(tmp_path: Path) -> None:
    right = row(call_us=None)
    worse = row(inputs="full", device_us=None, max_abs_err=0.5, exact=False)
    wrong = row(inputs="structured", device_us=None, status="wrong", reason="off", exact=False)
    store.save_run(tmp_path, _run(1, right, worse), [])
    (found,) = table(tmp_path)
    assert (found["status"], found["classes"], found["exact"]) == ("pass", "2", "no")
    assert (found["max_abs_err"], found["device_median_us"]) == ("0.5", "40")
    store.save_run(tmp_path, _run(2, right, worse, wrong), [])
    (found,) = table(tmp_path)
    assert (found["status"], found["reason"], found["classes"]) == ("wrong", "off", "3")


def test_what_was_skipped_replaces_no_row(tmp_path: Path) -> None:
    skipped = row(status="skipped", exact=None, max_abs_err=None, device_us=None, reason="limits")
    store.save_run(tmp_path, _run(1, row()), [])
    store.save_run(tmp_path, _run(2, skipped, row("v01")), [])
    store.save_run(tmp_path, _run(3, skipped), [])
    assert [(r["step"], r["status"]) for r in table(tmp_path)] == [("v00", "pass"), ("v01", "pass")]
    assert [len(rows) for rows in store.newest_figures(tmp_path)[0].values()] == [2]


def test_an_older_run_that_comes_later_changes_nothing(tmp_path: Path) -> None:
    store.save_run(tmp_path, _run(5, row(median=50.0)), [])
    store.save_run(tmp_path, _run(4, row(median=40.0), row("v01")), [])
    assert [(r["step"], r["device_median_us"]) for r in table(tmp_path)] == [
        ("v00", "50"), ("v01", "40"),
    ]  # fmt: skip
    assert "up to 20300101T000005Z-00000005;" in (tmp_path / "nvidia-h200/table.md").read_text()


def test_saving_and_making_anew_give_the_same_tables(tmp_path: Path) -> None:
    draw = random.Random(3)
    steps, shapes = [f"v{i}" for i in range(12)], ["A", "B", "t0"]
    for number in range(40):
        rows = [
            row(
                draw.choice(steps), draw.choice(shapes), draw.uniform(1, 1e6),
                inputs=draw.choice(["gpu-mode", "full"]), max_abs_err=draw.choice([None, 1 / 3]),
                exact=draw.choice([None, True, False]), sol_us=draw.choice([None, 1 / 7]),
                status=draw.choice(["pass", "pass", "wrong", "hang", "fault", "skipped"]),
                reason=draw.choice(["", "a | b\nc", 'x, "y"', "r" * 300]),
                executor=draw.choice(["gpu", "emulator"]), call_us=draw.choice([None, times(1.5)]),
            )
            for _ in range(6)
        ]  # fmt: skip
        l2 = draw.choice(["cold", "warm", "none"])
        store.save_run(tmp_path, _run(number, *rows, protocol=replace(PROTOCOL, l2=l2)), [])
    saved = tables(tmp_path)
    store.rebuild_tables(tmp_path / "nvidia-h200")
    assert tables(tmp_path) == saved
    (figures,) = store.newest_figures(tmp_path)[0].values()
    text = device_table.write_csv(figures)
    assert text.encode() == saved[1], "a table that was read is written as it was"


OPENED = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from conftest import result_row, run_record
from kernelbench.records import store
import filelock
folder, number = Path(sys.argv[1]), 999_999
record = run_record(result_row("v07"), id=f"20300101T{number}Z-0")
seen = []
sys.addaudithook(lambda event, values: seen.append((event, str(values[0])))
                 if event in ("open", "os.listdir", "os.scandir") else None)
store.save_run(folder, record, [{"t": [1]}])
for event, path in [*seen]:
    if path.startswith(str(folder)):
        print(event, Path(path).relative_to(folder).parent)
"""


def _opened(folder: Path, records_there: int) -> list[str]:
    """What one save opens and lists where so many records are already; a line each."""
    for number in range(records_there):
        path = folder / "nvidia-h200" / "runs" / f"20300101T{number:06d}Z-0.json.gz"
        records.write_run(path, _run(number, row(f"v{number % 7}")))
    store.rebuild_tables(folder / "nvidia-h200")
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(folder), *sys.path],
        capture_output=True, text=True, check=True, env=environment_of(ROOT),
    )  # fmt: skip
    return sorted(done.stdout.splitlines())


def test_a_save_opens_as_many_files_whatever_is_there(tmp_path: Path) -> None:
    few, many = _opened(tmp_path / "few", 2), _opened(tmp_path / "many", 200)
    assert few == many
    assert "open nvidia-h200/runs" in many, "the record itself"
    assert not any(line.startswith(("os.listdir", "os.scandir")) and line.endswith("runs")
                   for line in many), "the older records are not even listed"  # fmt: skip


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from conftest import result_row, run_record
from kernelbench.base import files
from kernelbench.records import store
real, left = files.atomic_write, int(sys.argv[2])
def write_text(path, text):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    with real(path) as stream:
        stream.write(text.encode())
store.files.write_text = write_text
store.save_run(Path(sys.argv[1]), run_record(result_row("v07"), id="20300101T000007Z-0"), [])
"""


@pytest.mark.parametrize("written", [1, 2], ids=["before the tables", "between the tables"])
def test_the_next_save_makes_up_for_a_killed_one(written: int, tmp_path: Path) -> None:
    store.save_run(tmp_path, _run(1, row()), [])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(written), *sys.path],
        env=environment_of(ROOT),
    )
    assert done.returncode == -signal.SIGKILL
    assert len(marks(tmp_path)) == 1
    (figures,) = store.newest_figures(tmp_path)[0].values()
    assert [each.step for each in figures] == ["v00", "v07"], "a reader has it at once"
    store.save_run(tmp_path, _run(9, row("v09")), [])
    assert [r["step"] for r in table(tmp_path)] == ["v00", "v07", "v09"]
    assert marks(tmp_path) == []


def test_a_mark_without_a_record_is_taken_away_when_it_is_old(tmp_path: Path) -> None:
    path = store.save_run(tmp_path, _run(1, row()), [])
    young, old = (path.parent.parent / f".saving-{name}" for name in ("young", "old"))
    for mark in (young, old):
        mark.touch()
    os.utime(old, (0, 0))
    store.save_run(tmp_path, _run(2, row()), [])
    assert marks(tmp_path) == [young]


@pytest.mark.parametrize(
    "damage",
    ["", "step,shape\n", "<<<<<<< HEAD\n", None, "\nv00,A,gpu,cold,maybe" + "," * 17 + "\n"],
    ids=["empty", "other columns", "merge conflict", "absent", "not a status"],
)
def test_a_broken_table_is_made_anew(damage: str | None, tmp_path: Path) -> None:
    path = store.save_run(tmp_path, _run(1, row(), row("v01")), [])
    file = path.parent.parent / "table.csv"
    if damage is None:
        file.unlink()
    else:
        head = file.read_text().splitlines()[0] if damage.startswith("\n") else ""
        file.write_text(head + damage)
    (figures,) = store.newest_figures(tmp_path)[0].values()
    assert [each.step for each in figures] == ["v00", "v01"]
    store.save_run(tmp_path, _run(2, row("v02")), [])
    assert [r["step"] for r in table(tmp_path)] == ["v00", "v01", "v02"]


def test_a_record_that_was_copied_here_is_shown(tmp_path: Path) -> None:
    store.save_run(tmp_path, _run(1, row()), [])
    other = store.save_run(tmp_path / "other", _run(2, row("v01")), [])
    other.rename(tmp_path / "nvidia-h200" / "runs" / other.name)
    before = tables(tmp_path)
    (figures,) = store.newest_figures(tmp_path)[0].values()
    assert [each.step for each in figures] == ["v00", "v01"]
    assert tables(tmp_path) == before, "reading writes nothing"
    store.rebuild_tables(tmp_path / "nvidia-h200")
    assert [r["step"] for r in table(tmp_path)] == ["v00", "v01"]


def test_shapes_that_were_only_checked_share_a_row() -> None:
    stamp = "20261120T224026Z"
    first = device_table.TableRow(
        "v01", "A", "gpu-soft", "none", "pass", False, 3, 2.0, None, {}, None, stamp, ""
    )
    rows = [
        first,
        replace(first, shape="B", max_abs_err=2.5),
        replace(first, shape="u0", exact=True),
    ]
    text = device_table.write_markdown("x", stamp, rows)
    assert "|v01|A, B|gpu-soft|pass|no|2.5||2026-11-20|" in text
    assert "|v01|u0|gpu-soft|pass|yes|2||2026-11-20|" in text
    csv = device_table.write_csv(rows)
    assert f"\nv01,A,gpu-soft,,pass,no,3,2,,{stamp}\nv01,B,gpu-soft,,pass,no,3,2.5\n" in csv
