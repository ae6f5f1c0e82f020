"""The exploit suite: submissions that are wrong in one way each, through the command line.

All run in one command, one after another, so that whatever one of them does to its process, the
launcher or the terminal must leave the others alone.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import processes_with

from kernelbench.base import json_file
from kernelbench.records import run_record

SHAPE = "m=8,24:n=128:k=256"
LIMIT_S = 3
MARK = f"KERNELBENCH_TEST_MARK={secrets.token_hex(8)}"

RIGHT = ("right", "returns_fresh", "returns_strided", "noisy", "slow", "changes_defaults")
#: What they try changes nothing for the process that judges them, and their results are right.
HARMLESS = (
    "cached_by_bytes", "knows_seed", "patches_clock", "patches_event", "reaches_judge",
    "restores_inputs",
)  # fmt: skip
#: Right, but they leave a process behind that sleeps for two minutes.
LITTERING = ("leaves_child", "leaves_program")

#: Submission -> status and a pattern that its reason must match.
WRONG = {
    "cached_by_address": ("wrong", r"elements wrong"),
    "aliases_outputs": ("wrong", r"elements wrong"),
    "answers_early": ("wrong", r"never written"),
    "computes_in_len": ("wrong", r"returned Later: expected a list of 2 tensors"),
    "closes_descriptors": ("fault", r"left with code 1 in phase 'gpu-mode: first call'"),
    "constant_detector": ("wrong", r"4096 of 4096 output elements were never written"),
    "describes_falsely": ("fault", r"process answered a tensor beyond its memory"),
    "dispatch_mode_on": ("wrong", r"never written"),
    "exits": ("fault", r"left with code 0 in phase 'gpu-mode: first call'"),
    "exits_on_import": ("fault", r"in phase 'load': SystemExit: not today"),
    "exits_when_timed": ("fault", r"left with code 0 in phase '(warm-up|timed call)'"),
    "forges_messages": ("fault", r"code 1 .*: the submission's process: the answer has \d+ bytes"),
    "forks_and_leaves": ("fault", r"process \d+ answered in place of \d+"),
    "forks_and_waits": ("fault", r"process \d+ answered in place of \d+"),
    "garbage_when_timed": ("(wrong|fault)", r"returned NoneType: expected a list of 2 tensors"),
    "hangs_when_timed": ("hang", r"no answer within 3 s in phase '(warm-up|timed call)'"),
    "idle_when_timed": ("wrong", r"timed output is wrong"),
    "ignores_scales": ("wrong", r"elements wrong"),
    "import_error": ("fault", r"No module named 'no_such_module' \(import_error.py:3\)"),
    "interrupts": ("fault", r"left with code 1 .*: KeyboardInterrupt"),
    "killed": ("fault", r"SIGKILL \(killed from outside, or out of memory\)"),
    "kills_launcher": ("fault", r"SIGKILL"),
    "late_writer": ("wrong", r"never written"),
    "leaves_unwritten": ("wrong", r"4096 of 4096 output elements were never written"),
    "loops_forever": ("hang", r"no answer within 3 s in phase 'gpu-mode: first call'"),
    "loops_on_import": ("hang", r"no answer within 3 s in phase 'load'"),
    "not_callable": ("fault", r"not_callable.py defines no custom_kernel"),
    "one_bad_element": ("wrong", r"group 1 row 23 column 127: .*; 1 of 4096 elements wrong"),
    "one_infinity": ("wrong", r"group 0 row 0 column 0: got inf.*; 1 of 4096"),
    "one_nan": ("wrong", r"group 1 row 3 column 5: got nan.*; 1 of 4096"),
    "out_of_memory": ("fault", r"first call: .*memory"),
    "overwrites_inputs": ("wrong", r"overwrote its inputs \(operand 0: 1 elements"),
    "overwrites_scales": ("wrong", r"overwrote its inputs"),
    "patches_clone": ("wrong", r"never written"),
    "patches_compare": ("wrong", r"elements wrong"),
    "patches_copies": ("wrong", r"never written"),
    "patches_found_clock": ("wrong", r"its clock says 0 µs a call, the judge has waited \d+ µs"),
    "poison_detector": ("wrong", r"never written"),
    "races_judge": ("wrong", r"never written|elements wrong"),
    "raises": ("fault", r"raised ValueError: on purpose over two lines \(raises.py:5\)"),
    "raises_when_timed": ("fault", r"while timed: raised RuntimeError: call 10"),
    "recursion": ("fault", r"RecursionError"),
    "replaces_modules": ("fault", r"left with code 1"),
    "returns_inputs": ("wrong", r"elements wrong"),
    "returns_none": ("wrong", r"returned NoneType: expected a list of 2 tensors"),
    "returns_numbers": ("wrong", r"output 0 is float: expected float16\[8, 128, 1\] on cpu"),
    "returns_subclass": ("wrong", r"output 0 is a Lazy: expected a plain torch.Tensor"),
    "returns_text": ("wrong", r"returned str: expected a list of 2 tensors"),
    "returns_too_few": ("wrong", r"returned 1 outputs: expected 2"),
    "returns_wrong_device": ("wrong", r"on meta: expected float16\[8, 128, 1\] on cpu"),
    "returns_wrong_dtype": ("wrong", r"output 0 is float32\[8, 128, 1\]"),
    "returns_wrong_shape": ("wrong", r"output 0 is float16\[8, 128\] on cpu"),
    "right_once": ("wrong", r"elements wrong"),
    "rounds_the_reference": ("wrong", r"elements wrong"),
    "segfault": ("fault", r"ended by SIGSEGV"),
    "stale_output": ("wrong", r"elements wrong"),
    "stops_judge": ("hang", r"no answer within 3 s"),
    "stops_itself": ("hang", r"no answer within 3 s"),
    "swapped_groups": ("wrong", r"output 0 is float16\[24, 128, 1\]"),
    "swapped_nibbles": ("wrong", r"elements wrong"),
    "swapped_scales": ("wrong", r"elements wrong"),
    "swapped_sides": ("wrong", r"elements wrong"),
    "sys_exit": ("fault", r"left with code 1 .*: SystemExit: 0"),
    "writes_before_start": ("wrong", r"wrote outside its outputs"),
    "writes_nan": ("wrong", r"got nan.*4096 of 4096 elements wrong"),
    "writes_old_memory": ("wrong", r"never written"),
    "writes_once": ("wrong", r"never written"),
    "writes_part": ("wrong", r"256 of 4096 output elements were never written"),
    "writes_past_end": ("wrong", r"wrote outside its outputs"),
    "writes_zeros": ("wrong", r"elements wrong"),
    "wrong_when_timed": ("wrong", r"timed output is wrong: group 0 row 0 column 0"),
}


@pytest.fixture(scope="module")
def suite(
    bench: Callable[..., Any], submissions: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Every submission's row, with the outcome of the command under ``""``."""
    results = tmp_path_factory.mktemp("results")
    names = [*WRONG, *LITTERING, *RIGHT, *HARMLESS, "not_here", "cached_when_timed"]
    outcome = bench(
        "run", *[submissions / f"{name}.py" for name in names],
        "--shape", SHAPE, "--inputs", "gpu-mode", "--budget", 0.2, "--reps", 30,
        "--timeout", LIMIT_S, "--seed", 7, "--results", results, "--json", "-",
        env=dict([MARK.split("=")]),
    )  # fmt: skip
    value = json.loads(outcome.out)
    rows: dict[str, Any] = {row["step"]: row for row in value["results"]}
    assert list(rows) == names
    return {"": (outcome, value, results), **rows}


