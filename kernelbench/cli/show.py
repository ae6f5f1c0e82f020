"""``kernelbench show``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import click

from kernelbench.base import console
from kernelbench.base.errors import UsageError
from kernelbench.cli import options, render
from kernelbench.project.context import Context, parse_results
from kernelbench.records import rows, run_record, store, tables
from kernelbench.records.rows import Saved


@click.command(
    "show",
    epilog="\b\nExamples:\n"
    "  kernelbench show                      the newest row of every step, shape and device\n"
    "  kernelbench show v00 v01 --shape A\n"
    "  kernelbench show --run results/nvidia-h200/runs/ID.json\n"
    "  kernelbench show --format csv > table.csv",
)
@click.argument("steps", nargs=-1, metavar="[STEP...]")
@click.option("--shape", "shapes", multiple=True, help="Only this shape; repeatable.")
@click.option("--device", default=None, help="Only devices whose name contains this.")
@click.option(
    "--run", "run_file", type=click.Path(dir_okay=False), default=None, help="One record's file."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "csv"]),
    default="table",
    show_default=True,
)
@options.results_option
def command(
    steps: tuple[str, ...],
    shapes: tuple[str, ...],
    device: str | None,
    run_file: str | None,
    form: str,
    results: str | None,
) -> int:
    """Print saved runs: the newest row of every step and shape, or one record."""
    if run_file is not None:
        runs = [run_record.read_run(Path(run_file))]
    else:
        folder = parse_results(results, Context.find().project)
        runs, broken = store.load_runs(folder)
        for line in broken:
            console.warn(line)
    shown = [
        row
        for row in rows.latest(runs)
        if (not steps or row.result.step in steps)
        and (not shapes or row.result.shape in shapes)
        and (device is None or device.lower() in row.run.device.lower())
    ]
    if not shown:
        if steps or shapes or device:
            raise UsageError("no saved run matches", "`kernelbench show` alone prints all of them")
        console.out.print("no saved runs; `kernelbench run STEP` makes one")
        return 0
    if form == "csv":
        click.echo(tables.rows_csv(shown), nl=False)
        return 0
    by_device = groupby(
        sorted(shown, key=lambda row: row.run.device), key=lambda row: row.run.device
    )
    for name, group in by_device:
        of_device = list(group)
        if form == "markdown":
            click.echo(tables.rows_markdown(of_device))
        else:
            _table(name, of_device)
    return 0


def _table(device: str, rows: Sequence[Saved]) -> None:
    table, left_out = console.fitted_table(
        [
            ("step", "left"),
            ("shape", "left"),
            ("inputs", "left"),
            ("executor", "left"),
            ("L2", "left"),
            ("exact", "left"),
            ("max err", "right"),
            ("rel rms", "right"),
            ("device", "right"),
            ("call", "right"),
            ("SOL", "right"),
            ("date", "left"),
            ("status", "left"),
        ],
        [
            (
                row.result.step,
                row.result.shape,
                row.result.inputs,
                row.result.executor,
                row.run.protocol.l2,
                {True: "yes", False: "no", None: "–"}[row.result.exact],
                render.error_text(row.result.max_abs_err),
                render.error_text(row.result.rel_rms_err),
                render.time_text(row.result.device_us),
                render.time_text(row.result.call_us),
                "–" if row.result.sol_us is None else render.microseconds(row.result.sol_us),
                row.run.created[:10],
                console.styled(row.result.status),
            )
            for row in rows
        ],
        prose="shape",
        spare=[["rel rms"], ["L2"], ["date"], ["SOL"], ["executor"]],
    )
    console.out.print(console.Text(device, style="bold"))
    console.out.print(table)
    console.say_left_out(left_out)
