"""What the checker says of v07 without one of its instructions, as the pages show it.

``python tools/pictures.py`` draws ``docs/pictures/finding.svg`` (what ``kernelbench demo`` prints),
``trace.svg`` and ``waits.svg``, all without a tcgen05.commit, and fills in the report of
``docs/checker.md`` (without a proxy fence); ``--check`` only says whether they are what the checker
prints today. It needs a C++ compiler and no GPU.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text
from trace_picture import trace_svg

from kernelbench.checks.report import read_check
from kernelbench.cli.demo import COMMIT, COPY, SHAPE, broken_step
from kernelbench.cli.demo import SOURCE as STEP
from kernelbench.report.readme_tables import replace_between
from kernelbench.report.wait_graph import wait_graph_svg

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "finding.svg"
TRACE = ROOT / "docs" / "pictures" / "trace.svg"
WAITS = ROOT / "docs" / "pictures" / "waits.svg"

FENCE = "ptx::fence_proxy_async(ptx::space_shared_cta);"
PAGE = ROOT / "docs" / "checker.md"
MARKERS = ("<!-- fence:begin -->", "<!-- fence:end -->")
OPTIONS = ("--shape", SHAPE, "--sms", "1", "--schedules", "1", "--seed", "7",
           "--no-save")  # fmt: skip
_WIDTH = 104

# As rich's own, without the window around it and without fonts from the network.
_FORMAT = """\
<svg viewBox="0 0 {width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: DejaVu Sans Mono, Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#292929"/>
<g transform="translate({terminal_x}, 12)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def printed(command: Sequence[str], status: int) -> list[str]:
    """The lines that a command prints; it must leave with this status."""
    # Whatever the terminal's width is.
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "kernelbench", *command],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env=kept | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
    )  # fmt: skip
    if done.returncode != status:
        raise SystemExit(f"{command[0]} left with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def report(dropped: str, trace: Path, record: Path) -> list[str]:
    """What ``check`` prints of the step: its report, without the machine and the seconds.

    Args:
        trace: Where the trace of its finding goes.
        record: Where the check's record goes.
    """
    with tempfile.TemporaryDirectory(prefix="kernelbench-picture-") as folder:
        step = broken_step(Path(folder), dropped=dropped, name=STEP)
        lines = printed(
            ["check", str(step), *OPTIONS, "--trace", str(trace), "--json", str(record)], 3
        )
    begin = next(at for at, line in enumerate(lines) if line.startswith("error["))
    return [line.replace(f"{folder}/", "") for line in lines[begin:] if "trace of " not in line]


def drawn(lines: Sequence[str]) -> str:
    """The SVG of a terminal with ``kernelbench demo`` and what it printed of its finding."""
    console = Console(
        record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text("$ kernelbench demo", style="bold green"))
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        for part in textwrap.wrap(line, _WIDTH, subsequent_indent=indent, drop_whitespace=False):
            removed = part.startswith("  - ")
            text = Text(part.rstrip() if part.strip() else "", "bold red" if removed else "")
            text.highlight_regex(r"^error\[[a-z-]+\]:.*", "bold red")
            text.highlight_regex(r"\^\^+.*|.*<- the cause", "red")
            text.highlight_regex(r"^ +(?:-->|:::|\||\d+ \||=)", "blue")
            console.print(text)
        if not line:
            console.print()
    console.print()  # the last line's lower edge
    return console.export_svg(title="", code_format=_FORMAT, unique_id="finding")


def waits_drawn(record: Path) -> str:
    """The SVG of the wait-for graph of a record's hang, on white."""
    picture = wait_graph_svg(read_check(record).steps[0].rows[0].seen[0].waits)
    picture = picture.replace(f"{STEP}/", f"{COPY}/")  # as the tutorial calls it
    paper = '</style><rect style="fill: #fff; stroke: none" width="100%" height="100%"/>'
    picture = picture.replace("</style>", paper, 1)
    return picture.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1) + "\n"


def without_machine(lines: Sequence[str]) -> list[str]:
    """What ``demo`` prints, but for the lines that name the machine or a time, and what is next."""
    head = next(at for at, line in enumerate(lines) if line.startswith(f"{COPY}  "))
    finding = next(at for at, line in enumerate(lines) if line.startswith("error["))
    end = next(at for at, line in enumerate(lines) if line.startswith("next:"))
    return [*lines[:head], *lines[finding:end]]


def page_with(lines: list[str]) -> str:
    """The page with the first finding of a report between its markers."""
    end = next(at for at, line in enumerate(lines) if line.startswith("  = identity: "))
    block = "\n".join(["```", *lines[: end + 1], "```"])
    return replace_between(PAGE.read_text(encoding="utf-8"), MARKERS, block)


def main() -> int:
    """Write picture and page, or with ``--check`` compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="only say whether they are as they are"
    )
    check = parser.parse_args().check
    stale = 0
    with tempfile.TemporaryDirectory(prefix="kernelbench-picture-") as folder:
        trace, record = Path(folder) / "trace.json", Path(folder) / "check.json"
        page = page_with(report(FENCE, trace, record))
        finding = drawn(without_machine(printed(["demo"], 0)))
        report(COMMIT, trace, record)
        waits = waits_drawn(record)
        title = f"{STEP} without one of its tcgen05.commit: the order of events, one schedule"
        shown = trace_svg(json.loads(trace.read_text()), title, r"(full|empty)\[[01]\]|tmem_full")
    for file, text in ((PICTURE, finding), (TRACE, shown), (WAITS, waits), (PAGE, page)):
        if file.is_file() and file.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        name = file.relative_to(ROOT)
        if check:
            print(f"{name} is not up to date: `make pictures` writes it anew")
        else:
            file.write_text(text, encoding="utf-8")
            print(f"{name}: written")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
