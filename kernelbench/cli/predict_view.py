"""``--predict`` of ``run`` and ``ab``: every figure is labelled predicted, and kept nowhere."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.core import ParameterSource

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, UsageError
from kernelbench.predict import api
from kernelbench.predict.model import DeviceModel


def refuse_others(*taken: str) -> None:
    """Refuse options that only a run or a comparison on this machine has.

    Raises:
        UsageError: Naming the first one.
    """
    context = click.get_current_context()
    for each in context.command.params:
        name = each.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in (*taken, "predict"):
            raise UsageError(f"--predict and {each.opts[0]}: a prediction runs and keeps nothing")


def show_run(steps: Sequence[str], shapes: Sequence[str]) -> int:
    """Predicted times, and where the critical path spends them."""
    with console.Watching() as view:
        found = api.predict(tuple(steps), tuple(shapes), observer=view)
    rows = found.rows()
    _headline(found.device, ", ".join(dict.fromkeys(each.step for each in found.found)))
    console.show(rows, right={*rows[0]} - {"step", "shape"} if rows else ())
    stalls = found.stall_rows()
    if stalls:
        console.out.print("critical path: the most that each part would save if it were free")
        console.show(stalls, right=["predicted µs"], prose="where")
    return int(ExitCode.PASS)


def show_ab(base: str, cand: str, shapes: Sequence[str]) -> int:
    """Predicted changes; none of them is a verdict that a script may act on."""
    with console.Watching() as view:
        found = api.compare(base, cand, tuple(shapes), observer=view)
    _headline(found.device, f"{base}→{cand}")
    rows = found.rows()
    right = {*rows[0]} - {"shape", "predicted", "90 %"} if rows else ()
    console.show(rows, right=right, prose="shape")
    return int(ExitCode.PASS)


def _headline(device: DeviceModel, what: str) -> None:
    console.out.print(
        f"[bold]{console.escape(what)}[/bold]  [bold yellow]PREDICTED[/bold yellow] for "
        f"{console.escape(device.device)} by {device.name}.toml; nothing was measured",
        soft_wrap=True,
    )
