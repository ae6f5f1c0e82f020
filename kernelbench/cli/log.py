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
    "log", epilog="\b\nExamples:\n  kernelbench log\n  kernelbench log --step v16 --last 20"
)
@click.option("--step", help="Only comparisons in which this step took part.")
@click.option("--shape", help="Only this shape.")
@click.option("--last", type=click.IntRange(min=1), help="Only the last N lines.")
@options.results_option
@options.json_option
def command(
    step: str | None,
    shape: str | None,
    last: int | None,
    results: str | None,
    json: options.RecordOutput,
) -> int:
    """Print the ledger: every comparison with hypothesis, figures and verdict, oldest first."""
    folder = parse_results(results, Context.find().project)
    entries = [
        entry
        for entry in ledger.read_ledger(folder)
        if (step is None or step in (entry.base.step, entry.cand.step))
        and (shape is None or shape == entry.shape)
    ]
    entries = entries[-last:] if last else entries
    json.write({"schema": "kernelbench.log/1", "entries": entries})
    if json.alone:
        return 0
    if not entries:
        if step or shape:
            raise UsageError("no comparison matches", "`kernelbench log` alone prints all of them")
        console.out.print("no comparisons; `kernelbench ab BASE CAND` makes one")
        return 0
    rows = [
        {
            "date": entry.created[:16].replace("T", " "),
            "device": entry.device,
            "base→cand": f"{entry.base.step}→{entry.cand.step}",
            "shape": entry.shape,
            "time": entry.metric,
            "Δ": "–" if entry.change is None else f"{100 * entry.change:+.2f}%",
            "CI": "–"
            if entry.ci is None
            else "[{:+.2f}, {:+.2f}]".format(*(100 * end for end in entry.ci)),
            "p(Holm)": "–" if entry.p_holm is None else p_text(entry.p_holm),
            "verdict": console.styled(entry.verdict),
            "why": "″" if above is not None and above.why == entry.why else entry.why,
        }
        for above, entry in zip([None, *entries], entries, strict=False)
    ]
    spare = [["date"], ["p(Holm)"], ["device"]]
    console.show(rows, right=["Δ", "p(Holm)"], center=["CI"], prose="why", spare=spare)
    return 0
