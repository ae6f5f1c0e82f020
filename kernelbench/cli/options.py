"""Options that several commands share, and what they have in common in handling them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.shell_completion import CompletionItem

from kernelbench.base import seeds
from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.emulator.settings import DEFAULT_EMULATION, MAX_SMS, ROUNDINGS, Emulation, Rounding

if TYPE_CHECKING:
    from kernelbench.worker.jobs import Timing

#: Untimed calls of each arm before the timed ones.
WARMUPS = 50

F = TypeVar("F", bound=Callable[..., Any])


class Percent(click.ParamType[float]):
    """A fraction given as ``0.5%`` or ``0.005``."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The fraction, in [0, 1)."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            self.fail(f"expected a percentage such as 0.5%, found {value!r}", param, ctx)
        if not 0 <= number < 1:
            self.fail(f"expected 0% to 100%, found {value!r}", param, ctx)
        if number >= 0.1 and not text.endswith("%"):
            # Who types 0.5 means half a percent more often than half: a gate must not guess.
            self.fail(
                f"{text} is {100 * number:g}%: write {text}% or {100 * number:g}%", param, ctx
            )
        return number


def complete_steps(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    """Names of steps, for the shell."""
    from kernelbench.project.context import Context

    steps = Context.find().lineages.steps
    return [
        CompletionItem(step.name, help=step.title)
        for step in steps
        if step.name.startswith(incomplete)
    ]


def _complete_shapes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    from kernelbench.project.context import Context

    return [
        CompletionItem(name, help=shape.describe())
        for name, shape in Context.find().shapes.items()
        if name.startswith(incomplete)
    ]


def _complete_specs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Names of steps and of lineages, for the shell."""
    from kernelbench.project.context import Context

    lineages = [
        CompletionItem(lineage.name, help=lineage.title)
        for lineage in Context.find().lineages.lineages
        if lineage.name.startswith(incomplete)
    ]
    return complete_steps(ctx, param, incomplete) + lineages


def steps_argument(function: F) -> F:
    """``STEP...``"""
    return click.argument(
        "steps", nargs=-1, required=True, metavar="STEP...", shell_complete=_complete_specs
    )(function)


def optional_steps_argument(function: F) -> F:
    """``[STEP...]``"""
    return click.argument("steps", nargs=-1, metavar="[STEP...]", shell_complete=_complete_specs)(
        function
    )


def step_argument(name: str) -> Callable[[F], F]:
    """One step as a positional argument."""
    return click.argument(name, metavar=name.upper(), shell_complete=complete_steps)


def shape_option(function: F) -> F:
    """``--shape``, repeatable; the benchmark shapes if it is not given."""
    return _shapes("'all' is the benchmark shapes (the default), 'every' the whole file.")(function)


def check_shape_option(function: F) -> F:
    """``--shape``, repeatable; a few small shapes if it is not given."""
    return _shapes("Default: a few small ones of the problem's choice.")(function)


def figures_shape_option(function: F) -> F:
    """``--shape``, repeatable, for what shows figures."""
    return _shapes("Default: those with reported figures.")(function)


def _shapes(default: str) -> Callable[[F], F]:
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME",
        shell_complete=_complete_shapes,
        help=f"Shape by name or ad hoc (m=40,76:n=512:k=768); repeatable. {default}",
    )


@dataclass(frozen=True)
class Measuring:
    """The options that every command with a timing protocol has.

    Attributes:
        reps: Timed repetitions per arm.
        device: CUDA ordinal.
        seed: As given, or drawn anew.
        timeout: Seconds after which a call of a step counts as hung.
        budget: Seconds of timed work per shape on a CPU.
        results: The results folder as given; None for the project's.
    """

    reps: int
    l2: Literal["cold", "warm"]
    device: int
    seed: int
    timeout: float
    budget: float
    results: str | None

    def timing(
        self,
        *metrics: Literal["call", "device"],
        call: Literal["single", "competition"] = "single",
        batch: int = 1,
    ) -> Timing:
        """The protocol for these metrics, with the usual warm-ups."""
        from kernelbench.worker.jobs import Timing

        return Timing(self.reps, WARMUPS, self.l2, call, metrics, self.budget, batch)


def measuring_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :class:`Measuring` and pass them on as one argument, ``measuring``."""

    @functools.wraps(function)
    def command(
        *args: Any,
        reps: int,
        warm: bool,
        device: int,
        seed: int | None,
        timeout: float,
        budget: float,
        results: str | None,
        **rest: Any,
    ) -> Any:
        measuring = Measuring(
            reps,
            "warm" if warm else "cold",
            device,
            seeds.new_seed() if seed is None else seed,
            timeout,
            budget,
            results,
        )
        return function(*args, measuring=measuring, **rest)

    decorated: Callable[..., Any] = command
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
            help="Seconds of timed work per shape (and session) on a CPU.",
        ),
        results_option,
    ):
        decorated = option(decorated)
    return decorated


def rounding_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--mma-rounding``"""
    return click.option(
        "--mma-rounding",
        type=click.Choice(ROUNDINGS),
        default=DEFAULT_EMULATION.mma_rounding,
        show_default=True,
        help="How the emulator rounds the sums of an MMA.",
    )(function)


def emulation_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what can be chosen of the emulated GPU and pass it on as one argument, ``emulation``."""

    @functools.wraps(function)
    def command(*args: Any, sms: int, mma_rounding: Rounding, **rest: Any) -> Any:
        return function(*args, emulation=Emulation(sms, mma_rounding), **rest)

    return click.option(
        "--sms",
        type=click.IntRange(1, MAX_SMS),
        default=DEFAULT_EMULATION.sms,
        show_default=True,
        help="Streaming multiprocessors of the emulated GPU.",
    )(rounding_option(command))


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

    from kernelbench.base import json_file, schema

    if json_path == "-":
        click.echo(json.dumps(schema.encode(value), indent=1, allow_nan=False))
    else:
        json_file.write_json(Path(json_path), value)


def require_writable(json_path: str | None) -> None:
    """Refuse an output file that could not be written, before hours of measuring.

    Raises:
        UsageError: If its folder does not exist or cannot be written.
    """
    if json_path is None or json_path == "-":
        return
    from kernelbench.base.files import is_writable_folder

    path = Path(json_path).expanduser().resolve()
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"cannot write {json_path}: it is a folder", "name a file in it")
    if not is_writable_folder(folder):
        raise UsageError(f"cannot write {json_path}: {folder} is not a writable folder")


def require_results(folder: Path, hint: str = "choose another with --results") -> None:
    """Refuse a results folder that could not be written or made, before hours of measuring.

    Raises:
        EnvironmentProblem: If it, or what exists of the way there, is not a writable folder.
    """
    from kernelbench.base.files import existing_part, is_writable_folder

    existing = existing_part(folder)
    if not is_writable_folder(existing):
        raise EnvironmentProblem(
            f"cannot write results to {folder}: {existing} is not a writable folder", hint
        )


def command_line() -> str:
    """The command as the user typed it, without the folders of the user's machine."""
    words = []
    for word in sys.argv[1:]:
        words.append(Path(word).name if Path(word).is_absolute() else word)
    return "kernelbench " + " ".join(words)
