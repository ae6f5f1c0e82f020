"""What a terminal shows: rows as they finish, lines that end between words, the docs' gallery."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment_of, write_project

from kernelbench.base import console
from kernelbench.records.ledger import read_ledger

sys.path.insert(0, str(ROOT / "docs" / "extensions"))
gallery = pytest.importorskip("terminal_gallery")  # needs sphinx


def on_a_terminal(*arguments: str, root: Path) -> str:
    """What a command shows on a terminal of 100 columns, both streams in their order."""
    leader, follower = os.openpty()
    environment = environment_of(root) | {"COLUMNS": "100", "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "kernelbench", *arguments],
        stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, env=environment,
    ) as process:  # fmt: skip
        os.close(follower)
        parts = []
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            parts.append(part)
        assert process.wait() == 0, b"".join(parts).decode()
    os.close(leader)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", b"".join(parts).decode())


def test_rows_appear_as_they_finish(tmp_path: Path, right_source: str) -> None:
    root = write_project(tmp_path / "p", {"s0": right_source})
    shapes = ("m=8,24:n=128:k=256", "m=8:n=128:k=256")
    chosen = [part for shape in shapes for part in ("--shape", shape)]
    shown = on_a_terminal(
        "run", "s0", *chosen, "--inputs", "full", "--check-only", "--no-save", root=root
    )
    first, second = (shown.index(f"s0 {shape}  full") for shape in shapes)
    table = re.search(r"^step +shape +correct", shown, re.MULTILINE)
    assert table is not None
    assert first < second < table.start()


def test_lines_end_between_words() -> None:
    text = io.StringIO()
    to = console.terminal_of_width(20, text)
    words = ["measured"] * 9
    to.print(console.Text(" ".join(words)))
    assert text.getvalue().split() == words
    assert len(text.getvalue().splitlines()) > 3


@pytest.mark.parametrize(
    ("line", "how"),
    [("saved a/path/of/a/record.json", {}), ("check x.cu --seed 1", {"no_wrap": True})],
)
def test_what_is_copied_is_not_cut(line: str, how: dict[str, bool]) -> None:
    text = io.StringIO()
    console.terminal_of_width(12, text).print(console.Text(line), **how)
    assert text.getvalue() == f"{line}\n"


def test_what_stands_beside_a_path_is_folded() -> None:
    text = io.StringIO()
    line = "  --> a/path/of/a/file.cu:7:3   CTA 0, thread 1"
    console.terminal_of_width(20, text).print(console.Text(line))
    assert text.getvalue() == "  --> a/path/of/a/file.cu:7:3\nCTA 0, thread 1\n"


def test_a_file_keeps_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console.out.print("word " * 100)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("width", gallery.WIDTHS)
@pytest.mark.parametrize("name", gallery.SHOWN)
def test_the_gallery_fits(name: str, width: int) -> None:
    lines = gallery.printed(name, width).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= width


def test_the_gallery_shows_the_ledgers_figures() -> None:
    shown = gallery.printed("ab", 160)
    entries = [entry for entry in read_ledger(ROOT / "results") if entry.id == gallery.AB]
    assert len(entries) == 12
    for entry in entries:
        assert entry.change is not None
        assert entry.ci is not None
        low, high = entry.ci
        figures = f"{100 * entry.change:+.2f}%  [{100 * low:+.2f}, {100 * high:+.2f}]"
        if entry.verdict == "SAME":  # its interval rests on the newest calibration, a younger one
            figures = figures.partition("[")[0]
        (line,) = [
            line for line in shown.splitlines() if line.startswith(f"{entry.shape} ")
            and f" {entry.metric} " in line
        ]  # fmt: skip
        assert figures in line
        same = re.search(r"  same ±[\d.]+ *$", line) is not None
        assert same if entry.verdict == "SAME" else line.rstrip().endswith(entry.verdict)
