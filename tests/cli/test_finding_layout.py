"""What a finding looks like: six programs' reports, at 80 and at 120 columns.

``python tests/cli/test_finding_layout.py`` checks the programs of ``tests/cli/findings`` again and
writes what is held here; read the difference before it is committed.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kernelbench.base import console
from kernelbench.checks.api import CheckPlan
from kernelbench.checks.report import read_check
from kernelbench.checks.rows import FileOptions
from kernelbench.cli.check_view import View

FOLDER = Path(__file__).resolve().parent / "findings"
RECORD = FOLDER / "record.json"
WIDTHS = (80, 120)


def programs() -> list[str]:
    """Their names."""
    return sorted(each.name for each in FOLDER.glob("*.cu"))


def shown(width: int) -> str:
    """The report of the record, with sources and commands of the working folder."""
    text = io.StringIO()
    view = View(console.Console(file=text, width=width), 10, layout="full")
    request = SimpleNamespace(seed=1)
    plan = SimpleNamespace(files=tuple(programs()), steps=(), given=FileOptions(), request=request)
    view._plan = cast(CheckPlan, plan)  # planned() names the CPU
    view.results([*read_check(RECORD).steps])
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


@pytest.mark.parametrize("width", WIDTHS)
def test_findings_look_as_they_are_held(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    assert shown(width) == (FOLDER / f"{width}.txt").read_text()


def test_notes_fit_the_terminal() -> None:
    """Headlines and quoted source may be longer: a terminal folds them, and a search finds them."""
    lines = (FOLDER / "80.txt").read_text().splitlines()
    assert all(len(line) <= 80 for line in lines if line.startswith(("  =", "     ")))


def test_the_rerun_line_has_what_was_asked_for() -> None:
    text = io.StringIO()
    view = View(console.Console(file=text, width=80), 10, layout="full")
    given = FileOptions(arch=100, flags=("-DN=2",), arguments=("7",))
    plan = SimpleNamespace(
        files=("race.cu",), steps=(), given=given, request=SimpleNamespace(seed=1)
    )
    view._plan = cast(CheckPlan, plan)
    (step,) = (each for each in read_check(RECORD).steps if each.step == "race.cu")
    rows = tuple(
        replace(row, seen=tuple(replace(seen, sms=132) for seen in row.seen)) for row in step.rows
    )
    view.results([replace(step, rows=rows)])
    asked = "--nvcc -DN=2 --arch 100 --sms 132 --seed 1 --schedules 1 -- 7"
    assert f"rerun: kernelbench check race.cu {asked}" in text.getvalue()


if __name__ == "__main__":
    os.chdir(FOLDER)
    asked = ["--seed", "1", "--schedules", "4", "--no-save", "--json", str(RECORD)]
    subprocess.run([sys.executable, "-m", "kernelbench", "check", *programs(), *asked], check=False)
    for columns in WIDTHS:
        Path(f"{columns}.txt").write_text(shown(columns))
