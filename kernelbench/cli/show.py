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
from kernelbench.base.table import Row, markdown
from kernelbench.cli import options
from kernelbench.cli.figure_texts import TimeUnit, error_text, unit_for, unit_of
from kernelbench.problems.task_folder import task_context
from kernelbench.project.context import Context, parse_results
from kernelbench.records import device_table, run_record, store, tables
from kernelbench.records.device_table import TableRow
from kernelbench.records.metrics import Metric, is_time, shown
from kernelbench.records.run_record import Result, RunRecord
from kernelbench.records.tables import Saved

T = TypeVar("T")


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
@click.option("--device", help="Only devices whose name contains this.")
@click.option("--run", "run_file", type=click.Path(dir_okay=False), help="One record's file.")
@click.option("--format", "form", type=click.Choice(["table", "markdown", "csv"]), default="table")
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
        if not checked or any(row.result.step in steps for row in tables.latest(runs)):
            _show_rows(wanted.of(runs), form)
        for line in checked:
            console.out.say(line)
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
    from kernelbench.checks.report import last_checks

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
                for row in tables.latest(runs)
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


def _show_rows(found: Sequence[Saved], form: str) -> None:
    """A row for each input class, executor and L2 state."""
    if form == "csv":
        click.echo(tables.rows_csv(found), nl=False)
        return
    for device, group in groupby(
        sorted(found, key=lambda row: row.run.device), key=lambda row: row.run.device
    ):
        of_device = list(group)
        results = [row.result for row in of_device]
        unit, metrics = _unit(results), shown(results)
        rows = [_saved_row(row, unit, metrics) for row in of_device]
        if form == "markdown":
            click.echo("\n".join([f"# {device}", "", *markdown(rows), ""]))
        else:
            _table(device, rows, unit)


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
            unit, metrics = _unit(of_device), shown(of_device)
            _table(device, [_figures_row(row, unit, metrics) for row in of_device], unit)


def _unit(rows: Iterable[Result | TableRow]) -> TimeUnit:
    """For times and speeds of light."""
    found: list[float | None] = []
    for row in rows:
        found += [stats.median for name, stats in row.metrics.items() if is_time(name)]
        found.append(row.sol_us)
    return unit_for(found)


def _saved_row(row: Saved, unit: TimeUnit, metrics: Sequence[Metric]) -> Row:
    run, result = row.run, row.result
    return _row(result, result.inputs, run.protocol.l2, run.created[:10], unit, metrics)


def _figures_row(row: TableRow, unit: TimeUnit, metrics: Sequence[Metric]) -> Row:
    classes = f"{row.classes} class{'es' if row.classes > 1 else ''}"
    return _row(row, classes, row.l2, row.date, unit, metrics)


def _row(
    row: Result | TableRow,
    inputs: str,
    l2: str,
    date: str,
    unit: TimeUnit,
    metrics: Sequence[Metric],
) -> Row:
    medians = {}
    for name in metrics:
        of = unit_of(name, unit)
        medians[f"{name} {of.name}"] = of.median(row.metrics.get(name))
    return {
        "step": row.step,
        "shape": row.shape,
        "inputs": inputs,
        "executor": row.executor,
        "L2": l2,
        "exact": {True: "yes", False: "no", None: "–"}[row.exact],
        "max err": error_text(row.max_abs_err),
        "rel rms": error_text(row.rel_rms_err),
        **medians,
        f"SOL {unit.name}": unit.text(row.sol_us),
        "date": date,
        "status": console.styled(row.status),
    }


def _table(device: str, rows: Sequence[Row], unit: TimeUnit) -> None:
    headings = [*rows[0]]
    right = headings[headings.index("max err") : headings.index("date")]
    spare = ("rel rms", "L2", "date", f"SOL {unit.name}", "executor", "max err", "inputs")
    console.out.say(device, "bold")
    console.show(rows, right=right, prose="shape", spare=[[heading] for heading in spare])
