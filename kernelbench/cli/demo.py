"""``kernelbench demo``."""

from __future__ import annotations

import difflib
import shutil
import tempfile
from pathlib import Path

import click

from kernelbench.base import console
from kernelbench.base.errors import HarnessDefect, UsageError
from kernelbench.cli import check_view
from kernelbench.machine.devices import require_torch
from kernelbench.project.shipped import shipped_root


@click.command("demo")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the broken step there and leave it, to mend and check it; the folder must be new.",
)
def command(keep: Path | None) -> None:
    """Take one line out of a Blackwell kernel, and have the checker find what that breaks.

    Copies v07, which ships, without one of its tcgen05.commit, and runs it on the CPU emulator in
    one schedule. Needs a C++ compiler and no GPU. Leaves with 0 if the checker finds the hang.

    \b
    Examples:
      kernelbench demo
      kernelbench demo --keep broken     then mend broken/kernels/demo/kernel.cuh, and
      kernelbench check broken/kernels/demo
    """
    require_torch("the demonstration")
    if keep is not None:
        if keep.exists():
            raise UsageError(f"{keep} is there already", "give a folder that is not")
        _show(keep)
        console.out.print(f"next: mend {keep}/kernels/{COPY}/kernel.cuh, then")
        console.out.print(f"  kernelbench check {keep}/kernels/{COPY}")
        return
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as folder:
        _show(Path(folder))
    console.out.print("next: kernelbench demo --keep DIR leaves the broken step there, to mend it")
    console.out.print(f"  kernelbench check {SOURCE}        the right one, in many schedules")
    console.out.print("  kernelbench check your.cu    a CUDA program of your own")


def _show(folder: Path) -> None:
    """Make the broken step in a folder, check it, and explain the finding."""
    from kernelbench.checks import api

    copy = broken_step(folder)
    console.out.print(f"{SOURCE}, a Blackwell kernel that ships, without one line:\n")
    for line in removed_lines(copy):
        style = "bold red" if line.startswith("-") else "dim"
        console.out.say(f"  {line}", style)
    console.out.print()
    view = check_view.View(console.out, api.MAX_FINDINGS, repeats=False)
    with view:
        report = api.check(
            str(copy), SHAPE, schedules=1, sms=(1,), seed=7, sequence=False, jobs=1,
            command="kernelbench demo", observer=view,
        )  # fmt: skip
    view.results(report.steps)
    if [row.status for step in report.steps for row in step.rows] != ["hang"]:
        raise HarnessDefect(f"the checker did not find the hang of {COPY}")
    console.out.print()
    console.out.say(f"why: {EXPLANATION}\n")


#: The Blackwell step that the demonstration starts from, and the name of its copy.
SOURCE, COPY = "v07", "demo"
_FILE = "kernel.cuh"
#: The tensor core's signal that it has read a stage of the ring, so that it may be refilled.
COMMIT = "ptx::tcgen05_commit(ptx::cta_group_1, &shared.empty[state.stage]);"
#: A small shape: fewer blocks of K than stages, so that only the end of the tile needs that signal.
SHAPE = "u3"
#: Why the checker reports what it reports.
EXPLANATION = (
    "tcgen05.commit arrives at empty[stage] once the tensor core has read that stage. The load "
    "warp waits for it before it refills a stage and, after its last load, until every stage is "
    "empty: only then may the barriers be given up. Without the commit this last wait never ends, "
    "and all other warps wait for the load warp. On a GPU the kernel hangs silently."
)
_LINEAGE = """\
name = "kernels"
title = "A Blackwell kernel without one of its lines"
problem = "kernelbench.problems.group_gemm:PROBLEM"
"""


def broken_step(folder: Path, *, dropped: str = COMMIT, name: str = COPY) -> Path:
    """Write a copy of the step that lacks one line; its folder.

    Args:
        folder: Gets a lineage ``kernels`` with the copy as its only step.
        dropped: The statement to take out, which the kernel has once.
        name: What the copy is called.

    Raises:
        HarnessDefect: If the shipped step does not have the statement once.
        OSError: If the folder cannot be written.
    """
    lineage = folder / "kernels"
    step = lineage / name
    shutil.copytree(shipped_root() / "kernels" / SOURCE, step)
    kernel = step / _FILE
    source = kernel.read_text(encoding="utf-8")
    if source.count(dropped) != 1:
        raise HarnessDefect(f"{SOURCE}/{_FILE} does not have the line {dropped!r} once")
    kept = [
        line.replace(dropped, "")
        for line in source.splitlines(keepends=True)
        if line.strip() != dropped
    ]
    kernel.write_text("".join(kept), encoding="utf-8")
    toml = step / "step.toml"
    lines = toml.read_text(encoding="utf-8").splitlines(keepends=True)
    words = "".join(line for line in lines if not line.startswith("parent ="))
    toml.write_text(words.replace(f'"{SOURCE}"', f'"{name}"', 1), encoding="utf-8")
    (step / "README.md").unlink(missing_ok=True)
    (lineage / "lineage.toml").write_text(_LINEAGE, encoding="utf-8")
    return step


def removed_lines(step: Path) -> list[str]:
    """How a copy differs from the step that ships: the lines of a unified diff, without a head."""
    before, after = (
        file.read_text(encoding="utf-8").splitlines()
        for file in (shipped_root() / "kernels" / SOURCE / _FILE, step / _FILE)
    )
    return [*difflib.unified_diff(before, after, n=2, lineterm="")][2:]
