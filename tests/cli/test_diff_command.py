"""``kernelbench diff``."""

from __future__ import annotations

import json

import pytest

from kernelbench.base import schema
from kernelbench.cli import invoke as run
from kernelbench.lineages import source_diff
from kernelbench.lineages.step_diff import StepDiff

pytestmark = pytest.mark.usefixtures("in_checkout")


def test_a_diff_is_plain_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "v06", "v07", "--no-build"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0].startswith("v06 → v07")
    assert "--- v06/kernel.cuh" in lines
    assert "+++ v07/kernel.cuh" in lines
    assert "+  TensorMap map_c;" in lines
    assert any(line.startswith("reported  NVIDIA B200  A") and "−38.3%" in line for line in lines)
    assert not any(line.startswith("not built") for line in lines)


def test_one_step_is_compared_with_its_parent(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "v04", "--stat"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("v02 → v04")
    assert "+++" not in text
    assert "all files" in text


def test_a_range_means_its_ends(capsys: pytest.CaptureFixture[str]) -> None:
    for names in (["v06..v08"], ["v06", "v08"]):
        assert run(["diff", *names, "--stat"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("v06 → v08")
    assert text == 2 * text[: len(text) // 2]


def test_reported_figures_keep_their_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "v00", "v02", "--no-build"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("reported  NVIDIA B200  A"))
    assert line.split()[-4:] == ["47318.6", "215.6", "µs", "−99.5%"]


def test_without_a_formatter_it_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_diff, "clang_format", lambda: None)
    assert run(["diff", "v06", "v07", "--stat"]) == 0
    assert "lines are compared as they are: no clang-format here" in capsys.readouterr().out


def test_json_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "v06", "v07", "--no-build", "--json", "-"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["schema"] == "kernelbench.diff/1"
    found = schema.decode(StepDiff, value)
    assert (found.base, found.cand) == ("v06", "v07")
    assert {file.name for file in found.source.files} == {"kernel.cuh", "launch.cu"}
    assert {figure.shape for figure in found.figures if figure.source == "reported"} == {*"ABCD"}


def test_all_steps_of_a_lineage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Formatting takes most of the time, and is not what is tested here.
    monkeypatch.setattr(source_diff, "clang_format", lambda: None)
    assert run(["diff", "--all", "moe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "moe"
    assert any(line.split()[:2] == ["m02", "m01"] for line in lines)
    assert any(line.startswith("median") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "diff compares two steps, found 0; name BASE and CAND"),
        (["v01", "v02", "v03"], "diff compares two steps, found 3"),
        (["v01..v03", "v05"], "diff compares two steps, found 3"),
        (["moe"], "'moe' is 26 steps; diff compares two"),
        (["v00"], "v00 has no parent; name the step to compare it with"),
        (["v01", "v99"], "unknown step 'v99'"),
        (["--all", "mo"], "unknown lineage 'mo'; did you mean 'moe'?"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
