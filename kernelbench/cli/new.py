"""``kernelbench new``."""

from __future__ import annotations

import contextlib
import os

import click

from kernelbench.base import console
from kernelbench.base.errors import UsageError
from kernelbench.cli import options
from kernelbench.executors.emulated import EMULATOR
from kernelbench.lineages import scaffold
from kernelbench.project.context import Context
from kernelbench.project.registry import Step
from kernelbench.project.source_files import own_sources, sources_of


@click.command(
    "new",
    epilog="\b\nExamples:\n"
    "  kernelbench new v24 --from v23\n"
    '  kernelbench new v24 --from v23 --title "Four stages"\n'
    "  kernelbench new m05-two-tiles --from m05 --variant --file gemm.cuh",
)
@click.argument("name")
@click.option(
    "--from",
    "source",
    required=True,
    metavar="STEP",
    shell_complete=options.complete_steps,
    help="The step to start from; it becomes the parent.",
)
@click.option("--variant", is_flag=True, help="Hold only what differs; the rest stays STEP's.")
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="NAME",
    help="With --variant: a file of STEP to copy and change; repeatable.",
)
@click.option("--title", default="", show_default=False, help="What changes, in a few words.")
@click.option("--technique", default="", show_default=False, help="What changes, in one line.")
@click.option(
    "--hypothesis",
    default="",
    show_default=False,
    help="What should get faster because of it, and why.",
)
def command(
    name: str,
    source: str,
    variant: bool,
    files: tuple[str, ...],
    title: str,
    technique: str,
    hypothesis: str,
) -> None:
    """Make a new step from another one: folder, step.toml, README and code.

    The code is STEP's, so that it runs at once; `kernelbench diff` shows what you change from
    there. A variant's folder has only step.toml, README and the files that differ. Prints the new
    files, one a line.
    """
    context = Context.find()
    if context.project.nowhere:
        raise UsageError("there is no project here", "`kernelbench init` makes one")
    lineages = context.lineages
    chosen = lineages.select_one(source, "start from one")
    words = scaffold.StepWords(title, technique, hypothesis)
    if variant:
        made = scaffold.new_variant(lineages, name, chosen, files, words)
    elif files:
        raise UsageError("--file goes with --variant", "a step has a copy of every file")
    else:
        made = scaffold.new_step(lineages, name, chosen, words)
    for file in sorted(path for path in made.path.rglob("*") if path.is_file()):
        console.out.say(os.path.relpath(file))
    if scaffold.sorts_before_parent(Context.find().lineages, made):
        console.warn(f"{name} comes before its parent {made.parent} in ranges, which go by name")
    if made.base and not own_sources(made):
        where = f"{os.path.relpath(made.base.path)} ({', '.join(sources_of(made))})"
        hint = f"no code of its own yet: copy there what you change from {where}"
        console.err.say(hint)
    commands = [f"run {name}{_small_shape(context, made)}", f"check {name}", f"diff {name}"]
    if EMULATOR.refusal(made):
        del commands[1]
    shown = ", ".join(f"`kernelbench {command}`" for command in commands)
    hint = f"change it, say in step.toml and README.md what and why, then {shown}"
    console.err.print(hint)


def _small_shape(context: Context, made: Step) -> str:
    """The option that spares a first run the benchmark shapes, minutes on a CPU."""
    shape = ""
    with contextlib.suppress(UsageError):  # of a broken shapes file, which `run` will tell of
        shape = context.trial_shape(made)
    return f" --shape {shape}" if shape else ""
