"""``kernelbench diff``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kernelbench.base.errors import UsageError
from kernelbench.cli import options

if TYPE_CHECKING:
    from kernelbench.lineages.step_diff import StepDiff
    from kernelbench.project.context import Context
    from kernelbench.project.registry import Step


@click.command(
    "diff",
    epilog="\b\nExamples:\n"
    "  kernelbench diff v06 v07\n"
    "  kernelbench diff m03 --stat           against its parent\n"
    "  kernelbench diff moe/m05 moe/variants/m05-serial-scan\n"
    "  kernelbench diff --all group_gemm",
)
@click.argument("steps", nargs=-1, metavar="[BASE] CAND", shell_complete=options.complete_steps)
@click.option("--stat", is_flag=True, help="Only count lines, per file.")
@click.option("--no-build", is_flag=True, help="Do not ask the compilers for resources.")
@click.option(
    "--all",
    "whole",
    is_flag=True,
    help="Count every step against its parent, of the lineages named (all of them for none).",
)
@options.results_option
@options.json_option
def command(
    steps: tuple[str, ...],
    stat: bool,
    no_build: bool,
    whole: bool,
    results: str | None,
    json_path: str | None,
) -> None:
    """Show what CAND changes in BASE, its parent if not named: source, resources, figures.

    BASE..CAND means both, too, whatever lies between them.

    Sources are compared as clang-format writes them, where there is one and a .clang-format.
    Registers and the like come from the compilers, which build what is not in the cache; no GPU is
    asked.
    """
    from kernelbench.cli import diff_view
    from kernelbench.project.context import Context

    options.require_writable(json_path)
    context = Context.find()
    if whole:
        _tables(context, steps, json_path)
        return
    base, cand = _pair(context, steps)
    found = _diff(context, base, cand, results, build=not (no_build or stat))
    if json_path is not None:
        options.write_json_output(json_path, found)
    if json_path == "-":
        return
    diff_view.head(found)
    if not stat:
        diff_view.text(found.source, found.base, found.cand)
    diff_view.counts(found.source)
    if not stat:
        diff_view.changes(found)


def _pair(context: Context, names: Sequence[str]) -> tuple[Step, Step]:
    """The two steps named; one alone is compared with its parent."""
    chosen: list[Step] = []
    for name in names:
        meant = context.lineages.select([name])
        if ".." in name and "/" not in name:  # a range, no path: its ends
            meant = [meant[0], meant[-1]]
        elif len(meant) != 1:
            raise UsageError(f"{name!r} is {len(meant)} steps", "diff compares two")
        chosen += meant
    if len(chosen) == 1:
        parent = context.lineages.parent_of(chosen[0])
        if parent is None:
            raise UsageError(f"{chosen[0].name} has no parent", "name the step to compare it with")
        return parent, chosen[0]
    if len(chosen) != 2:
        raise UsageError(f"diff compares two steps, found {len(chosen)}", "name BASE and CAND")
    return chosen[0], chosen[1]


def _diff(
    context: Context, base: Step, cand: Step, results: str | None, *, build: bool
) -> StepDiff:
    from kernelbench.base import console
    from kernelbench.lineages.step_diff import step_diff
    from kernelbench.project.context import parse_results
    from kernelbench.records import ledger, store

    folder = parse_results(results, context.project)
    runs, broken = store.load_runs(folder)
    for line in broken:
        console.warn(line)
    with console.Status() as status:
        status(f"building {base.name} and {cand.name}" if build else "comparing")
        return step_diff(base, cand, runs, ledger.read_ledger(folder), build=build)


def _tables(context: Context, names: Sequence[str], json_path: str | None) -> None:
    from kernelbench.cli import diff_view
    from kernelbench.lineages import source_diff

    lineages = context.lineages
    chosen = [lineages.lineage(name) for name in names] or [*lineages.lineages]
    tables = [source_diff.count_deltas(lineages, lineage.name) for lineage in chosen]
    if json_path is not None:
        record = {"schema": "kernelbench.diff-table/1", "lineages": tables}
        options.write_json_output(json_path, record)
    if json_path != "-":
        for table in tables:
            diff_view.delta_table(table)
