"""The step × shape table: what it says of each combination of recorded rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import ROOT, result_row, run_record

from kernelbench.lineages.shape_table import outcome_rows, shape_table
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import Step, load_lineages
from kernelbench.records.outcomes import with_runs
from kernelbench.records.run_record import Result, RunRecord

CLASSES = PROBLEM.input_classes
SHAPES = {
    "A": PROBLEM.parse_shape("A", {"m": [8, 16], "n": 128, "k": 256}),
    "t0": PROBLEM.parse_shape("t0", {"m": [8, 16], "n": [128, 256], "k": 256}),
}


@pytest.fixture
def steps() -> list[Step]:
    """One that takes every shape and one that takes one N and K, both written."""
    lineages = load_lineages(project_at(ROOT))
    return [replace(lineages.get(name), status="works") for name in ("v01", "v04")]


def rows(
    step: str, executor: str, status: str = "pass", shape: str = "A", **values: Any
) -> list[Result]:
    """A row per input class."""
    return [
        result_row(step, shape, executor=executor, status=status, inputs=inputs, **values)
        for inputs in CLASSES
    ]


def emulated(sms: int, *found: Result) -> RunRecord:
    return run_record(*found, extra={"emulation": {"sms": sms, "mma_rounding": "fp32"}})


def cells(steps: list[Step], *runs: RunRecord) -> dict[str, list[str]]:
    text = shape_table(steps, SHAPES, PROBLEM, outcome_rows(with_runs({}, runs).values()))
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| v")]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines}


def test_nothing_recorded(steps: list[Step]) -> None:
    text = shape_table(steps, SHAPES, PROBLEM, {})
    assert "| v01 |  |  |" in text
    assert "| v04 |  | –¹ |" in text
    assert text.endswith("¹ needs one N and K for all groups (limits.nk = fixed)")


def test_planned_steps_have_no_row(steps: list[Step]) -> None:
    text = shape_table([replace(steps[0], status="planned"), steps[1]], SHAPES, PROBLEM, {})
    assert "| v01 |" not in text


def test_passes_by_executor(steps: list[Step]) -> None:
    runs = [
        run_record(*rows("v01", "gpu-soft")),
        emulated(148, *rows("v01", "emulator"), *rows("v01", "emulator", shape="t0")),
    ]
    assert cells(steps, *runs) == {"v01": ["✓SE", "✓E"], "v04": ["", "–¹"]}


def test_a_class_that_was_not_run(steps: list[Step]) -> None:
    runs = [run_record(*rows("v01", "gpu-soft")), emulated(148, *rows("v01", "emulator")[:1])]
    assert cells(steps, *runs)["v01"] == ["✓S (E)", ""]


@pytest.mark.parametrize("status", ["wrong", "hang", "fault"])
def test_the_newest_counts(steps: list[Step], status: str) -> None:
    good = run_record(*rows("v01", "gpu-soft"))
    bad = run_record(rows("v01", "gpu-soft", status, reason="x")[2])
    assert cells(steps, good, bad)["v01"][0] == "✗S"
    assert cells(steps, bad, good)["v01"][0] == "✓S"


def test_a_pass_on_one_sm_hides_no_failure_on_more(steps: list[Step]) -> None:
    many = emulated(148, *rows("v01", "emulator", "hang", reason="x"))
    one = emulated(1, *rows("v01", "emulator"))
    assert cells(steps, many, one)["v01"][0] == "✗E"


def test_what_the_step_itself_refused(steps: list[Step]) -> None:
    refused = run_record(*rows("v01", "gpu-soft", "skipped", shape="t0", reason="takes 8 groups"))
    text = shape_table(steps, SHAPES, PROBLEM, outcome_rows(with_runs({}, [refused]).values()))
    assert "| v01 |  | –¹ |" in text
    assert "| v04 |  | –² |" in text
    assert "¹ takes 8 groups" in text
