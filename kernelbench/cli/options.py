"""Options that several commands share, and what they have in common in handling them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from kernelbench.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def _complete_steps(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    from kernelbench.context import Context

    steps = Context.find().lineages.steps
    return [
        CompletionItem(step.name, help=step.title)
        for step in steps
        if step.name.startswith(incomplete)
    ]


def _complete_shapes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    from kernelbench.context import Context

    return [
        CompletionItem(name, help=shape.describe())
        for name, shape in Context.find().shapes.items()
        if name.startswith(incomplete)
    ]


def steps_argument(function: F) -> F:
    """``STEP...``"""
    return click.argument(
        "steps", nargs=-1, required=True, metavar="STEP...", shell_complete=_complete_steps
    )(function)


def step_argument(name: str) -> Callable[[F], F]:
    """One step as a positional argument."""
    return click.argument(name, metavar=name.upper(), shell_complete=_complete_steps)


def shape_option(function: F) -> F:
    """``--shape``, repeatable."""
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME",
        shell_complete=_complete_shapes,
        help="Shape by name or ad hoc (m=40,76:n=512:k=768); repeatable. "
        "'all' is the benchmark shapes (the default), 'every' the whole file.",
    )(function)


def timing_options(function: F) -> F:
    """Options of every command that times."""
    for option in (
        click.option(
            "--reps",
            type=click.IntRange(min=1),
            default=500,
            show_default=True,
            help="Timed repetitions per arm.",
        ),
        click.option(
            "--warm", is_flag=True, help="Leave the L2 warm (back to back) instead of flushing it."
        ),
        click.option(
            "--device",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="CUDA ordinal of the GPU.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=None,
            help="Seed of inputs, poison and order; drawn anew if not given, and always shown.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0.1),
            default=120.0,
            show_default=True,
            help="Seconds after which a call of a step counts as hung.",
        ),
        click.option(
            "--budget",
            type=click.FloatRange(min=0.1),
            default=10.0,
            show_default=True,
            help="Seconds of timed work per shape on a CPU.",
        ),
        results_option,
    ):
        function = option(function)
    return function


def results_option(function: F) -> F:
    """``--results DIR``"""
    return click.option(
        "--results",
        type=click.Path(file_okay=False),
        default=None,
        help="Results folder (default: the project's).",
    )(function)


def json_option(function: F) -> F:
    """``--json PATH|-``"""
    return click.option(
        "--json",
        "json_path",
        metavar="PATH|-",
        default=None,
        help="Also write the record as JSON; '-' is stdout, and then nothing else goes there.",
    )(function)


def write_json_output(json_path: str, value: Any) -> None:
    """Write a record to stdout (``-``) or atomically to a file."""
    import json

    from kernelbench import records, schema

    if json_path == "-":
        click.echo(json.dumps(schema.dump(value), indent=1, allow_nan=False))
    else:
        records.write_json(Path(json_path), value)


def require_writable(json_path: str | None) -> None:
    """Refuse an output file that could not be written, before hours of measuring.

    Raises:
        UsageError: If its folder does not exist or cannot be written.
    """
    if json_path is None or json_path == "-":
        return
    path = Path(json_path).expanduser().resolve()
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"cannot write {json_path}: it is a folder", "name a file in it")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write {json_path}: {folder} is not a writable folder")


def command_line() -> str:
    """The command as the user typed it, without the folders of the user's machine."""
    words = []
    for word in sys.argv[1:]:
        words.append(Path(word).name if Path(word).is_absolute() else word)
    return "kernelbench " + " ".join(words)
