"""Without matplotlib, which is optional: the report lacks drawings, and drawings are refused."""

from __future__ import annotations

import html
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.base.errors import ExitCode
from kernelbench.cli import invoke as run


@pytest.fixture(autouse=True)
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(ROOT))
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_the_report_says_what_it_does_not_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert run(["report", "group_gemm_hopper", "--no-diff", "-o", str(page)]) == 0
    said = "ladders, sweeps and rooflines are not drawn: matplotlib is not installed"
    assert capsys.readouterr().err.count(said) == 1
    text = html.unescape(page.read_text())
    assert text.count(said) == 1
    assert "<figure" not in text
    assert "h07" in text


@pytest.mark.parametrize("command", [["lineage", "moe"], ["roofline"], ["ab", "v22", "v23"]])
def test_a_drawing_is_refused_before_any_work(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--plot", str(tmp_path / "x.svg")]) == ExitCode.ENVIRONMENT
    assert capsys.readouterr().err.startswith("kernelbench: drawings need matplotlib")
