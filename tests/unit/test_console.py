"""The terminal: results on stdout, the rest on stderr, words that need no colour."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.base import console

SHOW = """
from kernelbench.base import console
table = console.make_table([("what", "left"), ("how many", "right")])
table.add_row("x" * 150, "1")
table.add_row(console.escape("[bold]brackets[/]"), console.styled("SLOWER"))
console.out.print(table)
console.out.print("group :x: of three")
console.warn("[red]beware[/red] of " + "long " * 60 + "lines")
with console.Status(interval_s=0.0) as status:
    status("working on [x]")
"""


def shown(**environment: str) -> tuple[str, str]:
    kept = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], capture_output=True, check=True,
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip
    return done.stdout.decode(), done.stderr.decode()


def test_a_pipe_gets_whole_lines_without_codes() -> None:
    out, err = shown()
    assert "x" * 150 in out
    assert "[bold]brackets[/]" in out
    assert "group :x: of three" in out
    assert "SLOWER" in out
    assert "\x1b" not in out + err
    warning, progress = err.splitlines()
    assert warning.startswith("warning: [red]beware[/red] of long")
    assert warning.endswith("lines")
    assert progress == "working on [x]"


def test_colour_only_where_it_is_wanted() -> None:
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    forced, _ = shown(FORCE_COLOR="1")
    assert colour.search(forced)
    plain, _ = shown(FORCE_COLOR="1", NO_COLOR="1")
    assert not colour.search(plain)
    assert "SLOWER" in plain


@pytest.mark.parametrize(
    "module",
    sorted(str(p.relative_to(ROOT / "kernelbench")) for p in (ROOT / "kernelbench").rglob("*.py")),
)
def test_rich_is_imported_in_one_place_only(module: str) -> None:
    text = (ROOT / "kernelbench" / module).read_text()
    if module == "base/console.py":
        assert "from rich" in text
    else:
        assert "from rich" not in text
        assert "import rich" not in text


def test_progress_in_a_log_is_rare() -> None:
    code = (
        "from kernelbench.base import console\n"
        "with console.Status(interval_s=30) as status:\n"
        "    for i in range(1000): status(str(i))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, cwd=Path(ROOT)
    )
    assert done.stderr == b""


def test_a_reader_that_goes_away_is_neither_a_regression_nor_a_pass() -> None:
    """rich leaves with 1 on a broken pipe, the code of a regression."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelbench", "list"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), errors) == (141, b"")


def test_brackets_in_a_fitted_table_are_text() -> None:
    table = console.fitted_table([("step", "left")], [("[red]v07[/]",)], prose="", spare=[])
    with console.out.capture() as captured:
        table.show()
    assert "[red]v07[/]" in captured.get()


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(60, []), (50, ["big"]), (36, ["big", "bigger"]), (10, ["big", "bigger"])],
)
def test_columns_go_before_names_are_folded(
    monkeypatch: pytest.MonkeyPatch, width: int, left_out: list[str]
) -> None:
    columns = [("step", "left"), ("what changes", "left"), ("big", "right"), ("bigger", "right")]
    rows = [("v07-fixed", "one idea in rather many words", "1234567890", "123456")]
    monkeypatch.setattr(console.out, "width", width)
    table = console.fitted_table(columns, rows, prose="what changes", spare=[["big"], ["bigger"]])
    gone = table.left_out
    assert list(gone) == left_out
    with console.out.capture() as captured:
        console.out.print(table.table)
    text = captured.get()
    kept = [cell for (name, _), cell in zip(columns, rows[0], strict=True) if name not in gone]
    if width >= 36:
        assert all(cell in text for cell in kept if " " not in cell)
        assert all(word in text for word in rows[0][1].split())
    assert not any(cell in text for cell in rows[0][2:] if cell not in kept)


def test_what_all_rows_share_goes_into_a_line_first(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [("step", "left"), ("arch", "left"), ("time\nµs", "right"), ("says", "left")]
    rows = [("v07", "sm_100a", "12.5", "a word"), ("v08", "sm_100a", "11.25", "another")]
    fitted = {}
    for width in (40, 26, 14):
        monkeypatch.setattr(console.out, "width", width)
        table = console.fitted_table(columns, rows, prose="says", spare=[["time\nµs"]])
        with console.out.capture() as captured:
            table.show()
        fitted[width] = captured.get()
        assert table.common == ({} if width == 40 else {"arch": "sm_100a"})
        assert table.left_out == (("time\nµs",) if width == 14 else ())
    assert "all: arch sm_100a\n" in fitted[26]
    assert "11.25" in fitted[26]
    assert "no room for: time µs\n" in fitted[14]
