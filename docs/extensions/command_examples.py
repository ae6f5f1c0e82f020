"""Examples and exit codes below a command are shown as they are typed, not as prose."""

from __future__ import annotations

from typing import Any

import click
from sphinx.application import Sphinx


def as_typed(_app: Sphinx, ctx: click.Context, lines: list[str]) -> None:
    """Make literal blocks of an epilog's unwrapped parts (those that click marks with ``\\b``)."""
    shown: list[str] = []
    for part in (ctx.command.epilog or "").split("\n\n"):
        text = part.strip("\n")
        if text.startswith("\b"):
            head, *rest = text.removeprefix("\b").strip("\n").splitlines()
            shown += [f"{head.rstrip(':')}::", "", *(f"   {line.strip()}" for line in rest), ""]
        else:
            shown += [*text.splitlines(), ""]
    lines[:] = shown


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("sphinx-click-process-epilog", as_typed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
