"""Commands that CI calls: what has looked at nothing is no pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import TINY, write_project

from kernelbench.cli import main

#: A shape that no step of one N and K takes.
UNEVEN = "m=8,8:n=128,256:k=256"


@pytest.fixture
def project(tmp_path: Path, right_source: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_project(tmp_path / "p", {"s0": right_source})
    with (root / "tiny" / "s0" / "step.toml").open("a") as file:
        file.write('[limits]\nnk = "fixed"\n')
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    return root


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return int(left.value.code or 0)


@pytest.mark.parametrize(
    ("shapes", "options", "expected"),
    [
        ([UNEVEN], [], 5),
        ([UNEVEN, TINY], [], 0),
        ([UNEVEN, TINY], ["--fail-on", "skipped"], 5),
        ([TINY], ["--fail-on", "skipped"], 0),
    ],
)
def test_run(project: Path, shapes: list[str], options: list[str], expected: int) -> None:
    named = [word for shape in shapes for word in ("--shape", shape)]
    assert code("run", "s0", *named, "--check-only", "--no-save", *options) == expected


@pytest.mark.parametrize(
    ("shapes", "options", "expected"),
    [
        ([UNEVEN], [], 5),
        ([UNEVEN, TINY], [], 0),
        ([UNEVEN, TINY], ["--fail-on", "skipped"], 5),
    ],
)
def test_check(in_checkout: Path, shapes: list[str], options: list[str], expected: int) -> None:
    named = [word for shape in shapes for word in ("--shape", shape)]
    assert code("check", "v06", *named, "--schedules", "1", "--sms", "2", *options) == expected


@pytest.mark.parametrize("command", [["run", "v01"], ["check", "v01"], ["ab", "v01", "v02"]])
def test_an_unknown_condition(
    in_checkout: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(*command, "--fail-on", "skipped,late") == 2
    assert "found 'late'" in capsys.readouterr().err


def test_doctor_where_nothing_can_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], in_checkout: Path
) -> None:
    monkeypatch.setattr("kernelbench.machine.devices.torch_info", lambda: None)
    assert code("doctor", "--json", "-") == 5
    assert json.loads(capsys.readouterr().out)["usable"] is False