def test_there_is_an_expectation_for_every_submission(submissions: Path) -> None:
    there = {path.stem for path in submissions.glob("*.py") if not path.stem.startswith("gpu_")}
    apart = {"not_here", "half_accumulation", "cached_when_timed"}
    assert there == {*WRONG, *LITTERING, *RIGHT, *HARMLESS} | apart


@pytest.mark.parametrize("name", WRONG)
def test_rejected(name: str, suite: dict[str, Any]) -> None:
    status, pattern = WRONG[name]
    row = suite[name]
    assert re.fullmatch(status, row["status"]), row
    assert re.search(pattern, row["reason"]), row["reason"]
    assert "\n" not in row["reason"]
    assert row["call_us"] is None
    assert row["device_us"] is None


@pytest.mark.parametrize("name", [*RIGHT, *LITTERING, *HARMLESS])
def test_accepted(name: str, suite: dict[str, Any]) -> None:
    row = suite[name]
    assert (row["status"], row["exact"], row["max_abs_err"]) == ("pass", True, 0.0), row
    assert row["call_us"]["reps"] > 0
    assert row["call_us"]["method"] == "wall"


def test_cannot_run_here_is_skipped_not_failed(suite: dict[str, Any]) -> None:
    row = suite["not_here"]
    assert row["status"] == "skipped"
    assert row["reason"] == "needs a device that nobody has"


