"""``kernelbench report``."""

from __future__ import annotations

import click

from kernelbench.cli import options


@click.command(
    "report",
    epilog="\b\nExamples:\n"
    "  kernelbench report\n"
    "  kernelbench report moe -o moe.html\n"
    "  kernelbench report --json report.json",
)
@click.argument("lineages", nargs=-1, metavar="[LINEAGE...]")
@click.option("-o", "--output", default="report.html", metavar="FILE", help="The page to write.")
@click.option("--no-diff", is_flag=True, help="Leave out what each step changes in its parent.")
@options.results_option
@options.json_option
def command(
    lineages: tuple[str, ...],
    output: str,
    no_diff: bool,
    results: str | None,
    json: options.RecordOutput,
) -> None:
    """Write one page of what is known of the lineages: to look at, to send, to print.

    It needs no network: ladders and trees to click, every step with its lesson, source and figures,
    rooflines, sweeps, the ledger, calibrations, what the checker found. Nothing is run or built.
    --json has every figure of it; `--json -` writes no page.
    """
    from dataclasses import replace
    from pathlib import Path

    from kernelbench.base import console, files
    from kernelbench.project.context import Context, parse_results
    from kernelbench.report.drawing import NOT_DRAWN, can_draw
    from kernelbench.report.html.gather import gather
    from kernelbench.report.html.page import page_text

    page = not json.alone
    if page:
        options.output_file(output)
    context = Context.find()
    folder = parse_results(results, context.project)
    with console.Status() as status:
        record = gather(context, folder, lineages, diffs=not no_diff, on_progress=status)
        if page and not can_draw():
            record = replace(record, notes=(*record.notes, NOT_DRAWN))
        text = page_text(record, on_progress=status) if page else ""
    for note in record.notes:
        console.warn(note)
    json.write(record)
    if page:
        files.write_text(Path(output), text)
        console.err.print(f"wrote {output} ({len(text.encode()) / 1e6:.2f} MB)")
