"""``kernelbench init``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kernelbench.lineages.scaffold import new_project, template_names
from kernelbench.problems.task_folder import task_project


@click.command(
    "init",
    epilog="\b\nExamples:\n"
    "  kernelbench init my-kernels\n"
    "  kernelbench init my-gemm --problem gemm\n"
    "  mkdir new && cd new && kernelbench init --problem blank\n"
    "  kernelbench init my-task --task path/to/gpu-mode-task",
)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--problem",
    "template",
    type=click.Choice(template_names()),
    default="rmsnorm",
    help="What is computed at first: RMSNorm, a matrix product, or next to nothing.",
)
@click.option(
    "--task",
    metavar="DIR",
    help="Folder of a GPU MODE task: the project is a lineage of it, and of a copy of its files.",
)
def command(folder: Path, template: str, task: str | None) -> None:
    """Make a project that runs at once: a problem, two steps, shapes, a workflow, a README.

    Nothing is overwritten: if a file or folder of that name exists, nothing is written. With --task
    the folder must be new or empty.
    """
    then = "next:" if folder == Path() else f"next: cd {shlex.quote(str(folder))}"
    if task is not None:
        made = task_project(Path(task), folder)
        click.echo(then)
        click.echo(f"  kernelbench run {made} --shape every")
        return
    files = new_project(folder, template)
    for path in files:
        click.echo(f"  {folder / path}")
    click.echo(then)
    click.echo(f"  kernelbench doctor --problem {template}")
    click.echo(f"  kernelbench run {template}")
