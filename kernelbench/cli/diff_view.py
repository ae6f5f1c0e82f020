"""How the difference of two steps looks on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from kernelbench.base.console import Text, make_table, out, styled, warn
from kernelbench.lineages.source_diff import BlockChange, DeltaTable, SourceDiff
from kernelbench.lineages.step_diff import Change, FigureChange, KernelChange, StepDiff
from kernelbench.project.reported_figures import METRIC_NAMES, UNITS

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def head(found: StepDiff) -> None:
    """The two steps and the idea of the second."""
    out.print(Text.assemble((f"{found.base} → {found.cand}", "bold"), f"  {found.title}"))
    out.print(Text(found.technique), soft_wrap=True)


def text(source: SourceDiff, base: str, cand: str) -> None:
    """The unified diff."""
    if source.files:
        out.print()
    for file in source.files:
        old = f"{base}/{file.name}" if file.change != "added" else "/dev/null"
        new = f"{cand}/{file.name}" if file.change != "removed" else "/dev/null"
        out.print(Text(f"--- {old}\n+++ {new}", style="bold"), soft_wrap=True)
        for line in file.text:
            out.print(Text(line, style=_STYLES.get(line[:1], "")), soft_wrap=True)


def counts(source: SourceDiff) -> None:
    """Lines per file, and the building blocks that came and went."""
    out.print()
    if not source.files:
        out.print("the sources are the same")
        return
    table = make_table([("file", "left"), ("", "left"), ("+", "right"), ("−", "right")])
    for file in source.files:
        table.add_row(file.name, file.change, str(file.added), str(file.removed))
    total = [sum(file.added for file in source.files), sum(file.removed for file in source.files)]
    table.add_row("all files", "", *map(str, total))
    out.print(table)
    if not source.formatted:
        out.print(Text(f"lines are compared as they are: {source.unformatted}"), soft_wrap=True)
    _blocks("newly included", source.blocks_added)
    _blocks("no longer included", source.blocks_removed)


def _blocks(label: str, blocks: Iterable[BlockChange]) -> None:
    names = ", ".join(f"{block.folder}/{block.name} ({block.lines} lines)" for block in blocks)
    if names:
        out.print(Text(f"{label}: {names}"), soft_wrap=True)


def changes(found: StepDiff) -> None:
    """Settings, resources, figures and verdicts."""
    table = make_table([("", "left"), (found.base, "right"), (found.cand, "right")])
    for change in found.settings:
        table.add_row(f"config.{change.what}", *_ends(change))
    for change in found.constants:
        table.add_row(change.what, *_ends(change))
    for kernel in found.kernels:
        table.add_row(*_kernel(kernel))
        for change in kernel.changes:
            table.add_row(f"  {change.what}", *_ends(change))
    if table.row_count:
        out.print()
        out.print(table)
    for line in found.not_built:
        out.print(Text(f"not built: {line}"), soft_wrap=True)
    for line in found.remarks:
        warn(line)
    if found.figures:
        out.print()
        _figures(found)
    for verdict in found.verdicts:
        by = "" if verdict.change is None else f" {_percent(verdict.change)}"
        where = f"{verdict.base}→{verdict.cand} on {verdict.device}, {verdict.shape}, "
        where += f"{verdict.metric} time, {verdict.l2} L2: "
        out.print(Text.assemble(where, styled(verdict.verdict), by), soft_wrap=True)


def _ends(change: Change) -> tuple[str, str]:
    return change.before or "–", change.after or "–"


def _kernel(kernel: KernelChange) -> tuple[Text, str, str]:
    name = " → ".join(dict.fromkeys(filter(None, (kernel.before_name, kernel.after_name))))
    if kernel.before_name and kernel.after_name:
        return Text(name, style="bold"), "", ""
    return Text(name, style="bold"), *(("", "gone") if kernel.before_name else ("", "new"))


def _figures(found: StepDiff) -> None:
    columns = [("", "left"), ("device", "left"), ("shape", "left"), ("time", "left")]
    columns += [(found.base, "right"), (found.cand, "right"), ("", "left"), ("change", "right")]
    table = make_table(columns)
    for figure in found.figures:
        table.add_row(*_figure(figure))
    out.print(table)
    if any(figure.source == "measured" for figure in found.figures):
        out.print(
            "measured: newest runs, each on its own; `kernelbench ab` compares", soft_wrap=True
        )


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
    out.print(Text(table.lineage, style="bold"))
    columns = [("step", "left"), ("parent", "left"), ("+", "right"), ("−", "right")]
    columns += [("changed", "right"), ("in new blocks", "right"), ("new building blocks", "left")]
    shown = make_table(columns)
    for row in table.rows:
        names = ", ".join(block.name for block in row.blocks) or "–"
        figures = map(str, (row.added, row.removed, row.changed, row.block_lines))
        shown.add_row(row.step, row.parent, *figures, names)
    medians = (table.median_added, table.median_removed, table.median_changed)
    shown.add_row("median", "main line", *("–" if m is None else f"{m:g}" for m in medians), "", "")
    out.print(shown)
    out.print(
        "lines of the step's own files; changed: a line that replaces another counts once; new "
        "building blocks: those that no step above includes",
        soft_wrap=True,
    )
    out.print()
