"""``kernelbench show``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import click

from kernelbench.base import console
from kernelbench.base.errors import UsageError
from kernelbench.cli import options
from kernelbench.cli.figure_texts import TimeUnit, error_text, unit_for
from kernelbench.problems.gpumode import task_context
from kernelbench.project.context import Context, parse_results
from kernelbench.records import device_table, rows, run_record, store, tables
from kernelbench.records.device_table import TableRow, TableTime
from kernelbench.records.rows import Saved
from kernelbench.records.run_record import Result, RunRecord, TimeStats

T = TypeVar("T")
_Cells = tuple[str | console.Text, ...]


@click.command(
    "show",
    epilog="\b\nExamples:\n"
    "  kernelbench show                      the newest row of every step and shape\n"
    "  kernelbench show v00 v01 --shape A\n"
    "  kernelbench show --run results/nvidia-h200/runs/ID.json.gz\n"
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
@options.task_option
@options.results_option
def command(
    steps: tuple[str, ...],
    shapes: tuple[str, ...],
    device: str | None,
    run_file: str | None,
    form: str,
    task: str | None,
    results: str | None,
) -> int:
    """Print saved runs: the newest row of every step and shape, or one record.

    Without a STEP a row stands for all input classes of the newest run, whatever its L2 state; with
    one there is a row for each input class, executor and L2 state.
    """
    context = Context.find() if task is None else task_context(task)
    folder = parse_results(results, context.project)
    wanted = _Filter(frozenset(steps), frozenset(shapes), device)
    if run_file is not None:
        _show_rows(wanted.of([run_record.read_run(Path(run_file))]), form)
    elif steps:
        runs, broken = store.load_runs(folder)
        _warn(broken)
        checked = _checks(folder, steps) if form == "table" else []
        if not checked or any(row.result.step in steps for row in rows.latest(runs)):
            _show_rows(wanted.of(runs), form)
        for line in checked:
            console.out.print(console.Text(line), soft_wrap=True)
    else:
        figures, broken = store.newest_figures(folder)
        _warn(broken)
        if not figures and not (shapes or device):
            console.out.print("no saved runs; `kernelbench run STEP` makes one")
            return 0
        _show_figures(wanted.newest(figures), form)
    return 0


def _checks(folder: Path, steps: Sequence[str]) -> list[str]:
    """What the newest check of each step found."""
    from kernelbench.checks.store import last_checks

    found, broken = last_checks(folder, steps)
    _warn(broken)
    return [f"{step} checked: {last.in_words()}" for step, last in sorted(found.items())]


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        console.warn(line)


@dataclass(frozen=True)
class _Filter:
    """The steps, shapes and devices to show; empty or None takes all."""

    steps: Collection[str]
    shapes: Collection[str]
    device: str | None

    def of(self, runs: Sequence[RunRecord]) -> list[Saved]:
        """The newest rows of runs that are wanted."""
        return self._any(
            [
                row
                for row in rows.latest(runs)
                if self._fits(row.run.device, row.result.shape)
                and (not self.steps or row.result.step in self.steps)
            ]
        )

    def newest(self, figures: Mapping[str, Sequence[TableRow]]) -> dict[str, list[TableRow]]:
        """By device: of every step and shape the newest row, whatever its L2 state."""
        found: dict[str, list[TableRow]] = {}
        for device, of_device in sorted(figures.items()):
            newest: dict[tuple[str, str], TableRow] = {}
            for row in of_device:
                old = newest.get((row.step, row.shape))
                if self._fits(device, row.shape) and (old is None or old.run <= row.run):
                    newest[row.step, row.shape] = row
            if newest:
                found[device] = [*newest.values()]
        return self._any(found)

    def _fits(self, device: str, shape: str) -> bool:
        of_device = self.device is None or self.device.lower() in device.lower()
        return of_device and (not self.shapes or shape in self.shapes)

    def _any(self, found: T) -> T:
        if not found:
            raise UsageError("no saved run matches", "`kernelbench show` alone prints all of them")
        return found


def _show_rows(shown: Sequence[Saved], form: str) -> None:
    """A row for each input class, executor and L2 state."""
    if form == "csv":
        click.echo(tables.rows_csv(shown), nl=False)
        return
    for device, group in groupby(
        sorted(shown, key=lambda row: row.run.device), key=lambda row: row.run.device
    ):
        of_device = list(group)
        if form == "markdown":
            click.echo(tables.rows_markdown(of_device))
        else:
            results = [row.result for row in of_device]
            unit = _unit((row.device_us, row.call_us, row.sol_us) for row in results)
            _table(device, [_row_cells(row, unit) for row in of_device], unit)


def _show_figures(figures: Mapping[str, Sequence[TableRow]], form: str) -> None:
    """A row for each step and shape."""
    if form == "csv":
        click.echo(device_table.write_csv_of(figures), nl=False)
        return
    for device, of_device in figures.items():
        if form == "markdown":
            newest = max(row.run for row in of_device)
            click.echo(device_table.write_markdown(device, newest, of_device))
        else:
            unit = _unit((row.device, row.call, row.sol_us) for row in of_device)
            _table(device, [_figure_cells(row, unit) for row in of_device], unit)


_Times = tuple[TimeStats | TableTime | None, TimeStats | TableTime | None, float | None]


def _unit(rows: Iterable[_Times]) -> TimeUnit:
    """For device times, call times and speeds of light."""
    return unit_for(
        time.median if isinstance(time, TimeStats | TableTime) else time
        for times in rows
        for time in times
    )


def _row_cells(row: Saved, unit: TimeUnit) -> _Cells:
    result = row.result
    return (
        *(result.step, result.shape, result.inputs, result.executor, row.run.protocol.l2),
        *_error_cells(result),
        *_time_cells((result.device_us, result.call_us, result.sol_us), unit),
        row.run.created[:10],
        console.styled(result.status),
    )


def _figure_cells(row: TableRow, unit: TimeUnit) -> _Cells:
    classes = f"{row.classes} class{'es' if row.classes > 1 else ''}"
    return (
        *(row.step, row.shape, classes, row.executor, row.l2),
        *_error_cells(row),
        *_time_cells((row.device, row.call, row.sol_us), unit),
        row.date,
        console.styled(row.status),
    )


def _error_cells(row: Result | TableRow) -> _Cells:
    exact = {True: "yes", False: "no", None: "–"}[row.exact]
    return exact, error_text(row.max_abs_err), error_text(row.rel_rms_err)


def _time_cells(times: _Times, unit: TimeUnit) -> _Cells:
    device, call, sol_us = times
    return unit.median(device), unit.median(call), unit.text(sol_us)


def _table(device: str, rows: Sequence[_Cells], unit: TimeUnit) -> None:
    table = console.fitted_table(
        [
            ("step", "left"),
            ("shape", "left"),
            ("inputs", "left"),
            ("executor", "left"),
            ("L2", "left"),
            ("exact", "left"),
            ("max err", "right"),
            ("rel rms", "right"),
            (f"device {unit.name}", "right"),
            (f"call {unit.name}", "right"),
            (f"SOL {unit.name}", "right"),
            ("date", "left"),
            ("status", "left"),
        ],
        rows,
        prose="shape",
        spare=[
            ["rel rms"],
            ["L2"],
            ["date"],
            [f"SOL {unit.name}"],
            ["executor"],
            ["max err"],
            ["inputs"],
        ],
    )
    console.out.print(console.Text(device, style="bold"))
    table.show()
