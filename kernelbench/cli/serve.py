"""``kernelbench serve``: keep workers ready for the commands that come."""

from __future__ import annotations

import click


@click.command(
    "serve",
    epilog="\b\nExamples:\n"
    "  kernelbench serve &              then run, ab and calibrate begin at once\n"
    "  kernelbench serve --idle 60 &    for an hour without a command",
)
@click.option(
    "--idle",
    type=click.FloatRange(min=0.01),
    default=10.0,
    metavar="MINUTES",
    help="Without a command, after which it ends.",
)
def command(idle: float) -> int:
    """Keep workers ready for the commands of this project, until none has come for a while.

    They have torch imported and, with a GPU, a CUDA context, which takes some of its memory.
    Each is used once: a session of ab has a fresh process all the same. Another process carries out
    run and ab, with the imports that they need done. Commands find both by themselves; one that
    comes while another is served starts its own workers. Ctrl-C ends it.
    """
    from kernelbench.base import console
    from kernelbench.cli import command_server
    from kernelbench.project.project_file import find_project

    def say_so() -> None:
        root = find_project().root
        text = f"serving {root}; ends {idle:g} min after the last command, or with Ctrl-C"
        console.err.print(text)

    command_server.keep_workers(60 * idle, say_so)
