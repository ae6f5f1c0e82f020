"""The JSON that scripts read: exactly one document on stdout, validated when it is read again."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, launch, read_document

from kernelbench.base.errors import RecordError
from kernelbench.cli import invoke as run_cli
from kernelbench.records import run_record

ROW = {"step", "shape", "inputs", "executor", "status", "exact", "max_abs_err", "call_us"}
ROW |= {"device_us", "reason"}
STATUSES = {"pass", "wrong", "hang", "fault", "skipped"}


@pytest.fixture(scope="module")
def run_json(submissions: Path) -> Any:
    """The record of a run with a row of several statuses."""
    outcome = launch(
        "run", "v00", submissions / "raises.py", submissions / "one_nan.py",
        submissions / "not_here.py", "--shape", TINY, "--inputs", "gpu-mode", "--budget", 0.2,
        "--reps", 20, "--no-save", "--json", "-",
    )  # fmt: skip
    assert outcome.code == 3
    assert "v00" in outcome.err, "the table goes to stderr"
    return read_document(outcome.out)


def test_run(run_json: Any) -> None:
    assert run_json["schema"] == "kernelbench.run/3"
    assert isinstance(run_json["device"], str)
    assert [row["step"] for row in run_json["results"]] == ["v00", "raises", "one_nan", "not_here"]
    for row in run_json["results"]:
        assert set(row) >= ROW
        assert row["status"] in STATUSES
        assert row["device_us"] is None
        assert row["reason"] == "" if row["status"] == "pass" else row["reason"]
    good, raised, nan, _ = run_json["results"]
    assert set(good["call_us"]) >= {"median", "mean", "min", "p05", "p95", "std", "reps", "method"}
    assert good["call_us"]["min"] <= good["call_us"]["median"] <= good["call_us"]["p95"]
    assert good["exact"] is True
    assert (raised["exact"], raised["max_abs_err"], raised["call_us"]) == (None, None, None)
    assert nan["max_abs_err"] is None
    assert nan["exact"] is False
    assert run_record.parse_run(run_json, "stdout").results[0].status == "pass"


def test_stdout_and_file_hold_the_same(bench: Callable[..., Any], tmp_path: Path) -> None:
    outcome = bench(
        "run", "v00", "--shape", TINY, "--check-only", "--no-save", "--json", tmp_path / "x.json"
    )
    assert "→ 1 passed of 1" in outcome.out
    assert run_record.read_run(tmp_path / "x.json").results[0].metrics.get("call") is None


def test_list(in_checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["list", "--json", "-"]) == 0
    value = read_document(capsys.readouterr().out)
    assert {"schema", "steps"} == set(value)
    wanted = {"name", "lineage", "parent", "kind", "arch", "status", "reported"}
    assert all(wanted == set(step) for step in value["steps"])
    lineages: dict[str, list[str]] = {}
    for step in value["steps"]:
        lineages.setdefault(step["lineage"], []).append(step["name"])
    assert {f"v{i:02d}" for i in range(24)} <= set(lineages["group_gemm"])
    assert {f"m{i:02d}" for i in range(6)} <= set(lineages["moe"])
    assert {step["status"] for step in value["steps"]} <= {"planned", "works", "failed", "fixed"}


def edited(change: Callable[[Any], Any]) -> Callable[[Any], str]:
    def apply(value: Any) -> str:
        value = copy.deepcopy(value)
        change(value)
        return json.dumps(value)

    return apply


BROKEN: dict[str, tuple[Callable[[Any], str], str]] = {
    "unknown field": (
        edited(lambda v: v["results"][0].update(extra=1)),
        "record.results[0]: unknown field 'extra'",
    ),
    "missing field": (
        edited(lambda v: v["results"][1].pop("status")),
        "record.results[1]: missing field 'status'",
    ),
    "wrong type": (
        edited(lambda v: v["protocol"].update(reps="20")),
        "record.protocol.reps: expected int, found str",
    ),
    "bool for a number": (
        edited(lambda v: v["environment"].update(sms=True)),
        "record.environment.sms: expected int, found bool",
    ),
    "status": (
        edited(lambda v: v["results"][0].update(status="good")),
        "record.results[0].status: 'good' is not one of",
    ),
    "time": (
        edited(lambda v: v["results"][0]["call_us"].pop("median")),
        "record.results[0].call_us: missing field 'median'",
    ),
    "schema version": (
        edited(lambda v: v.update(schema="kernelbench.run/0")),
        "schema 'kernelbench.run/0', expected 'kernelbench.run/3'",
    ),
    "no schema": (edited(lambda v: v.pop("schema")), "no schema field"),
    "truncated": (lambda v: json.dumps(v)[:300], "is not valid JSON"),
    "empty": (lambda v: "", "is not valid JSON"),
    "another document": (lambda v: "[1, 2]", "no schema field"),
    "not a number": (
        lambda v: json.dumps(v).replace('"seed": ', '"seed": NaN, "x": '),
        "record.protocol",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_reading_refuses(name: str, run_json: Any, tmp_path: Path) -> None:
    make, message = BROKEN[name]
    path = tmp_path / "broken.json"
    path.write_text(make(run_json))
    with pytest.raises(RecordError) as caught:
        run_record.read_run(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_baseline_is_named_by_the_gate(
    run_json: Any, tmp_path: Path, in_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(run_json))
    bad.write_text(json.dumps(run_json)[:200])
    assert run_cli(["gate", "--baseline", str(bad), "--current", str(good)]) == 5
    captured = capsys.readouterr()
    assert str(bad) in captured.err
    assert captured.err.count("\n") == 1
