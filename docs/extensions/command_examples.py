"""Examples and exit codes of a command are shown as they are typed, not as prose."""

from __future__ import annotations

import inspect
from typing import Any

import click
from sphinx.application import Sphinx


def _as_typed(text: str) -> list[str]:
    """Lines of reStructuredText; unwrapped parts (that click marks with ``\\b``) are literal."""
    shown: list[str] = []
    for part in inspect.cleandoc(text).split("\n\n"):
        if part.startswith("\b"):
            head, *rest = part.removeprefix("\b").strip("\n").splitlines()
            shown += [f"{head.rstrip(':')}::", "", *(f"   {line.strip()}" for line in rest), ""]
        else:
            shown += [*part.splitlines(), ""]
    return shown


def _description(_app: Sphinx, ctx: click.Context, lines: list[str]) -> None:
    lines[:] = _as_typed(ctx.command.help or "")


def _epilog(_app: Sphinx, ctx: click.Context, lines: list[str]) -> None:
    lines[:] = _as_typed(ctx.command.epilog or "")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("sphinx-click-process-description", _description)
    app.connect("sphinx-click-process-epilog", _epilog)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
