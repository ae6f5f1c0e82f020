"""``kernelbench gate``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from kernelbench.base import console, files
from kernelbench.base.errors import UsageError
from kernelbench.cli import options
from kernelbench.compare import gating
from kernelbench.compare.gate_report import GateReport
from kernelbench.report import gate_markdown
from kernelbench.stats.defaults import MARGIN, SESSIONS


@click.command(
    "gate",
    epilog="\b\nExamples:\n"
    "  kernelbench gate --baseline main.json --current pr.json\n"
    "  kernelbench gate --against origin/main v00 --shape D --junit gate.xml\n"
    "  kernelbench gate --against ../baseline-copy --best v1.0 group_gemm",
)
@options.optional_steps_argument
@click.option("--baseline", type=click.Path(dir_okay=False), help="Record of `run --json FILE`.")
@click.option("--current", type=click.Path(dir_okay=False), help="Record to judge.")
@click.option("--against", metavar="GIT_REF|PATH", help="Revision to compare with, live.")
@click.option(
    "--best",
    metavar="GIT_REF|PATH",
    help="Best-ever revision (live form; default: the one kept in results/<device>/best.json).",
)
@click.option(
    "--update-best",
    is_flag=True,
    help="After a pass, keep HEAD as the best-ever revision if none is kept or it is faster.",
)
@options.shape_option()
@options.metric_option()
@click.option("--margin", type=options.Percent(), default=f"{MARGIN:.1%}")
@click.option("--sessions", type=click.IntRange(min=1), default=SESSIONS)
@options.fail_on_option("ambiguous", "skipped")
@click.option(
    "--markdown", type=options.output_file, metavar="PATH", help="Write the summary as Markdown."
)
@click.option(
    "--junit", "junit_path", type=options.output_file, metavar="PATH",
    help="Write the result as JUnit XML.",
)  # fmt: skip
@options.json_option
@options.measuring_options
def command(
    steps: tuple[str, ...],
    baseline: str | None,
    current: str | None,
    against: str | None,
    shapes: tuple[str, ...],
    markdown: str | None,
    junit_path: str | None,
    json: options.RecordOutput,
    **asked: Any,
) -> int:
    """Fail on a regression against the predecessor or the best ever.

    Two forms. With --baseline and --current, tables that `run --json` wrote on one device are
    compared. With --against, the steps of another revision and the current ones are measured
    interleaved, which is the only sound way on a shared machine; a regression is measured again
    before it fails. A loss beyond the margin that is not certain leaves with 4, never with 0; a
    gate that could compare nothing, with 5.
    """
    tables = _tables_given(baseline, current, against)
    with console.Watching() as observer:
        if tables is None:
            report = gating.gate_against(against or "", steps, shapes, observer=observer, **asked)
        elif steps or shapes or asked["best"] or asked["update_best"]:
            raise UsageError("steps, --shape and --best belong to the live form, --against REF")
        else:
            both = {name: asked[name] for name in ("metric", "margin", "fail_on", "results")}
            report = gating.gate_files(*tables, observer=observer, **both)
    _publish(report, markdown, junit_path, json)
    return int(report.exit_code)


def _tables_given(
    baseline: str | None, current: str | None, against: str | None
) -> tuple[Path, Path] | None:
    """The two files of the form that compares tables; None for the live form."""
    if (baseline is not None or current is not None) == (against is not None):
        raise UsageError(
            "gate takes --baseline FILE --current FILE, or --against REF", "see `gate --help`"
        )
    if against is not None:
        return None
    if baseline is None or current is None:
        raise UsageError("--baseline and --current go together", "give both files")
    return Path(baseline), Path(current)


def _publish(
    report: GateReport, markdown: str | None, junit_path: str | None, json: options.RecordOutput
) -> None:
    """Print the report and write it wherever it was asked for."""
    text = gate_markdown.gate_markdown(report)
    json.people.say(text.rstrip())
    if markdown is not None:
        files.write_text(Path(markdown), text)
    if junit_path is not None:
        files.write_text(Path(junit_path), gate_markdown.junit_xml(report))
    json.write({"schema": "kernelbench.gate/1", "report": report})
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            console.warn(f"cannot add to GITHUB_STEP_SUMMARY: {error.strerror or error}")
