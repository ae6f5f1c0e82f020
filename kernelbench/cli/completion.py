"""``kernelbench completion SHELL``: the script that a shell sources."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    "completion",
    epilog="\b\nExamples:\n"
    '  eval "$(kernelbench completion bash)"\n'
    "  kernelbench completion fish > ~/.config/fish/completions/kernelbench.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script of a SHELL."""
    from kernelbench.cli import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(cli, {}, "kernelbench", "_KERNELBENCH_COMPLETE").source())
    return 0
