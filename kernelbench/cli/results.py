"""``kernelbench results`` and what keeps a results folder in order."""

from __future__ import annotations

from pathlib import Path

import click

from kernelbench.base import console
from kernelbench.base.table import Row
from kernelbench.cli import options
from kernelbench.project.context import Context, parse_results
from kernelbench.records import outcomes, run_record, store


@click.group("results", invoke_without_command=True)
@options.results_option
@click.pass_context
def command(context: click.Context, results: str | None) -> None:
    """Show what a results folder holds, or bring it up to date.

    \b
    Examples:
      kernelbench results
      kernelbench results tables                       make table.md and table.csv anew
      kernelbench results upgrade                      rewrite records of older versions
      kernelbench results outcomes results/cpu-*
    """
    if context.invoked_subcommand is not None:
        context.obj = results
        return
    folder = _folder(results)
    rows = [_device_row(device) for device in _devices(folder)]
    if not rows:
        console.out.print("no saved runs; `kernelbench run STEP` makes one")
        return
    console.show(rows, right=["records", "MB"])


def _folder(results: str | None) -> Path:
    return parse_results(results, Context.find().project)


def _devices(folder: Path) -> list[Path]:
    return sorted({path.parent.parent for path in run_record.list_runs(folder)})


def _device_row(device: Path) -> Row:
    size = sum(path.stat().st_size for path in device.rglob("*") if path.is_file())
    records = run_record.list_runs(device.parent, device.name)
    return {"device": device.name, "records": len(records), "MB": f"{size / 1e6:.2f}"}


@command.command("tables")
@options.results_option
@click.pass_obj
def tables(outer: str | None, results: str | None) -> None:
    """Make the tables of every device anew from its records."""
    for device in _devices(_folder(results or outer)):
        store.rebuild_tables(device)
        console.out.print(f"{device.name}: table.md and table.csv made anew")


@command.command("upgrade")
@options.results_option
@click.pass_obj
def upgrade(outer: str | None, results: str | None) -> None:
    """Rewrite records that are plain JSON or of an older schema; figures stay bit for bit.

    A second call finds nothing to do. Tables are made anew where a record was rewritten.
    """
    done = [*store.convert_records(_folder(results or outer))]
    for device in sorted({each.path.parent.parent for each in done}):
        store.rebuild_tables(device)
    before, after = sum(each.before for each in done), sum(each.after for each in done)
    console.out.print(
        f"{len(done)} record(s) rewritten, {before / 1e6:.2f} → {after / 1e6:.2f} MB"
        if done
        else "every record is of this version"
    )


@command.command("outcomes")
@click.argument(
    "places", nargs=-1, required=True, type=click.Path(path_type=Path),
    metavar="RECORD|DEVICE_FOLDER...",
)  # fmt: skip
@options.results_option
@click.pass_obj
def add_outcomes(outer: str | None, places: tuple[Path, ...], results: str | None) -> None:
    """Add what records show right or wrong to outcomes.json, which READMEs are made from."""
    folder = _folder(results or outer)
    known = outcomes.read_outcomes(folder)
    paths = [path for place in places for path in _records(place)]
    found = outcomes.with_runs(known, [run_record.read_run(path) for path in paths])
    path = outcomes.write_outcomes(folder, found)
    changed = sum(1 for setting, each in found.items() if known.get(setting) != each)
    console.out.print(f"{path}: {len(found)} outcomes, {changed} of them new")


def _records(place: Path) -> list[Path]:
    """The record that ``place`` is, or those of the device whose folder it is."""
    if not place.is_dir():
        return [place]
    place = place.resolve()
    return run_record.list_runs(place.parent, place.name)
