"""``kernelbench serve``: keep workers ready for the commands that come."""

from __future__ import annotations

import os
import sys

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
    show_default=True,
    metavar="MINUTES",
    help="Without a command, after which it ends.",
)
def command(idle: float) -> int:
    """Keep workers ready for the commands of this project, until none has come for a while.

    They have torch imported and, with a GPU, a CUDA context, which takes some of its memory.
    Each is used once: a session of ab has a fresh process all the same. Commands find it by
    themselves; one that comes while another is served starts its own. Ctrl-C ends it.
    """
    from kernelbench.base import console
    from kernelbench.project.project_file import find_project
    from kernelbench.worker import served

    root = find_project().root
    listening = served.listen()
    listening.set_inheritable(True)
    console.err.print(
        f"serving {root}; ends {idle:g} min after the last command, or with Ctrl-C", soft_wrap=True
    )
    words = [sys.executable, "-m", "kernelbench.worker.child", "--serve"]
    # The same process, so that it is what a shell waits for and Ctrl-C reaches.
    os.execv(sys.executable, [*words, str(listening.fileno()), str(60 * idle)])
