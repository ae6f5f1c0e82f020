"""The exploit suite on a GPU: streams, faults, hangs, memory, capture, timers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Outcome, write_project
from conftest import launch as launch_anywhere

from kernelbench.machine import devices

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not devices.gpus(), reason="no GPU here"),
]

QUICK = ("--inputs", "gpu-mode", "--reps", 60, "--seed", 7, "--no-save", "--json", "-")
SHAPE = "m=64,128:n=512:k=1024"

RIGHT = (
    "right", "gpu_right", "gpu_own_stream", "gpu_uncapturable", "gpu_persisting", "returns_fresh",
    "returns_strided", "noisy", "leaves_program",
)  # fmt: skip
#: Submission -> status and a pattern that its reason must match.
WRONG = {
    "gpu_no_join": ("wrong", r"(still being written|end event|never written|elements wrong)"),
    "gpu_no_wait": ("wrong", r"read its inputs before they were written"),
    "gpu_wrong_when_timed": ("wrong", r"timed output"),
    "gpu_works_on_when_timed": ("wrong", r"work goes on after the step.s end event"),
    "cached_by_address": ("wrong", r""),
    "constant_detector": ("wrong", r"never written"),
    "exits": ("fault", r"left with code 0"),
    "killed": ("fault", r"SIGKILL"),
    "late_writer": ("wrong", r""),
    "leaves_unwritten": ("wrong", r"never written"),
    "one_bad_element": ("wrong", r"1 of \d+ elements wrong"),
    "one_nan": ("wrong", r"got nan"),
    "overwrites_inputs": ("wrong", r"overwrote its inputs"),
    "patches_clock": ("wrong", r"replaced a timer"),
    "patches_event": ("wrong", r"replaced a timer"),
    "poison_detector": ("wrong", r"never written"),
    "raises": ("fault", r"raised ValueError: on purpose"),
    "returns_wrong_device": ("wrong", r"on meta: expected"),
    "right_once": ("wrong", r""),
    "segfault": ("fault", r"SIGSEGV"),
    "stale_output": ("wrong", r""),
    "swapped_scales": ("wrong", r"elements wrong"),
    "writes_past_end": ("wrong", r"wrote outside its outputs"),
    "wrong_when_timed": ("wrong", r""),
}


def launch(*arguments: object, **more: Any) -> Outcome:
    """Run the command line with the GPUs in view."""
    return launch_anywhere(*arguments, gpu=True, **more)


@pytest.fixture(scope="module")
def suite(submissions: Path) -> dict[str, Any]:
    """Each submission's row from one command."""
    names = [*WRONG, *RIGHT]
    outcome = launch(
        "run", *[submissions / f"{name}.py" for name in names], "--shape", SHAPE, *QUICK,
        timeout=280,
    )  # fmt: skip
    assert outcome.code == 3, outcome.err
    rows = {row["step"]: row for row in json.loads(outcome.out)["results"]}
    assert list(rows) == names
    return rows


@pytest.mark.parametrize("name", WRONG)
def test_rejected(name: str, suite: dict[str, Any]) -> None:
    status, pattern = WRONG[name]
    row = suite[name]
    assert row["status"] == status, row
    assert re.search(pattern, row["reason"]), row["reason"]
    assert row["call_us"] is None
    assert row["device_us"] is None


@pytest.mark.parametrize("name", RIGHT)
def test_accepted(name: str, suite: dict[str, Any]) -> None:
    row = suite[name]
    assert (row["status"], row["exact"]) == ("pass", True), row
    assert row["executor"] == "gpu"
    assert row["call_us"]["method"] == "events"
    assert row["device_us"]["median"] > 0
    assert row["call_us"]["reps"] == row["device_us"]["reps"] == 60


def test_device_time_is_by_graph_where_the_call_can_be_captured(suite: dict[str, Any]) -> None:
    assert suite["gpu_right"]["device_us"]["method"] == "graph"
    assert suite["gpu_own_stream"]["device_us"]["method"] == "graph"


def test_device_time_is_by_profiler_elsewhere_and_says_why(suite: dict[str, Any]) -> None:
    row = suite["gpu_uncapturable"]
    assert row["device_us"]["method"] == "profiler"
    assert any("capture failed" in note for note in row["notes"])


