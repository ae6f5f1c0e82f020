"""What a finding looks like: six programs' reports, at 80 and at 120 columns.

``python tests/cli/test_finding_layout.py`` checks the programs of ``tests/cli/findings`` again and
writes what is held here; read the difference before it is committed.
"""

from __future__ import annotations

import io
import os
import re
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


@pytest.mark.parametrize("width", [40, 60])
def test_states_are_whole_on_a_narrow_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are folded, and figures left out."""
    monkeypatch.chdir(FOLDER)
    table = shown(width).partition("\n\n")[0]
    assert len(re.findall(r"  (clean|finding|hang|wrong)(?=  |$)", table, re.M)) > 6
    assert max(len(line) for line in table.splitlines() if "no room" not in line) <= width
    assert ("no room for: " in table) == (width == 40)


def test_the_rerun_line_has_what_was_asked_for() -> None:
    text = io.StringIO()
    view = View(console.terminal_of_width(80, text), 10, layout="full")
    given = FileOptions(arch=100, gpus=2, flags=("-DN=2",), arguments=("7",))
    plan = SimpleNamespace(
        files=("race.cu",), steps=(), given=given, request=SimpleNamespace(seed=1)
    )
    view._plan = cast(CheckPlan, plan)
    (step,) = (each for each in read_check(RECORD).steps if each.step == "race.cu")
    rows = tuple(
        replace(row, seen=tuple(replace(seen, sms=132) for seen in row.seen)) for row in step.rows
    )
    view.results([replace(step, rows=rows)])
    asked = "--nvcc -DN=2 --arch 100 --gpus 2 --sms 132 --seed 1 --schedules 1 -- 7"
    assert f"rerun: kernelbench check race.cu {asked}" in text.getvalue()


@pytest.mark.parametrize("needs", ["1 more arrival", "2 more arrivals"])
def test_a_cause_that_shows_at_two_lines_is_one_block(needs: str) -> None:
    """Waits for one barrier that lacks the same."""
    (step,) = (each for each in read_check(RECORD).steps if each.step == "hang.cu")
    row, main = step.rows
    (seen,) = row.seen
    waits = tuple(
        replace(each, access=replace(each.access, where="hang.cu:9"), needs=needs)
        for each in seen.waits
    )
    finding = replace(seen.finding, identity="hang-0123456789")
    both = replace(row, seen=(seen, replace(seen, finding=finding, waits=waits)))
    text = io.StringIO()
    view = View(console.Console(file=text, width=80), 10, layout="full")
    view.results([replace(step, rows=(both, main))])
    one = needs == "1 more arrival"
    assert text.getvalue().count("error[hang]") == (1 if one else 2)
    assert ("  = also: hang.cu:9, in produce (hang-0123456789)" in text.getvalue()) == one
    assert text.getvalue().count("(1 error)" if one else "(2 errors)") == 1


@pytest.mark.parametrize("line", ["race.cu:9", "race.cu:10"])
def test_a_race_of_two_lines_in_two_buffers_is_one_block(line: str) -> None:
    """As where the buffers of two shapes have other sizes."""
    (step,) = (each for each in read_check(RECORD).steps if each.step == "race.cu")
    row = step.rows[0]
    seen = next(each for each in row.seen if each.finding.kind == "race")
    here = replace(seen.finding.access, where="race.cu:9")
    there = replace(here, where="race.cu:12")
    first = replace(seen.finding, access=here, other=there)
    second = replace(
        first, access=replace(here, where=line), object="another + 16",
        identity="race-0123456789",
    )  # fmt: skip
    both = replace(row, seen=(replace(seen, finding=first), replace(seen, finding=second)))
    text = io.StringIO()
    view = View(console.Console(file=text, width=80), 10, layout="full")
    view.results([replace(step, rows=(both,))])
    one = line == "race.cu:9"
    assert text.getvalue().count("error[race]") == (1 if one else 2)
    assert ("  = also: another, in " in text.getvalue()) == one


@pytest.mark.parametrize("other", ["fill", "sum"])
def test_races_of_two_launches_are_one_block(other: str) -> None:
    """One order that two kernels lack shows at several lines, of either of them."""
    (step,) = (each for each in read_check(RECORD).steps if each.step == "race.cu")
    row = step.rows[0]
    seen = next(each for each in row.seen if each.finding.kind == "race")
    rows = []
    for number, (kernel, beside) in enumerate([("fill", "sum"), ("sum", other)]):
        text = f"a load reads a that kernel {beside} of a graph writes: nothing orders the two"
        access = replace(seen.finding.access, where=f"race.cu:{number + 8}")
        finding = replace(
            seen.finding, text=text, access=access, identity=f"race-000000000{number}",
            object="", thread=0,
        )  # fmt: skip
        rows.append(replace(row, shape=kernel, seen=(replace(seen, finding=finding),)))
    to = io.StringIO()
    view = View(console.Console(file=to, width=80), 10, layout="full")
    view._plan = cast(CheckPlan, SimpleNamespace(files=("race.cu",), steps=(), given=FileOptions()))
    view._repeats = False
    view.results([replace(step, rows=tuple(rows))])
    one = other == "fill"
    assert to.getvalue().count("error[race]") == (1 if one else 2)
    assert ("  = also: race.cu:9, in sum (race-0000000001)" in to.getvalue()) == one


if __name__ == "__main__":
    os.chdir(FOLDER)
    asked = ["--seed", "1", "--schedules", "4", "--no-save", "--json", str(RECORD)]
    subprocess.run([sys.executable, "-m", "kernelbench", "check", *programs(), *asked], check=False)
    for columns in WIDTHS:
        Path(f"{columns}.txt").write_text(shown(columns))
