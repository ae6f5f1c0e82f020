"""The tutorials' commands are typed as they stand there, and print the lines that they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, launch

from kernelbench.machine.toolchain import host_compilers, nvcc

PAGES = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"(?:^\*\*`([\w./]+)`\*\*\n\n)?^```([\w+]+)\n(.*?)^```", re.M | re.S)


def squeezed(text: str) -> str:
    """The text with one blank between words: columns are as wide as their values."""
    return " ".join(text.split())


def patch(file: Path, diff: str) -> None:
    """Apply a page's diff, whose context stands in the file once."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] != "+")
    new = "".join(line[1:] for line in lines if line[0] != "-")
    source = file.read_text()
    assert source.count(old) == 1, f"{file.name}: the context is not there once:\n{old}"
    file.write_text(source.replace(old, new))


def missing_lines(block: str, cwd: Path, root: Path | None = None) -> Iterator[str]:
    """Type the command of a ``console`` block; what it shows and was not printed."""
    command, *shown = block.splitlines()
    words = shlex.split(command.removeprefix("$ kernelbench "))
    # A reader's folder is no project.
    env = {"XDG_DATA_HOME": str(cwd / "data"), "KERNELBENCH_ROOT": str(root or "")}
    outcome = launch(*words, cwd=cwd, env=env)
    printed = squeezed(outcome.out + outcome.err)
    yield from (line for line in shown if squeezed(line) not in printed)


def follow(page: Path, cwd: Path, root: Path | None = None) -> int:
    """Do what a page says, from top to bottom; how many commands it took."""
    commands = 0
    for name, language, content in BLOCK.findall(page.read_text()):
        if language == "console":
            commands += 1
            missing = [*missing_lines(content, cwd, root)]
            assert missing == [], content.splitlines()[0]
        elif name and language == "diff":
            patch(cwd / name, content)
        elif name:
            (cwd / name).write_text(content)
    return commands


@pytest.mark.skipif(not host_compilers() or nvcc() is None, reason="no C++ compiler, or no nvcc")
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    assert follow(PAGES / "first-ten-minutes.md", tmp_path) == 2


@pytest.mark.long
@pytest.mark.skipif(not host_compilers(), reason="no C++ compiler")
def test_the_deadlock_is_found_and_mended(tmp_path: Path) -> None:
    assert follow(PAGES / "deadlock.md", tmp_path) == 3


def test_the_comparison_is_the_ledgers(tmp_path: Path) -> None:
    assert follow(PAGES / "faster.md", tmp_path, ROOT) == 3
    quoted = re.search(r"^> (.+?) \[…\] (.+)$", (PAGES / "faster.md").read_text(), re.M)
    assert quoted is not None
    hypothesis = squeezed((ROOT / "moe" / "m09" / "README.md").read_text())
    assert [part for part in quoted.groups() if part not in hypothesis] == []


def test_the_intervals_of_the_picture_are_the_ledgers() -> None:
    picture = (ROOT / "docs" / "pictures" / "verdicts.svg").read_text()
    rows = re.findall(
        r">([\w-]+→[\w-]+)<.*?>([-+][\d.]+% \[[^]]+\])<.*?>([A-Z]{4,})<", picture, re.S
    )
    assert [verdict for *_, verdict in rows] == ["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]
    for pair, interval, verdict in rows:
        printed = squeezed(launch("log", "--step", pair.partition("→")[2]).out)
        assert re.search(rf"{pair} \S+ device {re.escape(interval)} \S+ {verdict}", printed), pair