def test_caching_that_starts_after_the_check_is_found(suite: dict[str, Any]) -> None:
    assert suite["cached_when_timed"]["status"] == "wrong", suite["cached_when_timed"]


def test_the_whole_run_fails_once_and_is_saved_whole(suite: dict[str, Any]) -> None:
    outcome, value, results = suite[""]
    assert outcome.code == 3
    (saved,) = run_record.list_runs(results)
    samples = f"{run_record.id_of(saved)}.samples.json.gz"
    assert json_file.read_json(saved) == value | {"samples_file": samples}
    table = next(results.glob("*/table.md")).read_text()
    assert all(f"|{name}|" in table for name in WRONG)
    assert not [path for path in results.rglob(".*") if path.name != ".lock"]


def test_noise_of_a_step_reaches_neither_stdout_nor_stderr(suite: dict[str, Any]) -> None:
    outcome, _, _ = suite[""]
    assert "not the record" not in outcome.out
    assert "xxxx" not in outcome.out + outcome.err
    assert "yyyy" not in outcome.err


def test_no_process_is_left_behind(suite: dict[str, Any]) -> None:
    """Launchers, workers and what steps had started carry the mark in their environment."""
    deadline = time.monotonic() + 5
    while (left := processes_with(MARK)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def test_partial_sums_in_half_precision_are_rejected(
    bench: Callable[..., Any], submissions: Path
) -> None:
    outcome = bench(
        "run", submissions / "half_accumulation.py", submissions / "right.py",
        "--shape", "m=64:n=128:k=2048", "--check-only", "--no-save", "--json", "-",
    )  # fmt: skip
    rows = {(row["step"], row["inputs"]): row for row in json.loads(outcome.out)["results"]}
    assert rows["half_accumulation", "full"]["status"] == "wrong"
    assert {rows["right", c]["status"] for c in ("gpu-mode", "full", "structured")} == {"pass"}
    assert outcome.code == 3


def test_right_submissions_exit_0(bench: Callable[..., Any], submissions: Path) -> None:
    outcome = bench("run", submissions / "right.py", "--shape", SHAPE, "--no-save", "--check-only")
    assert outcome.code == 0
    assert "PASS" in outcome.out
    assert "1 passed of 1" in outcome.out


def test_a_hang_costs_one_row_per_shape_and_no_more(
    bench: Callable[..., Any], submissions: Path
) -> None:
    """The other shapes of the step that hangs, and the other steps, still run."""
    outcome = bench(
        "run", submissions / "loops_forever.py", submissions / "killed.py",
        submissions / "right.py", "--shape", "u0", "--shape", "u2", "--inputs", "gpu-mode",
        "--inputs", "structured", "--timeout", 2, "--check-only", "--no-save", "--json", "-",
    )  # fmt: skip
    rows = json.loads(outcome.out)["results"]
    found = [(row["step"], row["shape"], row["inputs"], row["status"]) for row in rows]
    assert found == [
        (step, shape, inputs, status)
        for step, statuses in (
            ("loops_forever", ("hang", "skipped")),
            ("killed", ("fault", "skipped")),
            ("right", ("pass", "pass")),
        )
        for shape in ("u0", "u2")
        for inputs, status in zip(("gpu-mode", "structured"), statuses, strict=True)
    ]
    assert "no answer within 2 s" in rows[0]["reason"]
    assert rows[1]["reason"] == "not run after the hang"
    assert outcome.code == 3
