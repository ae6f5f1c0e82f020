"""``--predict`` of commands: every figure is labelled predicted, none beside measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, UsageError
from kernelbench.base.files import from_here, write_text
from kernelbench.cli import options
from kernelbench.predict import api
from kernelbench.predict.model import DeviceModel
from kernelbench.predict.schedule import save_schedule, schedule_of
from kernelbench.predict.timeline import Timeline, perfetto
from kernelbench.project.context import Context
from kernelbench.report.roofline import roofline

_OWN = ("predict", "predict_on", "predict_plot", "predict_save")


class Kept:
    """What is kept of schedules: a drawing or a trace of one shape, records for the report.

    Raises:
        UsageError: To draw several shapes, or to a file that cannot be drawn to.
    """

    def __init__(self, plot: str | None, save: bool, shapes: Sequence[str]) -> None:
        self._plot, self._save = plot, save
        self.timelines: list[Timeline] | None = [] if plot or save else None
        if plot is None:
            return
        if len(shapes) != 1:
            raise UsageError("--predict-plot draws one shape", "name it with --shape")
        if Path(plot).suffix not in (".json", ".svg"):
            raise UsageError(f"cannot draw to {plot}", "name a file that ends in .svg or .json")
        options.output_file(plot)

    def write(self, model: DeviceModel, made: Sequence[api.Prediction]) -> None:
        """Write it; ``made`` are the predictions that belong to the timelines."""
        if self.timelines is None:
            return
        both = zip(made, self.timelines, strict=True)
        found = [schedule_of(model, *each) for each in both]
        if self._plot is not None and Path(self._plot).suffix == ".json":
            options.write_json_output(self._plot, perfetto(self.timelines))
        elif self._plot is not None:
            from kernelbench.report.schedule_plot import schedules_svg

            write_text(Path(self._plot), schedules_svg(found))
        for each in found if self._save else ():
            path = save_schedule(Context.find().project.results, each)
            console.err.print(f"wrote {console.escape(from_here(path))}")


def refuse_others(*taken: str) -> None:
    """Refuse, with UsageError, options that only a run or comparison on this machine has."""
    context = click.get_current_context()
    for each in context.command.params:
        name = each.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in (*taken, *_OWN):
            raise UsageError(f"--predict and {each.opts[0]}: a prediction runs nothing on a GPU")


def show_run(
    steps: Sequence[str], shapes: Sequence[str], on: str | None, kept: Kept,
    json: options.RecordOutput,
) -> int:  # fmt: skip
    """Predicted times, and what would shorten the critical path."""
    with console.Watching() as view:
        found = api.predict(
            tuple(steps), tuple(shapes), on=on, timelines=kept.timelines, observer=view
        )
    kept.write(found.device, found.found)
    json.write(found.to_json())
    if json.alone:
        return int(ExitCode.PASS)
    rows = found.rows()
    headline(found.device, ", ".join(dict.fromkeys(each.step for each in found.found)))
    console.show(rows, right={*rows[0]} - {"step", "shape"} if rows else ())
    bubbles = found.bubble_rows()
    if bubbles:
        console.out.print("longest parts of the critical path, each replayed as if it were free")
        right = {*bubbles[0]} - {"step", "shape", "cause", "where"}
        console.show(bubbles, right=right, prose="where")
    return int(ExitCode.PASS)


def show_ab(base: str, cand: str, shapes: Sequence[str], on: str | None, kept: Kept) -> int:
    """Predicted changes; none of them is a verdict that a script may act on."""
    with console.Watching() as view:
        found = api.compare(
            base, cand, tuple(shapes), on=on, timelines=kept.timelines, observer=view
        )
    kept.write(found.device, found.made)
    headline(found.device, f"{base}→{cand}")
    rows = found.rows()
    right = {*rows[0]} - {"shape", "predicted", "90 % of Δ"} if rows else ()
    console.show(rows, right=right, prose="shape")
    if any(row["predicted"] == "no call" for row in rows):
        console.out.print("no call: less than the model resolves, or hosts that differ; measure it")
    return int(ExitCode.PASS)


def show_fractions(
    steps: Sequence[str], shapes: Sequence[str], on: str | None, json: options.RecordOutput
) -> int:
    """Predicted device times over the datasheet's floors of calls with a cold L2."""
    with console.Watching() as view:
        found = api.predict(steps, shapes or None, on=on, bubbles=False, observer=view)
    if not found.found:
        raise UsageError("there is nothing to predict", "name a shape that the step takes")
    lineage = Context.find().lineages.get(found.found[0].step).lineage
    limits = roofline(shapes, lineage=lineage, device=found.device.device, modes=("cold",))
    floors = {
        shape.shape: each.floor.us
        for shape in limits.lineages[0].shapes
        for each in shape.floors
        if each.source == "datasheet"
    }
    document = found.to_json()
    json.write(document | {"floors_us": floors})
    if json.alone:
        return int(ExitCode.PASS)
    headline(found.device, ", ".join(steps))
    rows = [
        {
            "step": each.step,
            "shape": each.shape,
            "floor µs": f"{floors[each.shape]:.2f}",
            "predicted device µs": f"{each.device_us:.1f}",
            "of datasheet, predicted": f"{100 * floors[each.shape] / each.device_us:.1f}%",
        }
        for each in found.found
    ]
    console.show(rows, right={*rows[0]} - {"step", "shape"} if rows else ())
    return int(ExitCode.PASS)


def headline(device: DeviceModel, what: str) -> None:
    """What is predicted, by which model, and that nothing is measured."""
    console.out.print(
        f"[bold]{console.escape(what)}[/bold]  [bold yellow]PREDICTED[/bold yellow] for "
        f"{console.escape(device.device)} by {device.name}.toml; nothing was measured"
    )