def test_both_ways_to_take_device_time_agree(suite: dict[str, Any]) -> None:
    """The same kernels, but for a reduction of one output: gaps in a graph are small."""
    graph, profiler = suite["gpu_right"]["device_us"], suite["gpu_uncapturable"]["device_us"]
    assert 0.4 < profiler["median"] / graph["median"] < 1.5


def test_device_time_is_not_above_call_time(suite: dict[str, Any]) -> None:
    row = suite["gpu_right"]
    assert row["device_us"]["median"] < 1.1 * row["call_us"]["median"]


def test_a_stream_of_ones_own_is_timed_in_full(suite: dict[str, Any]) -> None:
    own, plain = suite["gpu_own_stream"]["device_us"], suite["gpu_right"]["device_us"]
    assert own["median"] > 0.8 * plain["median"]


def test_persisting_lines_do_not_make_a_cold_time_warm(suite: dict[str, Any]) -> None:
    marked, plain = suite["gpu_persisting"]["device_us"], suite["gpu_right"]["device_us"]
    assert marked["median"] > 0.85 * plain["median"]


def test_the_default_stream_only(submissions: Path, tmp_path: Path) -> None:
    """A submission gets a note, and no time that leaves its work out; a step of a lineage fails."""
    outcome = launch(
        "run", submissions / "gpu_default_stream.py", submissions / "gpu_right.py", "--shape",
        SHAPE, *QUICK,
    )  # fmt: skip
    row, plain = json.loads(outcome.out)["results"]
    if row["status"] == "pass":
        assert "works on the default stream only" in row["notes"]
        assert row["device_us"]["median"] > 0.8 * plain["device_us"]["median"]
        assert row["call_us"]["median"] > 0.8 * plain["device_us"]["median"]
    else:
        assert row["status"] == "wrong"
        assert re.search("timed output|end event", row["reason"])
    source = (submissions / "gpu_default_stream.py").read_text()
    root = write_project(tmp_path / "p", {"s00": source})
    for name in ("right", "gpu_right"):
        (root / "tiny" / "s00" / f"{name}.py").write_text((submissions / f"{name}.py").read_text())
    step = launch("run", "s00", "--shape", "u0", "--check-only", *QUICK, root=root)
    assert step.code == 3
    (row,) = json.loads(step.out)["results"]
    assert row["status"] == "wrong"
    assert "a current stream of its own" in row["reason"]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("gpu_illegal_access", r"illegal memory access"),
        ("gpu_assert", r"device-side assert"),
        ("gpu_out_of_memory", r"out of memory"),
    ],
)
def test_a_fault_costs_one_row(name: str, pattern: str, submissions: Path) -> None:
    """The next shape of the step and the next step run on a sound device."""
    outcome = launch(
        "run", submissions / f"{name}.py", submissions / "gpu_right.py", "--shape", "u0",
        "--shape", "u2", *QUICK,
    )  # fmt: skip
    assert outcome.code == 3
    rows = json.loads(outcome.out)["results"]
    found = [(row["step"], row["shape"], row["status"]) for row in rows]
    assert found == [
        (name, "u0", "fault"), (name, "u2", "pass"), ("gpu_right", "u0", "pass"),
        ("gpu_right", "u2", "pass"),
    ]  # fmt: skip
    assert re.search(pattern, rows[0]["reason"]), rows[0]["reason"]
    assert all(row["device_us"] is not None for row in rows[1:])


def test_a_hang_of_the_device_costs_one_row(submissions: Path) -> None:
    outcome = launch(
        "run", submissions / "gpu_spins.py", submissions / "gpu_right.py", "--shape", "u0",
        "--timeout", 4, "--check-only", *QUICK,
    )  # fmt: skip
    rows = json.loads(outcome.out)["results"]
    assert [(row["step"], row["status"]) for row in rows] == [
        ("gpu_spins", "hang"),
        ("gpu_right", "pass"),
    ]
    assert "no answer within 4 s" in rows[0]["reason"]
    assert outcome.code == 3


def test_the_executor_and_device_are_the_gpu() -> None:
    outcome = launch("run", "v00", "--shape", "u0", "--check-only", *QUICK)
    value = json.loads(outcome.out)
    assert value["device"] == devices.gpus()[0].name
    assert {row["executor"] for row in value["results"]} == {"gpu"}


def test_a_device_that_is_not_there() -> None:
    outcome = launch("run", "v00", "--shape", "u0", "--device", 99, "--no-save")
    assert outcome.code in (2, 5)
    assert "99" in outcome.error
