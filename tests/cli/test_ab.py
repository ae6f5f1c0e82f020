"""``kernelbench ab`` on a CPU, where call time is all that there is.

Where a test asks for a verdict, a clock that counts (``counted_clock``) stands for the machine's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import COUNTED, TINY, launch, write_project

from kernelbench.compare.api import _cannot_time
from kernelbench.machine.environment import cpu_name
from kernelbench.records import calibration_record, ledger, run_record

CALL = ("--metric", "call", "--sessions", 1, "--reps", 40, "--budget", 5)


@pytest.fixture(scope="module")
def slower(
    tmp_path_factory: pytest.TempPathFactory, submissions: Path, slow_source: str
) -> tuple[Any, Path, Path]:
    """A comparison with a candidate that sleeps for a millisecond."""
    folder = tmp_path_factory.mktemp("ab")
    (folder / "sleepy.py").write_text(slow_source)
    outcome = launch(
        "ab", submissions / "right.py", folder / "sleepy.py", "--shape", TINY, *CALL,
        "--fail-on", "slower", "--why", "a [sleep] cannot help", "--results", folder / "r",
        "--seed", 5, env=COUNTED,
    )  # fmt: skip
    return outcome, folder / "r", folder / "sleepy.py"


def test_slower_is_found_and_fails_where_asked(slower: tuple[Any, Path, Path]) -> None:
    outcome, _, _ = slower
    assert outcome.code == 1, outcome.err
    assert "1 slower by call time" in outcome.out
    (line,) = [x for x in outcome.out.splitlines() if x.startswith(TINY)]
    assert "SLOWER" in line
    change = float(re.search(r"\+([\d.]+)%", line)[1])
    assert change > 30
    assert "<1e-4" in line
    assert "why: a [sleep] cannot help" in outcome.out
    assert re.search(r"source: \+\d+ −0 lines in submission.py", outcome.out)


def test_faster_does_not_fail(
    slower: tuple[Any, Path, Path], bench: Callable[..., Any], submissions: Path, tmp_path: Path
) -> None:
    _, _, sleepy = slower
    outcome = bench(
        "ab", sleepy, submissions / "right.py", "--shape", TINY, *CALL, "--results", tmp_path,
        "--fail-on", "slower", env=COUNTED,
    )  # fmt: skip
    assert outcome.code == 0
    assert [entry.verdict for entry in ledger.read_ledger(tmp_path)] == ["FASTER"]


def test_the_ledger_has_the_comparison(slower: tuple[Any, Path, Path]) -> None:
    _, results, _ = slower
    (entry,) = ledger.read_ledger(results)
    assert entry.why == "a [sleep] cannot help"
    assert (entry.base.step, entry.cand.step, entry.shape) == ("right", "sleepy", TINY)
    assert entry.base.source_sha != entry.cand.source_sha
    assert all(re.fullmatch("[0-9a-f]{64}", a.source_sha) for a in (entry.base, entry.cand))
    assert (entry.metric, entry.method, entry.verdict) == ("call", "wall", "SLOWER")
    assert entry.ci[0] < entry.change < entry.ci[1]
    assert entry.cand_us - entry.base_us == pytest.approx(1000, abs=50)
    assert entry.protocol["seed"] == 5
    assert {"welch_p", "welch_t", "mde", "rho1", "margin"} <= set(entry.figures)
    sessions = run_record.read_samples(results / entry.samples_file)
    (session,) = sessions[0]["sessions"]
    for block in session["blocks"]:
        assert len(block["arm"]) == len(block["t_us"]) == len(block["input"])
        assert "".join(map(str, block["arm"])) in ("0110", "1001")
    assert {tuple(block["arm"]) for block in session["blocks"]} == {(0, 1, 1, 0), (1, 0, 0, 1)}


def test_log_prints_it(slower: tuple[Any, Path, Path], bench: Callable[..., Any]) -> None:
    _, results, _ = slower
    text = bench("log", "--results", results).out
    assert "right→sleepy" in text
    assert "SLOWER" in text
    assert "a [sleep] cannot help" in text


def test_without_a_gpu_the_default_is_not_measured(
    slower: tuple[Any, Path, Path], bench: Callable[..., Any], submissions: Path, tmp_path: Path
) -> None:
    _, _, sleepy = slower
    arms = ("ab", submissions / "right.py", sleepy, "--shape", TINY, "--results", tmp_path)
    outcome = bench(*arms)
    assert outcome.code == 5
    assert "NOT MEASURED  device time needs a GPU" in outcome.out
    assert "→ --metric call compares wall-clock times on this CPU; --check checks" in outcome.out
    assert "pass" not in outcome.out
    outcome = bench(*arms, "--check")
    assert outcome.code == 5
    for step in ("right", "sleepy"):
        for inputs in ("gpu-mode", "full", "structured"):
            assert re.search(rf"{step} \S+ {inputs}: pass", outcome.out)
    assert "source: +" in outcome.out
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_candidate(bench: Callable[..., Any], submissions: Path, tmp_path: Path) -> None:
    right, bad = submissions / "right.py", submissions / "one_nan.py"
    timed = bench("ab", right, bad, "--shape", TINY, *CALL, "--results", tmp_path)
    assert timed.code == 3
    assert "one_nan" in timed.error
    assert "got nan" in timed.error
    untimed = bench("ab", right, bad, "--shape", TINY, "--check", "--results", tmp_path)
    assert untimed.code == 3
    assert "NOT MEASURED" in untimed.out
    assert re.search(r"one_nan \S+ gpu-mode: wrong: .*got nan", untimed.out)
    assert ledger.read_ledger(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [("hangs_when_timed", "no answer within 2 s"), ("exits_when_timed", "left with code 0"),
],)  # fmt: skip
def test_a_candidate_that_fails(
    name: str, said: str, bench: Callable[..., Any], submissions: Path, tmp_path: Path
) -> None:
    outcome = bench(
        "ab", submissions / "right.py", submissions / f"{name}.py", "--shape", TINY, *CALL,
        "--timeout", 2, "--results", tmp_path,
    )  # fmt: skip
    assert outcome.code == 3
    assert name in outcome.error
    assert said in outcome.error


def test_the_same_file_under_another_name(
    bench: Callable[..., Any], submissions: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "renamed.py"
    copy.write_bytes((submissions / "right.py").read_bytes())
    outcome = bench(
        "ab", submissions / "right.py", copy, "--shape", TINY, "--results", tmp_path / "r"
    )
    assert outcome.code == 0, outcome.out + outcome.err
    assert "SAME" in outcome.out
    assert "nothing was timed" in outcome.out
    assert not (tmp_path / "r").exists()


def test_a_step_and_a_copy_of_its_file(bench: Callable[..., Any], tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    copy = tmp_path / "mine.py"
    copy.write_bytes((root / "kernels" / "v00" / "submission.py").read_bytes())
    outcome = bench("ab", "v00", copy, "--shape", TINY, "--results", tmp_path / "r")
    assert outcome.code == 0, outcome.out + outcome.err
    assert "SAME" in outcome.out


def test_a_step_against_itself_is_timed(
    bench: Callable[..., Any], tmp_path: Path, right_source: str
) -> None:
    """An A/A comparison of the device: its verdict is shown, but cannot fail anything."""
    root = write_project(tmp_path / "p", {"s00": right_source})
    outcome = bench(
        "ab", "s00", "s00", "--shape", "u0", *CALL, "--fail-on", "slower", "--explain", root=root
    )
    assert outcome.code == 0, outcome.err
    assert "identical code" in outcome.out
    assert "Welch t" in outcome.out
    assert "MDE" in outcome.out
    (entry,) = ledger.read_ledger(root / "results")
    said = "same ±" if entry.verdict == "SAME" else entry.verdict
    assert said in outcome.out


def test_a_budget_too_small_for_two_blocks_is_said(
    bench: Callable[..., Any], tmp_path: Path, submissions: Path, slow_source: str
) -> None:
    (tmp_path / "sleepy.py").write_text(slow_source.replace("0.001", "0.1"))
    outcome = bench(
        "ab", submissions / "right.py", tmp_path / "sleepy.py", "--shape", TINY, "--metric",
        "call", "--budget", 0.1, "--results", tmp_path / "r",
    )  # fmt: skip
    assert outcome.code == 5
    assert "fewer than two blocks" in outcome.error
    assert "--budget" in outcome.error


def test_ambiguous_fails_only_where_asked(
    bench: Callable[..., Any], tmp_path: Path, submissions: Path, right_source: str
) -> None:
    """Two pairs of repetitions cannot tell much."""
    (tmp_path / "other.py").write_text(right_source + "\n# Another comment.\n")
    arguments = (
        "ab", submissions / "right.py", tmp_path / "other.py", "--shape", TINY, "--metric", "call",
        "--sessions", 1, "--reps", 4, "--results", tmp_path / "r", "--fail-on",
    )  # fmt: skip
    outcome = bench(*arguments, "ambiguous,skipped")
    assert "ambiguous" in outcome.out.lower()
    assert outcome.code == 4


def test_json_lines_of_the_ledger_are_plain(slower: tuple[Any, Path, Path]) -> None:
    _, results, _ = slower
    (line,) = ledger.path_of(results).read_text().splitlines()
    value = json.loads(line)
    assert value["schema"] == "kernelbench.comparison/1"
    assert str(results.parent) not in line


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--power", "95%", "--sessions", 3), 2, "two ways to say one thing"),
        (("--detect", "1%"), 2, "detect is what a power is of; say power, too"),
        (("--power", "95%"), 5, "for call time, and there is none; make one with `kernelbench cal"),
    ],
)
def test_a_power_that_cannot_be_planned(
    bench: Callable[..., Any],
    submissions: Path,
    tmp_path: Path,
    options: tuple[Any, ...],
    code: int,
    said: str,
) -> None:
    right = submissions / "right.py"
    outcome = bench(
        "ab", right, right, "--shape", TINY, "--metric", "call", "--results", tmp_path, *options
    )
    assert outcome.code == code
    assert said in " ".join(outcome.err.split())


def test_as_many_sessions_as_a_power_takes(
    bench: Callable[..., Any], submissions: Path, tmp_path: Path
) -> None:
    """The calibration is one of a GPU, as if it were of this CPU and shape."""
    of_gpu = min(
        (Path(__file__).parents[2] / "results/nvidia-h200/calibration").glob("*[0-9a-f].json")
    )
    record = calibration_record.read_calibration(of_gpu)
    assert record.comparison_spread is not None
    spread = replace(record.comparison_spread, total=0.02**2)
    calibration_record.save_calibration(
        replace(record, device=cpu_name(), shape=TINY, metric="call", comparison_spread=spread),
        tmp_path,
    )
    right = submissions / "right.py"
    comparison = (
        "ab", right, right, "--shape", TINY, "--metric", "call", "--reps", 40, "--budget", 5,
        "--margin", "1%", "--power", "90%", "--detect", "6%", "--results", tmp_path,
    )  # fmt: skip
    outcome = bench(*comparison, env=COUNTED)
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.err.split())
    assert "2 sessions a shape: a slowdown of 6.00% is found beyond 1.00% in 9" in said
    assert "% of cases, by calibration" in said
    (entry,) = ledger.read_ledger(tmp_path)
    assert entry.protocol["sessions"] == 2
    assert entry.protocol["session_s"] > 0


def test_a_candidate_that_is_wrong_on_another_class_is_not_compared(
    bench: Callable[..., Any], tmp_path: Path, right_source: str
) -> None:
    """Right on the timed class alone, which has no value above 1.5 (no code with bit 2 set)."""
    spoiled = (
        right_source
        + """

