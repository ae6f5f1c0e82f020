"""``kernelbench diff``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from kernelbench.base import console
from kernelbench.base.console import Text, out, show, styled, warn
from kernelbench.base.errors import UsageError
from kernelbench.cli import options
from kernelbench.lineages import source_diff
from kernelbench.lineages.source_diff import BlockChange, DeltaTable, SourceDiff
from kernelbench.lineages.step_diff import Change, FigureChange, KernelChange, StepDiff, step_diff
from kernelbench.project.context import Context, parse_results
from kernelbench.project.model import METRIC_NAMES, UNITS, Step
from kernelbench.records import ledger, store

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def head(found: StepDiff) -> None:
    """The two steps and the idea of the second."""
    out.print(Text.assemble((f"{found.base} → {found.cand}", "bold"), f"  {found.title}"))
    out.say(found.technique)


def text(source: SourceDiff, base: str, cand: str) -> None:
    """Print the unified diff of the sources."""
    if source.files:
        out.print()
    for file in source.files:
        old = f"{base}/{file.name}" if file.change != "added" else "/dev/null"
        new = f"{cand}/{file.name}" if file.change != "removed" else "/dev/null"
        out.say(f"--- {old}\n+++ {new}", "bold")
        for line in file.text:
            out.say(line, _STYLES.get(line[:1], ""))


def counts(source: SourceDiff) -> None:
    """Lines per file, and the building blocks that came and went."""
    out.print()
    if not source.files:
        out.print("the sources are the same")
        return
    rows = [
        {"file": file.name, "": file.change, "+": file.added, "−": file.removed}
        for file in source.files
    ]
    added, removed = sum(f.added for f in source.files), sum(f.removed for f in source.files)
    rows.append({"file": "all files", "": "", "+": added, "−": removed})
    show(rows, right="+−")
    if not source.formatted:
        out.say(f"lines are compared as they are: {source.unformatted}")
    _blocks("newly included", source.blocks_added)
    _blocks("no longer included", source.blocks_removed)


def _blocks(label: str, blocks: Iterable[BlockChange]) -> None:
    names = ", ".join(f"{block.folder}/{block.name} ({block.lines} lines)" for block in blocks)
    if names:
        out.say(f"{label}: {names}")


def changes(found: StepDiff) -> None:
    """Settings, resources, figures and verdicts."""
    lines: list[tuple[str | Text, str, str]]
    lines = [(f"config.{change.what}", *_ends(change)) for change in found.settings]
    lines += [(change.what, *_ends(change)) for change in found.constants]
    for kernel in found.kernels:
        lines.append(_kernel(kernel))
        lines += [(f"  {change.what}", *_ends(change)) for change in kernel.changes]
    if lines:
        # Blanks keep two steps of one name apart.
        head = ("", found.base, f"{found.cand} ")
        out.print()
        show([dict(zip(head, line, strict=True)) for line in lines], right=head[1:])
    for line in found.not_built:
        out.say(f"not built: {line}")
    for line in found.remarks:
        warn(line)
    if found.figures:
        out.print()
        _figures(found)
    for verdict in found.verdicts:
        by = "" if verdict.change is None else f" {_percent(verdict.change)}"
        where = f"{verdict.base}→{verdict.cand} on {verdict.device}, {verdict.shape}, "
        where += f"{verdict.metric} time, {verdict.l2} L2: "
        out.print(Text.assemble(where, styled(verdict.verdict), by))


def _ends(change: Change) -> tuple[str, str]:
    return change.before or "–", change.after or "–"


def _kernel(kernel: KernelChange) -> tuple[Text, str, str]:
    name = " → ".join(dict.fromkeys(filter(None, (kernel.before_name, kernel.after_name))))
    if kernel.before_name and kernel.after_name:
        return Text(name, style="bold"), "", ""
    return Text(name, style="bold"), *(("", "gone") if kernel.before_name else ("", "new"))


def _figures(found: StepDiff) -> None:
    head = ("", "device", "shape", "time", found.base, f"{found.cand} ", " ", "change")
    rows = [dict(zip(head, _figure(figure), strict=True)) for figure in found.figures]
    show(rows, right=(*head[4:6], "change"))
    if any(figure.source == "measured" for figure in found.figures):
        out.print("measured: newest runs, each on its own; `kernelbench ab` compares")


def _figure(figure: FigureChange) -> tuple[str, ...]:
    return (
        figure.source,
        figure.device,
        figure.shape,
        METRIC_NAMES.get(figure.metric, figure.metric),
        *(_amount(figure, value) for value in (figure.before, figure.after)),
        UNITS[figure.unit],
        _percent(figure.change),
    )


def _amount(figure: FigureChange, value: float) -> str:
    # What was reported is shown to the digit that was.
    return str(value) if figure.source == "reported" else f"{value:.2f}"


def _percent(change: float) -> str:
    return f"{100 * change:+.1f}%".replace("-", "−")


def delta_table(table: DeltaTable) -> None:
    """Every step of a lineage against its parent, in lines."""
    out.say(table.lineage, "bold")
    head = ("step", "parent", "+", "−", "changed", "in new blocks", "new building blocks")
    lines: list[tuple[object, ...]] = []
    for row in table.rows:
        names = ", ".join(block.name for block in row.blocks) or "–"
        figures = (row.added, row.removed, row.changed, row.block_lines)
        lines.append((row.step, row.parent, *figures, names))
    medians = (table.median_added, table.median_removed, table.median_changed)
    shown = ("–" if median is None else f"{median:g}" for median in medians)
    lines.append(("median", "main line", *shown, "", ""))
    show([dict(zip(head, line, strict=True)) for line in lines], right=head[2:6])
    out.print(
        "lines of the step's own files; changed: a line that replaces another counts once; new "
        "building blocks: those that no step above includes"
    )
    out.print()


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
    json: options.RecordOutput,
) -> None:
    """Show what CAND changes in BASE, its parent if not named: source, resources, figures.

    BASE..CAND means both, too, whatever lies between them.

    Sources are compared as clang-format writes them, where there is one and a .clang-format.
    Registers and the like come from the compilers, which build what is not in the cache; no GPU is
    asked.
    """
    context = Context.find()
    if whole:
        _tables(context, steps, json)
        return
    base, cand = _pair(context, steps)
    found = _diff(context, base, cand, results, build=not (no_build or stat))
    json.write(found)
    if json.alone:
        return
    head(found)
    if not stat:
        text(found.source, found.base, found.cand)
    counts(found.source)
    if not stat:
        changes(found)


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
    folder = parse_results(results, context.project)
    runs, broken = store.load_runs(folder)
    for line in broken:
        console.warn(line)
    with console.Status() as status:
        status(f"building {base.name} and {cand.name}" if build else "comparing")
        return step_diff(base, cand, runs, ledger.read_ledger(folder), build=build)


def _tables(context: Context, names: Sequence[str], json: options.RecordOutput) -> None:
    lineages = context.lineages
    chosen = [lineages.lineage(name) for name in names] or [*lineages.lineages]
    tables = [source_diff.count_deltas(lineages, lineage.name) for lineage in chosen]
    json.write({"schema": "kernelbench.diff-table/1", "lineages": tables})
    if not json.alone:
        for table in tables:
            delta_table(table)
