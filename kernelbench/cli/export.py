"""``kernelbench export``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelbench.base.errors import UsageError
from kernelbench.cli.options import step_argument


@click.command("export")
@step_argument("step")
@click.option(
    "-o", "--output", required=True, metavar="FILE|-", help="The file to write; '-' is stdout."
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--leaderboard", metavar="NAME", help="Leaderboard for the file's header.")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="GPU for it; repeatable.")
def command(
    step: str, output: str, force: bool, leaderboard: str | None, gpus: tuple[str, ...]
) -> None:
    """Write a step as one file that GPU MODE's server accepts.

    A compiled step's file holds its source and all building blocks, and builds itself with nvcc
    when it is imported. The file is checked against the server's static rules first: it stands
    alone, defines custom_kernel(data), and has a #!POPCORN header and none of the letters that are
    banned. A compiled step of a problem that GPU MODE does not have gets no header.

    \b
    Examples:
      kernelbench export v00 -o submission.py
      kernelbench export v22 -o - --gpu B200
      kernelbench export m10 -o moe.py
    """
    from kernelbench.base import files
    from kernelbench.lineages.submission import export
    from kernelbench.project.context import Context
    from kernelbench.project.problem_loading import load_problem

    path = Path(output).expanduser()
    if output != "-":
        _require_free(path, force)
    context = Context.find()
    chosen = context.lineages.select_one(step, "export one at a time")
    problem = load_problem(context.lineage_for(chosen)) if chosen.compiled else None
    exported = export(chosen, leaderboard, gpus, problem)
    if output == "-":
        click.echo(exported.text, nl=False)
        return
    files.write_text(path, exported.text)
    where = f" for leaderboard {exported.leaderboard}" if exported.leaderboard else ""
    where += f" on {', '.join(exported.gpus)}" if exported.gpus else ""
    built = ", built on import" if chosen.compiled else ""
    click.echo(f"wrote {output}: {chosen.name}{built}{where}")


def _require_free(path: Path, force: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "give the name of a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: its folder does not exist")
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "give --force to replace it")
