"""``kernelbench tune``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kernelbench.base import console
from kernelbench.base.errors import EnvironmentProblem, ExitCode
from kernelbench.cli import options
from kernelbench.stats.defaults import SESSIONS

if TYPE_CHECKING:
    from kernelbench.predict.tune import Tuning, Variation


@click.command(
    "tune",
    epilog="\b\nExamples:\n"
    "  kernelbench tune m05                     the constants that it has\n"
    "  kernelbench tune h07 kWeightStages=4,6 --shape D --measure 2\n"
    "  kernelbench tune m16 pace.cuh:9=2,3 kFineK=4,8,16 --shape qwen35",
)
@options.step_argument("step")
@click.argument("values", nargs=-1, metavar="[CONSTANT=VALUE,...]...")
@options.shape_option()
@options.predict_on_option
@options.count_option(
    "--measure", "Make variants of the best N, and compare them with STEP by `ab`.", least=0,
    default=0,
)  # fmt: skip
@options.count_option("--sessions", f"Of `ab`: fresh processes per shape, {SESSIONS} if not given.")
@options.measuring_options
def command(
    step: str,
    values: tuple[str, ...],
    shapes: tuple[str, ...],
    predict_on: str | None,
    measure: int,
    **asked: Any,
) -> int:
    """Predict STEP with other values of its constants; time the best ones where a GPU is.

    Without values it lists the constants. Each combination is run once on the emulator, which shows
    whether its result is right, and replayed as `run --predict` does. With --measure the best ones
    become variants and ledger entries. Leaves with 3 if one that was timed is wrong.
    """
    from kernelbench.cli import predict_view
    from kernelbench.machine.devices import gpus
    from kernelbench.predict import tune
    from kernelbench.project.context import Context

    if not values:
        chosen = Context.find().lineages.select_one(step, "tune takes one step")
        constants = tune.constants_of(chosen)
        rows = [{"constant": c.name, "value": c.value, "place": c.place} for c in constants]
        console.show(rows, prose="value")
        return int(ExitCode.PASS)
    if measure and not gpus():
        raise EnvironmentProblem("--measure times on a GPU, and there is none here", "leave it out")
    with console.Watching() as view:
        found = tune.tune(step, values, shapes, on=predict_on, observer=view)
    predict_view.headline(found.device, found.step.name)
    rows = found.rows()
    console.show(rows, right={*rows[0]} - {"constants", "shape", "predicted"}, prose="predicted")
    code = ExitCode.PASS
    for each in found.best(measure):
        if not _measured(found, each, shapes, asked):
            code = ExitCode.INCORRECT
    return int(code)


def _measured(
    found: Tuning, chosen: Variation, shapes: tuple[str, ...], asked: dict[str, Any]
) -> bool:
    """Compare a variation with its step, as a variant that stays; whether it was right."""
    from kernelbench.cli import ab_view
    from kernelbench.compare import api
    from kernelbench.compare.comparer import ArmFailure

    variant = _variant(found, chosen)
    try:
        with ab_view.View() as view:
            comparison = api.ab(
                found.step.name, variant, shapes, save=True, command=options.command_line(),
                why=chosen.words, observer=view, **asked,
            )  # fmt: skip
    except ArmFailure as error:
        console.warn(str(error))
        return False
    ab_view.compared(comparison, explain=False)
    return True


def _variant(found: Tuning, chosen: Variation) -> str:
    """The name of the variant, which is made unless it was before."""
    from kernelbench.lineages import scaffold
    from kernelbench.project.context import Context
    from kernelbench.project.source_files import sources_of

    lineages = Context.find().lineages
    for known in lineages.all_steps:
        if known.name == chosen.step.name:
            files = sources_of(known)
            if all(files[name].read_text("utf-8") == text for name, text in chosen.texts.items()):
                return known.name
    words = scaffold.StepWords(
        chosen.words,
        f"{chosen.words}; all else as {found.step.name}",
        "Found by `kernelbench tune`.",
    )
    made = scaffold.new_variant(lineages, chosen.step.name, found.step, [*chosen.texts], words)
    for name, text in chosen.texts.items():
        (made.path / name).write_text(text, encoding="utf-8")
    console.err.say(f"made {os.path.relpath(made.path)}")
    return made.name