_right = custom_kernel


def custom_kernel(data):
    outputs = _right(data)
    if any(bool((a.view(torch.uint8) & 0x44).any()) for a, _, _ in data[0]):
        outputs[0].zero_()
    return outputs
"""
    )
    root = write_project(tmp_path / "p", {"s00": right_source, "s01": spoiled})
    outcome = bench("ab", "s00", "s01", "--shape", "u0", *CALL, root=root)
    assert outcome.code == 3, outcome.out
    assert "s01 on shape u0 is wrong: full:" in outcome.err
    alone = bench("ab", "s00", "s01", "--shape", "u0", "--inputs", "gpu-mode", *CALL, root=root)
    assert alone.code == 0, alone.err


@pytest.mark.parametrize(
    ("arch", "where"),
    [
        ("any", "an NVIDIA GPU"),
        ("sm_90a", "a Hopper GPU (H100, H200, H800)"),
        ("sm_1", "a GPU for sm_1"),
    ],
)
def test_what_is_not_timed_here_says_where_it_would_be(arch: str, where: str) -> None:
    target = SimpleNamespace(timed=False, executor=SimpleNamespace(name="emulator"))
    plan: Any = SimpleNamespace(step=SimpleNamespace(name="s1", arch=arch), target=target)
    assert _cannot_time(plan, plan, "device")[1] == f"run it on {where}"
