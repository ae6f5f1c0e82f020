"""outcomes.json: what has been shown right, kept when the records are not."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, result_row, run_record

from kernelbench.base.errors import RecordError
from kernelbench.executors.emulated import EMULATOR
from kernelbench.lineages.shape_table import outcome_rows, shape_table
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import load_lineages
from kernelbench.records.outcomes import (
    EMULATING,
    Outcomes,
    outcomes_text,
    path_of_outcomes,
    read_outcomes,
    with_runs,
    write_outcomes,
)
from kernelbench.records.run_record import RunRecord


def emulated(name: str, sms: int, *steps: str, status: str = "pass", **changes: Any) -> RunRecord:
    """Every class of every step on two shapes."""
    rows = [
        result_row(
            step, shape, executor="emulator", inputs=inputs, status=status, device_us=None,
            **changes,
        )
        for step, shape, inputs in itertools.product(steps, ("A", "t0"), ("full", "gpu-mode"))
    ]  # fmt: skip
    return run_record(*rows, id=name, device="CPU x", extra={"emulation": {"sms": sms}})


def statuses(outcomes: Outcomes, step: str) -> set[tuple[str, str]]:
    return {(each.run, each.status) for each in outcomes.values() if each.step == step}


def test_outcomes_round_trip(tmp_path: Path) -> None:
    runs = [
        emulated("r1", 1, "v01", "v2", "v10"),
        emulated("r2", 4, "v01", status="hang", reason="no fiber can run"),
        run_record(result_row("v01"), result_row("v01", "B"), id="r3"),
    ]
    found = with_runs({}, runs)
    path = write_outcomes(tmp_path, found)
    assert path == path_of_outcomes(tmp_path)
    assert read_outcomes(tmp_path) == found
    assert outcomes_text(read_outcomes(tmp_path)) == path.read_text()


def test_equal_outcomes_are_one_line(tmp_path: Path) -> None:
    lines = outcomes_text(with_runs({}, [emulated("r1", 1, "v10", "v2")])).splitlines()
    (block,) = [json.loads(line.rstrip(",")) for line in lines[1:-1]]
    assert block["steps"] == ["v2", "v10"]
    assert block["shapes"] == ["A", "t0"]
    assert block["inputs"] == ["full", "gpu-mode"]
    assert block["emulation"] == {"sms": 1}


def test_the_newest_counts_whichever_comes_first(tmp_path: Path) -> None:
    old, new = emulated("r1", 1, "v01", "v02"), emulated("r2", 1, "v01", status="wrong")
    for order in ([old, new], [new, old]):
        found = with_runs({}, order)
        assert statuses(found, "v01") == {("r2", "wrong")}
        assert statuses(found, "v02") == {("r1", "pass")}


def test_records_name_the_emulator_as_it_names_itself() -> None:
    assert EMULATOR.name == EMULATING


def test_another_machine_is_another_setting() -> None:
    found = with_runs({}, [emulated("r1", 1, "v01", status="hang"), emulated("r2", 4, "v01")])
    assert statuses(found, "v01") == {("r1", "hang"), ("r2", "pass")}


def test_adding_a_run_twice_changes_nothing(tmp_path: Path) -> None:
    run = emulated("r1", 1, "v01")
    write_outcomes(tmp_path, with_runs({}, [run]))
    before = path_of_outcomes(tmp_path).read_bytes()
    write_outcomes(tmp_path, with_runs(read_outcomes(tmp_path), [run]))
    assert path_of_outcomes(tmp_path).read_bytes() == before


def test_no_file_no_outcomes(tmp_path: Path) -> None:
    assert read_outcomes(tmp_path) == {}


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema": "kernelbench.outcomes/0", "blocks": []}'])
def test_another_version_is_refused(text: str, tmp_path: Path) -> None:
    path_of_outcomes(tmp_path).write_text(text)
    with pytest.raises(RecordError, match=r"not a (valid )?file of outcomes"):
        read_outcomes(tmp_path)


def test_the_table_of_a_readme_is_the_same_from_records_and_from_the_file(tmp_path: Path) -> None:
    lineages = load_lineages(project_at(ROOT))
    steps = [lineages.get(name) for name in ("v01", "v02")]
    shapes = {"A": PROBLEM.parse_shape("A", {"m": [8, 16], "n": 128, "k": 256})}
    runs = [emulated("r1", 1, "v01", "v02"), emulated("r2", 4, "v01", status="hang")]
    found = with_runs({}, runs)
    write_outcomes(tmp_path, found)
    texts = [
        shape_table(steps, shapes, PROBLEM, outcome_rows(each.values()))
        for each in (found, read_outcomes(tmp_path))
    ]
    assert texts[0] == texts[1]
    assert "✗E" in texts[0]
