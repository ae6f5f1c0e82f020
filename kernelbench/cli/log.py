"""``kernelbench log``."""

from __future__ import annotations

import click

from kernelbench.base import console
from kernelbench.base.errors import UsageError
from kernelbench.cli import options
from kernelbench.cli.ab_view import p_text
from kernelbench.project.context import Context, parse_results
from kernelbench.records import ledger


@click.command(
    "log",
    epilog="\b\nExamples:\n  kernelbench log\n  kernelbench log --step v16 --last 20",
)
@click.option("--step", default=None, help="Only comparisons in which this step took part.")
@click.option("--shape", default=None, help="Only this shape.")
@click.option("--last", type=click.IntRange(min=1), default=None, help="Only the last N lines.")
@options.results_option
@options.json_option
def command(
    step: str | None,
    shape: str | None,
    last: int | None,
    results: str | None,
    json_path: str | None,
) -> int:
    """Print the ledger: every comparison with hypothesis, figures and verdict, oldest first."""
    options.require_writable(json_path)
    folder = parse_results(results, Context.find().project)
    entries = [
        entry
        for entry in ledger.read_ledger(folder)
        if (step is None or step in (entry.base.step, entry.cand.step))
        and (shape is None or shape == entry.shape)
    ]
    entries = entries[-last:] if last else entries
    if json_path is not None:
        options.write_json_output(json_path, {"schema": "kernelbench.log/1", "entries": entries})
        if json_path == "-":
            return 0
    if not entries:
        if step or shape:
            raise UsageError("no comparison matches", "`kernelbench log` alone prints all of them")
        console.out.print("no comparisons; `kernelbench ab BASE CAND` makes one")
        return 0
    table = console.make_table(
        [
            ("date", "left"),
            ("device", "left"),
            ("base→cand", "left"),
            ("shape", "left"),
            ("time", "left"),
            ("Δ", "right"),
            ("CI", "center"),
            ("p(Holm)", "right"),
            ("verdict", "left"),
            ("why", "left"),
        ]
    )
    for entry in entries:
        table.add_row(
            entry.created[:16].replace("T", " "),
            entry.device,
            console.escape(f"{entry.base.step}→{entry.cand.step}"),
            entry.shape,
            entry.metric,
            "–" if entry.change is None else f"{100 * entry.change:+.2f}%",
            "–" if entry.ci is None else f"[{100 * entry.ci[0]:+.2f}, {100 * entry.ci[1]:+.2f}]",
            "–" if entry.p_holm is None else p_text(entry.p_holm),
            console.styled(entry.verdict),
            console.escape(entry.why),
        )
    console.out.print(table)
    return 0
