"""``kernelbench lineage``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kernelbench.base.errors import UsageError
from kernelbench.cli import options

if TYPE_CHECKING:
    from kernelbench.lineages.tree import Tree
    from kernelbench.project.context import Context
    from kernelbench.records.run_record import RunRecord


@click.command(
    "lineage",
    epilog="\b\nExamples:\n"
    "  kernelbench lineage group_gemm\n"
    "  kernelbench lineage moe --shape qwen35-m16\n"
    "  kernelbench lineage moe --plot ladder.svg --device h200\n"
    "  kernelbench lineage moe --plot sweep.pdf --over m",
)
@click.argument("lineage", required=False, metavar="[LINEAGE]")
@options.shape_option("Default: those with reported figures.")
@click.option("--device", help="Only devices whose name contains this.")
@click.option("--md", "as_markdown", is_flag=True, help="Print Markdown.")
@options.plot_option("the ladder of one shape")
@click.option(
    "--over",
    metavar="NAME",
    help="With --plot: draw times over this dimension of the shapes, such as m, with peers.",
)
@options.results_option
@options.json_option
def command(
    lineage: str | None,
    shapes: tuple[str, ...],
    device: str | None,
    as_markdown: bool,
    plot_path: str | None,
    over: str | None,
    results: str | None,
    json: options.RecordOutput,
) -> None:
    """Print a lineage as a tree: what each step changes, what was reported, measured, compared.

    Reported figures are those of the lineage's source on its device. Measured ones are saved runs
    of `kernelbench run` on a GPU of the step's own kind; what an emulator ran has no time.
    """
    from kernelbench.base import console
    from kernelbench.checks.report import last_checks
    from kernelbench.lineages.tree import SCHEMA, TreeRecord, trees
    from kernelbench.project.context import Context, parse_results
    from kernelbench.records import ledger, outcomes, store

    if over is not None and plot_path is None:
        raise UsageError("--over is for a drawing", "name its file: --plot sweep.svg")
    context = Context.find()
    chosen = [context.lineages.lineage(lineage)] if lineage else [*context.lineages.lineages]
    folder = parse_results(results, context.project)
    runs, broken = store.load_runs(folder)
    checks, broken_checks = last_checks(folder)
    for line in (*broken, *broken_checks):
        console.warn(line)
    comparisons = ledger.read_ledger(folder)
    found = trees(
        context.lineages, chosen, runs, comparisons, outcomes=outcomes.read_outcomes(folder),
        checks=checks, shapes=shapes, device=device,
    )  # fmt: skip
    if plot_path is not None:
        _plot(context, found, runs, shapes, over, plot_path)
        console.err.print(f"wrote {plot_path}")
    json.write(TreeRecord(SCHEMA, found))
    if json.alone:
        return
    for tree in found:
        _render(tree, as_markdown)


def _plot(
    context: Context,
    found: Sequence[Tree],
    runs: Sequence[RunRecord],
    shapes: tuple[str, ...],
    over: str | None,
    path: str,
) -> None:
    from kernelbench.lineages.tree import trees
    from kernelbench.report import ladder_plot, sweep_plot

    if len(found) > 1:
        raise UsageError("--plot draws one lineage", "name it: kernelbench lineage moe --plot …")
    (tree,) = found
    if over is None:
        ladder_plot.save_ladder(ladder_plot.ladder(context, tree, shapes), path)
        return
    of = [each for each in context.lineages.all_lineages if each.peers_of == tree.lineage]
    peers = trees(context.lineages, of, runs, ())
    dims = sweep_plot.dims_of(context, tree.lineage)
    sweep_plot.save_sweep(sweep_plot.sweeps(tree, peers, dims, runs), over, path)


def _render(tree: Tree, as_markdown: bool) -> None:
    from kernelbench.base.console import Text, out, show, styled
    from kernelbench.report.tree_grid import grid, tree_markdown

    if as_markdown:
        click.echo(tree_markdown(tree))
        return
    shown = grid(tree)
    out.print(Text.assemble((tree.lineage, "bold"), f"  {tree.title}"))
    # Words of a heading on lines of their own: figures are narrow.
    narrow = {head: head.replace(" ", "\n") for head in shown.right}
    rows = [
        {narrow.get(head, head): cell for head, cell in row.items()}
        | {"status": styled(row["status"])}
        for row in shown.rows
    ]
    reported = [head for head in narrow.values() if "\nreported\n" in head]
    measured = [head for head in narrow.values() if "\nmeasured\n" in head]
    spare = [reported, ["right on"], measured, ["against its parent"]]
    show(rows, right=narrow.values(), prose="what changes", spare=spare)
    for note in shown.notes:
        out.say(note)
    out.print()
