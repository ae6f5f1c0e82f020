"""``--predict`` of commands: every figure is labelled predicted, and kept nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, UsageError
from kernelbench.cli import options
from kernelbench.predict import api
from kernelbench.predict.model import DeviceModel
from kernelbench.predict.timeline import Timeline, perfetto
from kernelbench.project.context import Context
from kernelbench.report.roofline import roofline


def refuse_others(*taken: str) -> None:
    """Refuse options that only a run or a comparison on this machine has.

    Raises:
        UsageError: Naming the first one.
    """
    context = click.get_current_context()
    for each in context.command.params:
        name = each.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in (*taken, "predict", "predict_on", "predict_plot"):
            raise UsageError(f"--predict and {each.opts[0]}: a prediction runs and keeps nothing")


def show_run(
    steps: Sequence[str], shapes: Sequence[str], on: str | None, plot: str | None,
    json: options.RecordOutput,
) -> int:  # fmt: skip
    """Predicted times, and what would shorten the critical path."""
    timelines = _timelines(plot, shapes)
    with console.Watching() as view:
        found = api.predict(tuple(steps), tuple(shapes), on=on, timelines=timelines, observer=view)
    _save(timelines, plot)
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


def show_ab(base: str, cand: str, shapes: Sequence[str], on: str | None, plot: str | None) -> int:
    """Predicted changes; none of them is a verdict that a script may act on."""
    timelines = _timelines(plot, shapes)
    with console.Watching() as view:
        found = api.compare(base, cand, tuple(shapes), on=on, timelines=timelines, observer=view)
    _save(timelines, plot)
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


def _timelines(path: str | None, shapes: Sequence[str]) -> list[Timeline] | None:
    """Where the schedules that ``--predict-plot`` asks for go.

    Raises:
        UsageError: For several shapes, or for a file that cannot be drawn to.
    """
    if path is None:
        return None
    if len(shapes) != 1:
        raise UsageError("--predict-plot draws one shape", "name it with --shape")
    if Path(path).suffix == ".json":
        options.require_writable(path)
    else:
        options.require_plot(path)
    return []


def _save(timelines: list[Timeline] | None, path: str | None) -> None:
    if timelines is None or path is None:
        return
    if Path(path).suffix == ".json":
        options.write_json_output(path, perfetto(timelines))
    else:
        from kernelbench.report.timeline_plot import save_timelines

        save_timelines(timelines, path)


def headline(device: DeviceModel, what: str) -> None:
    """What is predicted, by which model, and that nothing is measured."""
    console.out.print(
        f"[bold]{console.escape(what)}[/bold]  [bold yellow]PREDICTED[/bold yellow] for "
        f"{console.escape(device.device)} by {device.name}.toml; nothing was measured"
    )
