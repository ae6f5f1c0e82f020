"""``kernelbench init``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelbench.lineages.project_templates import new_project, template_names


@click.command(
    "init",
    epilog="\b\nExamples:\n"
    "  kernelbench init my-kernels\n"
    "  kernelbench init my-gemm --problem gemm\n"
    "  mkdir new && cd new && kernelbench init --problem blank",
)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--problem",
    "template",
    type=click.Choice(template_names()),
    default="rmsnorm",
    show_default=True,
    help="What is computed at first: RMSNorm, a matrix product, or next to nothing.",
)
def command(folder: Path, template: str) -> None:
    """Make a project that runs at once: a problem, two steps, shapes, a workflow, a README.

    Nothing is overwritten: if a file or folder of that name exists, nothing is written.
    """
    files = new_project(folder, template)
    for path in files:
        click.echo(f"  {folder / path}")
    click.echo("next:" if folder == Path() else f"next: cd {folder}")
    click.echo(f"  kernelbench doctor --problem {template}")
    click.echo(f"  kernelbench run {template}")
