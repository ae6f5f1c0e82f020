"""Campaign files: what they say, and errors that name file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelbench.base.errors import UsageError
from kernelbench.campaign.campaign_file import LIMIT_S, Campaign, read_campaign, values_of
from kernelbench.cli.sweep import arguments_of


def read(folder: Path, text: str) -> Campaign:
    file = folder / "campaign.yaml"
    file.write_text(text)
    return read_campaign(file, arguments_of)


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        (7, [7]),
        ("uniform", ["uniform"]),
        ([1, 2, "8..16 by 4"], [1, 2, 8, 12, 16]),
        ("1..4096 by 2x", [2**i for i in range(13)]),
        ("1..100 by 3x", [1, 3, 9, 27, 81]),
        ("1..9 by 2", [1, 3, 5, 7, 9]),
        ("3..5", [3, 4, 5]),
        ([[128, 384], 64], [[128, 384], 64]),
        (True, [True]),
    ],
)
def test_values(entry: Any, values: list[Any]) -> None:
    assert [value for part in values_of(entry) for value in part] == values


def test_a_long_range_is_not_written_out() -> None:
    (part,) = values_of("1..1000000000")
    assert len(part) == 10**9


@pytest.mark.parametrize(
    "entry", ["9..1", "1..9 by 0", "0..9 by 2x", "1..9 by 1x", "1..", "1..9 by two", [], None, {}]
)
def test_values_that_are_none(entry: Any) -> None:
    with pytest.raises(ValueError, match=r"range|empty|go on|grow|no value"):
        values_of(entry)


def test_what_a_file_says(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """name: all-of-it
limit: 20m
gpu: true
results: kept
campaign:
  - run: [m07, m13]
    shapes: {qwen35: {m: [1..4096 by 2x]}, s0: {}}
    peers: true
    reps: 200
    warm: true
    inputs: [a, b]
  - ab: [m12, m13]
    shapes: [qwen35, {m: 1, n: 128, k: [256, 512]}]
    sessions: 5
    check: true
    margin: 1%
    repeat: 2
  - check: v07
    schedules: 20
    sms: [1, 4]
    sequence: false
  - mutants: [kernels/mutants]
    schedules: 3
""",
    )
    assert (found.name, found.limit_s, found.gpu) == ("all-of-it", 1200.0, True)
    assert found.results == tmp_path / "kept"
    run, ab, check, mutants = found.items
    assert run.options == ("--reps", "200", "--warm", "--inputs", "a", "--inputs", "b")
    assert run.peers
    assert [each.name for each in run.shapes] == ["qwen35", "s0"]
    assert ab.options == ("--sessions", "5", "--check", "--margin", "1%")
    assert (ab.command, ab.steps, ab.repeat) == ("ab", ("m12", "m13"), 2)
    assert [each.name for each in ab.shapes] == ["qwen35", ""]
    assert check.steps == ("v07",)
    assert check.sms == (1, 4)
    assert check.options == ("--schedules", "20", "--no-sequence")
    assert not check.mutants
    assert (mutants.command, mutants.mutants, mutants.steps) == (
        "check",
        True,
        ("kernels/mutants",),
    )
    assert mutants.options == ("--schedules", "3")
    assert read(tmp_path, "name: a\ncampaign: [{run: x}]\n").limit_s == LIMIT_S


HEAD = "name: a\ncampaign:\n  - "


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "empty"),
        ("- a\n", 1, "'name' and 'campaign'"),
        ("name: a\n", 1, "missing 'campaign'"),
        ("name: a/b\ncampaign: [{run: x}]\n", 1, "a name for a folder"),
        ("name: a\ncampaign: 3\n", 2, "expected a list"),
        ("name: a\nlimits: 3\ncampaign: []\n", 2, "unknown 'limits'"),
        ("name: a\nlimit: soon\ncampaign: [{run: x}]\n", 2, "a time such as 20m"),
        ("name: a\ngpu: 3\ncampaign: [{run: x}]\n", 2, "true or false"),
        (HEAD + "bench: [x]\n", 3, "one of run, ab, check"),
        (HEAD + "run: [x]\n    check: [y]\n", 3, "one of run, ab, check"),
        (HEAD + "mutants: [x]\n    check: [y]\n", 3, "one of run, ab, check, mutants"),
        (HEAD + "ab: [x, y]\n    mutants: [z]\n", 3, "one of run, ab, check, mutants"),
        (HEAD + "mutants: [x]\n    reps: 3\n", 4, "check has no option 'reps'"),
        (HEAD + "run: []\n", 3, "names of steps"),
        (HEAD + "ab: [x]\n", 3, r"\[BASE, CAND\]"),
        (HEAD + "run: [x]\n    rep: 3\n", 4, "run has no option 'rep': expected .*reps"),
        (HEAD + "run: [x]\n    results: there\n", 4, "no option 'results'"),
        (HEAD + "run: [x]\n    reps: 0\n", 4, "'--reps'"),
        (HEAD + "run: [x]\n    warm: 1\n", 4, "warm: expected true or false"),
        (HEAD + "run: [x]\n    reps: [1, 2]\n", 4, "reps: expected one value"),
        (HEAD + "check: [x]\n    sms: [0]\n", 4, "numbers of SMs"),
        (HEAD + "check: [x]\n    peers: true\n", 4, "peers are for run"),
        (HEAD + "run: [x]\n    repeat: 0\n", 4, "1 or more"),
        (HEAD + "run: [x]\n    shapes: {q: {m: 9..1}}\n", 4, "m: '9..1' is empty"),
        (HEAD + "run: [x]\n    shapes: [3]\n", 4, "a shape's name"),
        (HEAD + "run: [x]\n    run: [y]\n", 4, "'run' is there twice"),
        (HEAD + "run: [x\n", 4, "not valid YAML"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(UsageError, match=rf"campaign\.yaml:{line}: .*{said}"):
        read(tmp_path, text)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_campaign(tmp_path / "none.yaml", arguments_of)
