"""Options that several commands share, and what they have in common in handling them."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from kernelbench.base.errors import ExitCode, Interrupted, KernelbenchError, UsageError
from kernelbench.emulator.settings import DEFAULT_EMULATION, MAX_SMS, ROUNDINGS, Emulation, Rounding
from kernelbench.records.metrics import METRICS

if TYPE_CHECKING:
    from kernelbench.base.console import Console

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


class Seconds(click.ParamType[float]):
    """A duration of at least ``minimum`` seconds: ``90``, ``90s``, ``1.5m`` or ``1h``."""

    name = "seconds"

    def __init__(self, minimum: float = 0.0) -> None:
        self._minimum = minimum

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([smh]?)", str(value).strip())
        if match is None:
            self.fail(f"expected a time such as 60, 60s or 5m, found {value!r}", param, ctx)
        seconds = float(match[1]) * _UNITS[match[2]]
        if seconds < self._minimum:
            self.fail(f"expected {self._minimum:g}s or more, found {value!r}", param, ctx)
        return seconds


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
            sign = "" if text.endswith("%") else "; write 5% for 5 percent"
            self.fail(f"expected 0% to 100%, found {value!r}{sign}", param, ctx)
        if number >= 0.1 and not text.endswith("%"):
            # Who types 0.5 means half a percent more often than half: a gate must not guess.
            self.fail(
                f"{text} is {100 * number:g}%: write {text}% or {100 * number:g}%", param, ctx
            )
        return number


def some_of(words: Iterable[str]) -> Callable[[str | tuple[()]], tuple[str, ...]]:
    """The type of an option that takes some of a few words, with commas between."""
    known = [*words]

    def chosen(value: str | tuple[()]) -> tuple[str, ...]:
        if value == ():
            return ()
        given = [word.strip() for word in str(value).split(",")]
        for word in given:
            if word not in known:
                raise click.BadParameter(f"expected {', '.join(known)}, found {word!r}")
        return tuple(dict.fromkeys(given))

    return chosen


#: What each condition of ``--fail-on`` means, and the exit code.
_CONDITIONS = {
    "slower": "a SLOWER (1)",
    "ambiguous": "an AMBIGUOUS (4)",
    "skipped": "a shape that was skipped (5)",
}


def predict_option(function: F) -> F:
    """``--predict`` and what belongs to it, which take few other options."""
    plot = click.option(
        "--predict-plot",
        metavar="FILE",
        help="--predict, and the schedule of one shape's first CTA: a Gantt chart (.svg) or, "
        ".json, a trace for ui.perfetto.dev.",
    )
    save = click.option(
        "--predict-save",
        is_flag=True,
        help="--predict, and keep bubbles and schedules for `report`, in results/predicted.",
    )
    return click.option(
        "--predict",
        is_flag=True,
        help="Measure nothing: predict, from an emulated call, what a B200 or H200 would take.",
    )(predict_on_option(plot(save(function))))


def predict_on_option(function: F) -> F:
    """``--predict-on``"""
    return click.option(
        "--predict-on",
        metavar="b200|h200|h100|FILE",
        help="Predict for another GPU than a B200 or, for sm_90a, an H200; FILE: see `calibrate`.",
    )(function)


def fail_on_option(*words: str) -> Callable[[F], F]:
    """``--fail-on``, with the words that a command knows."""
    meant = ", ".join(f"{word}: {_CONDITIONS[word]}" for word in words)

    def decorate(function: F) -> F:
        return click.option(
            "--fail-on",
            type=some_of(words),
            default=(),
            metavar=",".join(words),
            help=f"Leave with another code after {meant}.",
        )(function)

    return decorate


def code_of_skipped(skipped: int, rows: int, fail_on: tuple[str, ...]) -> ExitCode:
    """The code of what is right where it ran; one skipped row is enough if that was asked for."""
    lacking = skipped if fail_on else skipped == rows
    return ExitCode.ENVIRONMENT if lacking else ExitCode.PASS


def complete_steps(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    """Names of steps, for the shell."""
    from kernelbench.project.context import Context

    return _starting(((s.name, s.title) for s in Context.find().lineages.all_steps), incomplete)


def _complete_shapes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    from kernelbench.project.context import Context

    shapes = Context.find().shapes.items()
    return _starting(((name, shape.describe()) for name, shape in shapes), incomplete)


def _complete_specs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Names of steps and of lineages, for the shell."""
    from kernelbench.project.context import Context

    lineages = ((each.name, each.title) for each in Context.find().lineages.all_lineages)
    return complete_steps(ctx, param, incomplete) + _starting(lineages, incomplete)


def _starting(named: Iterable[tuple[str, str]], incomplete: str) -> list[Any]:
    """Of names with what is said of them, those that go on from what was typed."""
    return [CompletionItem(name, help=said) for name, said in named if name.startswith(incomplete)]


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


def shape_option(
    default: str = "'all' is the benchmark shapes (the default), 'every' the whole file.",
) -> Callable[[F], F]:
    """``--shape``, repeatable; ``default`` says what is meant without it."""
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME",
        shell_complete=_complete_shapes,
        help=f"Shape by name or ad hoc (m=40,76:n=512:k=768); repeatable. {default}",
    )


def count_option(
    name: str, text: str, *, least: int = 1, most: int | None = None, default: Any = None,
    shown: str | None = None,
) -> Callable[[F], F]:  # fmt: skip
    """A whole number.

    Args:
        name: As typed, with its dashes; text: the help.
        least, most: What it may be; no limit above if None.
        shown: Describes the default where that is None, or a function.
    """
    return click.option(
        name, type=click.IntRange(least, most), default=default, show_default=shown, help=text
    )


