"""The terminal: results on stdout, the rest on stderr, words that need no colour."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.base import console

SHOW = """
from kernelbench.base import console
rows = [("x" * 150, "1"), ("[bold]brackets[/]", console.styled("SLOWER"))]
console.show([{"what": a, "how many": b} for a, b in rows], right=["how many"])
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


PRINTS = """
import time
from kernelbench.base.child_process import is_about_to_print, run_in_child
from kernelbench.base.console import Status

def program():
    is_about_to_print()
    print("one ", end="", flush=True)
    time.sleep(0.5)  # a spinner turns several times
    print("line")

def check():
    with Status() as status:
        status("checking")
        run_in_child(program, [], int, shown=lambda: status(""))
"""


def test_what_a_program_prints_stands_alone_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(PRINTS)
    ours, terminal = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen, os.fdopen(terminal, "wb") as stderr:
        subprocess.run(
            [sys.executable, "-c", "import prints; prints.check()"], stderr=stderr, check=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "TERM": "xterm"},
        )  # fmt: skip
        shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.read(1 << 16).decode())
    assert shown.endswith("checking\r\none line\r\n")


def test_a_log_shows_that_silent_work_goes_on() -> None:
    code = (
        "import sys, time\n"
        "from kernelbench.base import console\n"
        "with console.Status(interval_s=0.05) as status:\n"
        "    status('building the emulator')\n"
        "    while console.err.file.tell() == 0: time.sleep(0.01)\n"
    )
    with tempfile.TemporaryFile() as log:
        subprocess.run([sys.executable, "-c", code], stderr=log, check=True, cwd=Path(ROOT))
        log.seek(0)
        assert log.read().decode().startswith("building the emulator")


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
    table = console.fitted([{"step": "[red]v07[/]"}], prose="")
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
    row = {"step": "v07-fixed", "what changes": "one idea in rather many words"}
    row |= {"big": "1234567890", "bigger": "123456"}
    monkeypatch.setattr(console.out, "width", width)
    spare = [["big"], ["bigger"]]
    table = console.fitted([row], right=["big", "bigger"], prose="what changes", spare=spare)
    gone = table.left_out
    assert list(gone) == left_out
    with console.out.capture() as captured:
        console.out.print(table.table)
    text = captured.get()
    kept = [cell for name, cell in row.items() if name not in gone]
    if width >= 36:
        assert all(cell in text for cell in kept if " " not in cell)
        assert all(word in text for word in row["what changes"].split())
    assert not any(cell in text for cell in [*row.values()][2:] if cell not in kept)


def test_what_all_rows_share_goes_into_a_line_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [("v07", "sm_100a", "12.5", "a word"), ("v08", "sm_100a", "11.25", "another")]
    rows = [dict(zip(("step", "arch", "time\nµs", "says"), row, strict=True)) for row in cells]
    fitted = {}
    for width in (40, 26, 14):
        monkeypatch.setattr(console.out, "width", width)
        spare = [["time\nµs"]]
        table = console.fitted(rows, right=spare[0], prose="says", spare=spare)
        with console.out.capture() as captured:
            table.show()
        fitted[width] = captured.get()
        assert table.common == ({} if width == 40 else {"arch": "sm_100a"})
        assert table.left_out == (("time\nµs",) if width == 14 else ())
    assert "all: arch sm_100a\n" in fitted[26]
    assert "11.25" in fitted[26]
    assert "no room for: time µs\n" in fitted[14]
