"""Cheats at what judges and times a submission, on a GPU: there its judge is another process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import launch

from kernelbench.machine import devices
from kernelbench.worker.jobs import JUDGE_ON_GPU

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not devices.gpus(), reason=devices.gpu_problem() or "no GPU"),
]

#: Asks for that.
APART = {JUDGE_ON_GPU: "apart"}
SHAPE = "m=64,128:n=512:k=1024"
OPTIONS = ("--inputs", "gpu-mode", "--reps", 40, "--seed", 7, "--timeout", 10, "--no-save")

#: What they try changes nothing for the process that judges them, and their results are right.
HARMLESS = ("gpu_reaches_judge", "knows_seed", "reaches_judge", "restores_inputs")
#: Submission -> status and a pattern that its reason must match. Those without ``gpu`` in their
#: names are cheats on a CPU, too.
WRONG = {
    "aliases_outputs": ("wrong", r"elements wrong"),
    "answers_early": ("wrong", r"never written"),
    "cached_when_timed": ("wrong", r""),
    "closes_descriptors": ("fault", r"left with code 1"),
    "computes_in_len": ("wrong", r"returned Later: expected a list of 2 tensors"),
    "describes_falsely": ("fault", r"process answered a tensor beyond its memory"),
    "dispatch_mode_on": ("wrong", r"never written"),
    "exits_when_timed": ("fault", r"left with code 0"),
    "forges_messages": ("fault", r"code 1"),
    "forks_and_leaves": ("fault", r"process \d+ answered in place of \d+"),
    "forks_and_waits": ("fault", r"process \d+ answered in place of \d+"),
    "garbage_when_timed": ("(wrong|fault)", r"returned NoneType: expected a list of 2 tensors"),
    "gpu_answers_before_done": ("wrong", r"never written|elements wrong"),
    "gpu_cached_by_bytes": ("wrong", r"by the judge's clock"),
    "gpu_patches_found_events": (
        "wrong",
        r"its timer says \d+ µs, but by the judge's clock|goes on after the step's end event",
    ),
    "gpu_replays_old": ("wrong", r"timed output is wrong"),
    "gpu_scribbles": ("wrong", r""),
    "gpu_spoils_poison": ("wrong", r"timed output is wrong"),
    "idle_when_timed": ("wrong", r""),
    "kills_launcher": ("fault", r"SIGKILL"),
    "patches_clone": ("wrong", r"never written"),
    "patches_compare": ("wrong", r"elements wrong"),
    "patches_copies": ("wrong", r"never written"),
    "races_judge": ("wrong", r"never written|elements wrong"),
    "raises_when_timed": ("fault", r"raised RuntimeError: call 10"),
    "replaces_modules": ("fault", r"left with code 1"),
    "returns_subclass": ("wrong", r"output 0 is a Lazy: expected a plain torch.Tensor"),
    "stops_judge": ("hang", r"no answer within 10 s"),
    "writes_old_memory": ("wrong", r"never written"),
}  # fmt: skip


@pytest.fixture(scope="module")
def suite(submissions: Path) -> dict[str, Any]:
    """Each submission's row from one command."""
    names = [*WRONG, *HARMLESS]
    files = [submissions / f"{name}.py" for name in names]
    outcome = launch(
        "run", *files, "--shape", SHAPE, *OPTIONS, "--json", "-", gpu=True, timeout=280, env=APART
    )
    assert outcome.code == 3, outcome.err
    rows = {row["step"]: row for row in json.loads(outcome.out)["results"]}
    assert list(rows) == names
    return rows


@pytest.mark.parametrize("name", WRONG)
def test_rejected(name: str, suite: dict[str, Any]) -> None:
    status, pattern = WRONG[name]
    row = suite[name]
    assert re.fullmatch(status, row["status"]), row
    assert re.search(pattern, row["reason"]), row["reason"]
    assert "\n" not in row["reason"]
    assert row["device_us"] is None or row["call_us"] is None


@pytest.mark.parametrize("name", HARMLESS)
def test_accepted(name: str, suite: dict[str, Any]) -> None:
    row = suite[name]
    assert (row["status"], row["exact"]) == ("pass", True), row
    assert row["call_us"]["median"] > 0
    # The others wait for the device in the middle, which no graph can hold.
    if name == "gpu_reaches_judge":
        assert row["device_us"]["median"] > 0
    else:
        assert row["device_us"] is None
        assert any(note.startswith("no device time: capture failed") for note in row["notes"])


def test_both_arms_of_a_comparison_are_judged(submissions: Path, tmp_path: Path) -> None:
    """They take turns in one process, and the judge is another one."""
    right, wrong = submissions / "gpu_right.py", submissions / "gpu_patches_found_events.py"
    options = ("--shape", SHAPE, "--sessions", 1, "--results", tmp_path)
    same = launch("ab", right, right, *options, gpu=True, env=APART)
    assert "SAME" in same.out or "AMBIGUOUS" in same.out, same.out + same.err
    found = launch("ab", right, wrong, *options, gpu=True, env=APART)
    assert "by the judge's clock" in found.out + found.err
