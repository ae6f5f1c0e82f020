"""What `kernelbench check` says of v07 without one of its instructions, as the pages show it.

``python tools/pictures.py`` draws ``docs/pictures/finding.svg`` and ``trace.svg`` (without a
tcgen05.commit) and fills in the report of ``docs/checker.md`` (without a proxy fence); ``--check``
only says whether they are what the checker prints today. It needs a C++ compiler and no GPU.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from rich.console import Console
from rich.text import Text
from trace_picture import trace_svg

from kernelbench.report.readme_tables import replace_between

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "finding.svg"
TRACE = ROOT / "docs" / "pictures" / "trace.svg"

STEP = "v07"
COMMIT = "ptx::tcgen05_commit(ptx::cta_group_1, &shared.empty[state.stage]);"
FENCE = "ptx::fence_proxy_async(ptx::space_shared_cta);"
PAGE = ROOT / "docs" / "checker.md"
MARKERS = ("<!-- fence:begin -->", "<!-- fence:end -->")
COMMAND = ("check", STEP, "--shape", "u3", "--sms", "1", "--schedules", "1", "--seed", "7",
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


def broken_project(folder: Path, dropped: str) -> None:
    """A project with a copy of the step that lacks a line."""
    lineage = folder / "kernels"
    shutil.copytree(ROOT / "kernels" / STEP, lineage / STEP)
    kernel = lineage / STEP / "kernel.cuh"
    source = kernel.read_text()
    if source.count(dropped) != 1:
        raise SystemExit(f"{kernel.name} of {STEP} has not one line {dropped!r}")
    kernel.write_text(source.replace(dropped, "// (left out)"))
    toml = lineage / STEP / "step.toml"
    lines = toml.read_text().splitlines(keepends=True)
    toml.write_text("".join(line for line in lines if not line.startswith("parent")))
    (lineage / "common").symlink_to(ROOT / "kernels" / "common")
    (lineage / "lineage.toml").write_text(
        'name = "group_gemm"\ntitle = "t"\nproblem = "kernelbench.problems.group_gemm:PROBLEM"\n'
    )
    (folder / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["kernels"]\n')
    text = (ROOT / "shapes.yaml").read_text()
    (folder / "shapes.yaml").write_text(text.partition("\nfused_moe:")[0])


def report(dropped: str, trace: Path) -> list[str]:
    """What ``check`` prints of the step: its report, without the machine and the seconds.

    Args:
        trace: Where the trace of its finding goes.
    """
    with tempfile.TemporaryDirectory(prefix="kernelbench-picture-") as folder:
        broken_project(Path(folder), dropped)
        environment = os.environ | {"KERNELBENCH_ROOT": folder, "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "kernelbench", *COMMAND, "--trace", str(trace)],
            capture_output=True, text=True, check=False, cwd=ROOT,
            env=environment | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    lines = done.stdout.splitlines()
    begin = f"{STEP} u3:"
    if done.returncode != 3 or begin not in lines:
        raise SystemExit(f"the checker found nothing:\n{done.stdout}{done.stderr}")
    return [line for line in lines[lines.index(begin) :] if not line.startswith("trace of ")]


def drawn(lines: list[str]) -> str:
    """The SVG of a terminal with the command and what it printed."""
    console = Console(
        record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text(f"# {STEP} without one of its tcgen05.commit", style="dim"))
    console.print(Text(f"$ kernelbench {' '.join(COMMAND[:4])}", style="bold green"))
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        for part in textwrap.wrap(line, _WIDTH, subsequent_indent=indent, drop_whitespace=False):
            text = Text(part.rstrip() if part.strip() else "")
            text.highlight_words(["hang:", f"{STEP} u3:"], "bold red")
            text.highlight_words(["waits for"], "cyan")
            text.highlight_regex(r"\[[\w./]+:\d+\]", "yellow")
            console.print(text)
    console.print()  # the last line's lower edge
    return console.export_svg(title="", code_format=_FORMAT, unique_id="finding")


def page_with(lines: list[str]) -> str:
    """The page with the first finding of a report between its markers."""
    finding = lines[1:]
    ends = [i for i, line in enumerate(finding) if i and not line.startswith("    ")]
    block = "\n".join(["```", *finding[: ends[0] if ends else None], "```"])
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
        trace = Path(folder) / "trace.json"
        page = page_with(report(FENCE, trace))
        finding = drawn(report(COMMIT, trace))
        title = f"{STEP} without one of its tcgen05.commit: the order of events, one schedule"
        shown = trace_svg(json.loads(trace.read_text()), title, r"(full|empty)\[[01]\]|tmem_full")
    for file, text in ((PICTURE, finding), (TRACE, shown), (PAGE, page)):
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