def measuring_options(function: F) -> F:
    """``--results`` and the options of a measurement, named as the fields of ``Measuring``."""
    from kernelbench.runs.settings import MAX_REPS, MEASURING

    for option in (
        count_option("--reps", "Timed repetitions per arm.", most=MAX_REPS, default=MEASURING.reps),
        click.option(
            "--warm",
            "l2",
            flag_value="warm",
            default=MEASURING.l2,
            show_default=False,
            help="Leave the L2 warm (back to back) instead of flushing it.",
        ),
        count_option("--device", "CUDA ordinal of the GPU.", least=0, default=MEASURING.device),
        seed_option("inputs, poison and order"),
        timeout_option(
            None,
            "a call of a step counts as hung",
            f"{MEASURING.timeout_s:g}, or the time that --task says",
        ),
        click.option(
            "--budget",
            "budget_s",
            type=Seconds(0.1),
            default=MEASURING.budget_s,
            help="Seconds of timed work per shape (and session) on a CPU.",
        ),
        results_option,
    ):
        function = option(function)
    return function


def metric_option(help: str | None = None, choices: Iterable[str] = METRICS) -> Callable[[F], F]:
    """``--metric``"""
    return click.option("--metric", type=click.Choice([*choices]), default="device", help=help)


def seed_option(of: str) -> Callable[[F], F]:
    """``--seed``"""
    return click.option(
        "--seed",
        type=click.IntRange(min=0),
        help=f"Seed of {of}; drawn anew if not given, and always shown.",
    )


def timeout_option(
    default_s: float | None, what: str, shown: str | None = None
) -> Callable[[F], F]:
    """``--timeout``, after which ``what`` happens; ``shown`` describes a default of None."""
    return click.option(
        "--timeout", "timeout_s", type=Seconds(0.1), default=default_s, show_default=shown or True,
        help=f"Seconds after which {what}.",
    )  # fmt: skip


def rounding_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--mma-rounding``"""
    return click.option(
        "--mma-rounding",
        type=click.Choice(ROUNDINGS),
        default=DEFAULT_EMULATION.mma_rounding,
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
        help="Streaming multiprocessors of the emulated GPU.",
    )(rounding_option(command))


def task_option(function: F) -> F:
    """``--task DIR``"""
    return click.option(
        "--task",
        metavar="DIR",
        help="Folder of a GPU MODE task (task.yml), in place of this project's problems.",
    )(function)


def results_option(function: F) -> F:
    """``--results DIR``"""
    return click.option(
        "--results",
        type=click.Path(file_okay=False),
        help="Results folder (default: the project's).",
    )(function)


@dataclass(frozen=True)
class RecordOutput:
    """Where ``--json`` has a record written: to a file, to stdout (``-``), or nowhere (None)."""

    path: str | None

    @property
    def alone(self) -> bool:
        """Whether it goes to stdout, and then nothing else does."""
        return self.path == "-"

    @property
    def people(self) -> Console:
        """Where what people read goes."""
        from kernelbench.base import console

        return console.err if self.alone else console.out

    def write(self, value: Any) -> None:
        """Write the record, if that was asked for."""
        if self.path is not None:
            write_json_output(self.path, value)


def json_option(function: F) -> F:
    """``--json PATH|-``, as a :class:`RecordOutput`"""
    return click.option(
        "--json",
        metavar="PATH|-",
        type=output_file,
        callback=lambda _context, _option, path: RecordOutput(path),
        help="Also write the record as JSON; '-' is stdout, and then nothing else goes there.",
    )(function)


def plot_option(what: str) -> Callable[[F], F]:
    """``--plot FILE``"""
    return click.option(
        "--plot", "plot_path", metavar="FILE", type=drawing_file,
        help=f"Also draw {what} as a .svg, .pdf or .png file (needs matplotlib).",
    )  # fmt: skip


def write_json_output(path: str, value: Any) -> None:
    """Write a record to stdout (``-``) or atomically to a file."""
    import json

    from kernelbench.base import json_file, schema

    if path == "-":
        click.echo(json.dumps(schema.encode(value), indent=1, allow_nan=False))
    else:
        json_file.write_json(Path(path), value)


@contextlib.contextmanager
def showing_partial(kind: type[R], show: Callable[[R], object]) -> Iterator[None]:
    """Show what an error or Ctrl-C has left of a record, before it ends the command."""
    try:
        yield
    except (KernelbenchError, Interrupted) as error:
        if isinstance(error.partial, kind):
            show(error.partial)
        raise


def output_file(path: str) -> str:
    """The path; UsageError if no output could be written there, before hours of measuring."""
    from kernelbench.base.files import is_writable_folder

    file = Path(path).expanduser().resolve()
    if path != "-" and file.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", "name a file in it")
    if path != "-" and not is_writable_folder(file.parent):
        raise UsageError(f"cannot write {path}: {file.parent} is not a writable folder")
    return path


def drawing_file(path: str) -> str:
    """The path; UsageError or, without matplotlib, EnvironmentProblem if it cannot be drawn to."""
    from kernelbench.report import drawing

    drawing.require_drawable(output_file(path))
    return path


def command_line() -> str:
    """The command as the user typed it, without the folders of the user's machine."""
    words = (Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])
    return "kernelbench " + " ".join(words)
