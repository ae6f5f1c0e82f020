"""``kernelbench show`` and ``log``."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import PROTOCOL, run_record
from conftest import result_row as row

from kernelbench.base import console, schema
from kernelbench.cli import invoke as run_cli
from kernelbench.records import ledger, store
from kernelbench.records import run_record as records
from kernelbench.records.run_record import Result


def save(folder: Path, number: int, *rows: Result, **changes: Any) -> Path:
    record = run_record(
        *rows, id=f"20300101T00000{number}Z-0", created=f"2030-01-0{number}T00:00:00+00:00",
        **changes,
    )  # fmt: skip
    return store.save_run(folder, record, [])


def entry(step: str = "v01", **changes: Any) -> ledger.LedgerEntry:
    values: dict[str, Any] = {
        "schema": ledger.SCHEMA, "id": "x", "created": "2030-01-01T10:20:30+00:00",
        "device": "NVIDIA H200", "command": "kernelbench ab", "why": "two buffers",
        "base": ledger.ArmRecord("v00", "aa"), "cand": ledger.ArmRecord(step, "bb"), "shape": "A",
        "metric": "device", "method": "graph", "verdict": "FASTER", "reason": "", "base_us": 50.0,
        "cand_us": 40.0, "change": -0.2, "ci": (-0.21, -0.19), "p_holm": 0.00004,
    }  # fmt: skip
    return ledger.LedgerEntry(**(values | changes))


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run_cli([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _project(in_checkout: Path) -> None:
    """Commands find the lineages of this checkout."""


def test_nothing_saved_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        assert "no saved runs; `kernelbench run STEP`" in call(capsys, "show", "--results", folder)
        assert "no comparisons; `kernelbench ab" in call(capsys, "log", "--results", folder)
    value = json.loads(call(capsys, "log", "--results", tmp_path, "--json", "-"))
    assert value == {"schema": "kernelbench.log/1", "entries": []}
    assert list(tmp_path.iterdir()) == []


def test_a_filter_that_matches_no_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["log", "--results", str(tmp_path), "--step", "v99"]) == 2
    assert "no comparison matches" in capsys.readouterr().err


def test_show_gives_the_newest_row_of_each_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 1, row(median=41.0), row("v01", median=30.0))
    save(tmp_path, 2, row(median=42.0))
    text = call(capsys, "show", "--results", tmp_path)
    assert "NVIDIA H200" in text
    assert " 42.00 " in text
    assert " 41.00 " not in text
    assert " 30.00 " in text
    rows = list(csv.DictReader(io.StringIO(call(
        capsys, "show", "--results", tmp_path, "--format", "csv"
    ))))  # fmt: skip
    assert [(r["step"], float(r["device_median_us"])) for r in rows] == [("v00", 42), ("v01", 30)]
    markdown = call(capsys, "show", "--results", tmp_path, "--format", "markdown")
    assert "|v00|A|" in markdown


def test_show_gives_one_row_for_a_step_and_a_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warm = replace(PROTOCOL, l2="warm")
    save(tmp_path, 1, row(median=41.0), row(inputs="full", device_us=None))
    save(tmp_path, 2, row(median=31.0), row("v01", median=30.0), protocol=warm)
    text = call(capsys, "show", "--results", tmp_path)
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["v00", "v01"]
    assert " 31.00 " in text
    assert " 41.00 " not in text, "of two L2 states the newer"
    detailed = call(capsys, "show", "v00", "--results", tmp_path)
    assert [line.split()[:5] for line in detailed.splitlines()[2:]] == [
        ["v00", "A", "full", "gpu", "cold"],
        ["v00", "A", "gpu-mode", "gpu", "cold"],
        ["v00", "A", "gpu-mode", "gpu", "warm"],
    ]
    markdown = call(capsys, "show", "v00", "--results", tmp_path, "--format", "markdown")
    assert "| v00 | A | gpu-mode | gpu | warm |" in markdown, "the rows of a terminal"


def test_show_alone_reads_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path, 1, row(median=41.0))
    path.write_bytes(b"not a record")
    assert " 41.00 " in call(capsys, "show", "--results", tmp_path)
    assert run_cli(["show", "v00", "--results", str(tmp_path)]) == 2
    assert f"warning: {path} is not valid JSON" in capsys.readouterr().err


def test_show_alone_says_when_nothing_matches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 1, row())
    for option in (["--shape", "Q"], ["--device", "tpu"]):
        assert run_cli(["show", *option, "--results", str(tmp_path)]) == 2
        assert "no saved run matches" in capsys.readouterr().err


def test_show_leaves_columns_out_before_it_folds_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1, row(median=41.0))
    monkeypatch.setattr(console.out, "width", 80)
    text = call(capsys, "show", "--results", tmp_path)
    assert " 41.00 " in text
    assert re.search(r"^no room for: rel rms, L2", text, re.MULTILINE)
    assert all(len(line) <= 80 for line in text.splitlines())


def test_show_filters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, 1, row(), row("v01"), row("v01", "B"))
    save(tmp_path, 2, row("v02"), device="NVIDIA B200")
    shown = call(
        capsys, "show", "v01", "--shape", "B", "--results", tmp_path, "--format", "csv"
    ).splitlines()
    assert len(shown) == 2
    only = call(capsys, "show", "--device", "b200", "--results", tmp_path, "--format", "csv")
    assert only.count("v02") == 1
    assert "v01" not in only


def test_show_one_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path, 1, row(median=41.0))
    save(tmp_path, 2, row(median=42.0))
    assert " 41.00 " in call(capsys, "show", "--run", path)
    assert run_cli(["show", "--run", str(tmp_path / "no.json")]) == 5
    assert f"cannot read {tmp_path / 'no.json'}" in capsys.readouterr().err


def test_an_unreadable_record_is_named_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = save(tmp_path, 1, row())
    bad = good.with_name("20300101T000009Z-0.json.gz")
    bad.write_bytes(good.read_bytes()[:100])
    assert run_cli(["show", "--results", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "v00" in captured.out
    assert f"warning: {bad} is not a whole gzip file" in captured.err


def test_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.append(tmp_path, [entry("v01"), entry("v02", verdict="SLOWER", change=0.031)])
    ledger.append(tmp_path, [entry("v03", shape="B", why="", p_holm=None, change=None, ci=None)])
    text = call(capsys, "log", "--results", tmp_path)
    lines = text.splitlines()
    assert [line.split()[4] for line in lines[1:]] == ["v00→v01", "v00→v02", "v00→v03"]
    assert "-20.00%" in lines[1]
    assert "[-21.00, -19.00]" in lines[1]
    assert "<1e-4" in lines[1]
    assert "two buffers" in lines[1]
    assert "SLOWER" in lines[2]
    assert "v00→v02" not in call(capsys, "log", "--results", tmp_path, "--step", "v03")
    assert "v03" not in call(capsys, "log", "--results", tmp_path, "--shape", "A")
    assert "v01" not in call(capsys, "log", "--results", tmp_path, "--last", "1")
    value = json.loads(call(capsys, "log", "--results", tmp_path, "--json", "-"))
    assert [schema.decode(ledger.LedgerEntry, e) for e in value["entries"]] == ledger.read_ledger(
        tmp_path
    )


def test_log_leaves_columns_out_before_it_folds_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        entry("v01", shape="qwen35-m64"),
        entry(verdict="AMBIGUOUS", change=-0.05, ci=(-2, 1)),
    ]
    ledger.append(tmp_path, entries)
    monkeypatch.setattr(console.out, "width", 80)
    text = call(capsys, "log", "--results", tmp_path)
    assert re.search(r"-5\.00%  \[-200\.00, \+100\.00\]  AMBIGUOUS", text)
    assert "no room for: date" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_broken_ledger_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.append(tmp_path, [entry()])
    with ledger.path_of(tmp_path).open("a") as stream:
        stream.write('{"schema": "kernelbench.comparison/1", "id": "half')
    assert run_cli(["log", "--results", str(tmp_path)]) == 5
    captured = capsys.readouterr()
    assert f"{ledger.path_of(tmp_path)}:2: " in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_markup_in_a_hypothesis_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = "[bold]epi[/] [link=x] [/nope]"
    ledger.append(tmp_path, [entry(why=why)])
    assert why in call(capsys, "log", "--results", tmp_path)


def test_records_are_validated(tmp_path: Path) -> None:
    path = save(tmp_path, 1, row())
    assert records.read_run(path).results == (row(),)


def test_a_reason_is_not_repeated_in_the_next_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.append(tmp_path, [entry("v03", shape=shape, why="one buffer") for shape in "AB"])
    ledger.append(tmp_path, [entry("v03", shape="C", why="two buffers")])
    lines = [line.split() for line in call(capsys, "log", "--results", tmp_path).splitlines()]
    assert [line[-1] for line in lines if line[-2:] == ["one", "buffer"] or "″" in line] == [
        "buffer", "″",
    ]  # fmt: skip
