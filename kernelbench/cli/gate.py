"""``kernelbench gate``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from kernelbench.base import console, files, json_file
from kernelbench.base.errors import EnvironmentProblem, RecordError, UsageError
from kernelbench.cli import options
from kernelbench.compare import gate_tables
from kernelbench.compare.gate_report import GateReport
from kernelbench.compare.live_gate import LiveGate, Settings
from kernelbench.project.context import Context, parse_results
from kernelbench.project.revision import commit_of, lineages_at, uncommitted
from kernelbench.records import calibration_record, run_record, store
from kernelbench.report import gate_markdown, junit
from kernelbench.runs.plan import plan
from kernelbench.stats.inference import ALPHA, MARGIN
from kernelbench.worker.launcher import Launcher

BEST_SCHEMA = "kernelbench.best/1"


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
    default=None,
    help="Best-ever revision (live form; default: the one kept in results/<device>/best.json).",
)
@click.option(
    "--update-best",
    is_flag=True,
    help="After a pass, keep HEAD as the best-ever revision if none is kept or it is faster.",
)
@options.shape_option
@click.option(
    "--metric", type=click.Choice(["device", "call"]), default="device", show_default=True
)
@click.option("--margin", type=options.Percent(), default=MARGIN, show_default="0.5%")
@click.option("--sessions", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--ambiguous", type=click.Choice(["pass", "fail"]), default="pass", show_default=True)
@click.option("--markdown", metavar="PATH", help="Write the summary as Markdown.")
@click.option("--junit", "junit_path", metavar="PATH", help="Write the result as JUnit XML.")
@options.json_option
@options.measuring_options
def command(
    steps: tuple[str, ...],
    baseline: str | None,
    current: str | None,
    against: str | None,
    best: str | None,
    update_best: bool,
    shapes: tuple[str, ...],
    metric: Literal["device", "call"],
    margin: float,
    sessions: int,
    ambiguous: str,
    markdown: str | None,
    junit_path: str | None,
    json_path: str | None,
    measuring: options.Measuring,
) -> int:
    """Fail on a regression against the predecessor or the best ever.

    Two forms. With --baseline and --current, tables that `run --json` wrote on one device are
    compared. With --against, the steps of another revision and the current ones are measured
    interleaved, which is the only sound way on a shared machine; a regression is measured again
    before it fails.
    """
    for path in (markdown, junit_path, json_path):
        options.require_writable(path)
    tables = baseline is not None or current is not None
    if tables == (against is not None):
        raise UsageError(
            "gate takes --baseline FILE --current FILE, or --against REF", "see `gate --help`"
        )
    if tables and (baseline is None or current is None):
        raise UsageError("--baseline and --current go together", "give both files")
    context = Context.find()
    folder = parse_results(measuring.results, context.project)
    if baseline is not None and current is not None:
        if steps or shapes or best or update_best:
            raise UsageError("steps, --shape and --best belong to the live form, --against REF")
        report = _tables(Path(baseline), Path(current), folder, metric, margin, ambiguous)
    else:
        if update_best:
            options.require_results(folder)
        settings = Settings(
            measuring.timing(metric),
            sessions,
            metric,
            margin,
            ALPHA,
            measuring.seed,
            measuring.timeout,
            folder,
        )
        report = _live(
            context,
            steps,
            shapes,
            against or "",
            best,
            settings,
            measuring.device,
            ambiguous == "fail",
        )
        if update_best and not report.failures:
            _keep_best(context, folder, report)
    _publish(report, markdown, junit_path, json_path)
    return int(report.exit_code)


def _tables(
    baseline: Path,
    current: Path,
    folder: Path,
    metric: Literal["device", "call"],
    margin: float,
    ambiguous: str,
) -> GateReport:
    before, after = run_record.read_run(baseline), run_record.read_run(current)
    runs, broken = store.load_runs(folder, run_record.device_slug(after.device))
    for line in broken:
        console.warn(line)
    return gate_tables.compare_tables(
        before,
        after,
        best=gate_tables.best_ever(runs, after),
        spreads=calibration_record.load_spreads(folder, after.device, "level", after.protocol.l2),
        margin=margin,
        metric=metric,
        fail_on_ambiguous=ambiguous == "fail",
    )


def _live(
    context: Context,
    steps: Sequence[str],
    shapes: Sequence[str],
    against: str,
    best: str | None,
    settings: Settings,
    device: int,
    fail_on_ambiguous: bool,
) -> GateReport:
    wanted = steps or [lineage.name for lineage in context.lineages.chains]
    plans = plan(context, wanted, shapes, "auto", [], device, warn=console.warn)
    for step_plan in plans:
        executor = step_plan.target.executor
        if not executor.timed:
            raise EnvironmentProblem(
                f"{step_plan.step.name} runs on the {executor.name} here, "
                "whose times are never compared"
            )
        if not executor.device_timed and settings.metric == "device":
            raise EnvironmentProblem(
                "device time needs a GPU", "--metric call compares wall-clock times on this CPU"
            )
    notes = []
    with contextlib.ExitStack() as stack:
        predecessor = stack.enter_context(lineages_at(against, context.project))
        best_ref, source = best, "--best"
        if best is None:
            gpu = plans[0].target.gpu
            best_ref, source = _kept_best(settings.results, gpu.name if gpu else None)
        former = None
        if best_ref is None:
            notes.append("no best-ever revision is kept (--best, --update-best): predecessor only")
        else:
            try:
                former = stack.enter_context(lineages_at(best_ref, context.project))
                notes.append(f"best ever: {best_ref} ({source})")
            except RecordError:
                if best is not None:
                    raise
                notes.append(
                    f"the best-ever revision {best_ref} is not in this clone: not compared"
                )
        launcher = stack.enter_context(Launcher())
        status = stack.enter_context(console.Status())
        live = LiveGate(context, launcher, settings, status)
        return live.run(
            plans, predecessor, former, notes=notes, fail_on_ambiguous=fail_on_ambiguous
        )


def _best_path(folder: Path, device: str) -> Path:
    return folder / run_record.device_slug(device) / "best.json"


def _kept_best(folder: Path, device: str | None) -> tuple[str | None, str]:
    if device is None:
        return None, ""
    path = _best_path(folder, device)
    if not path.is_file():
        return None, ""
    value = json_file.read_json(path)
    if not isinstance(value, dict) or value.get("schema") != BEST_SCHEMA:
        raise RecordError(f"{path} is not of schema {BEST_SCHEMA!r}", "remove it, or --best REF")
    return str(value["commit"]), f"kept since {value['created']}"


def _keep_best(context: Context, folder: Path, report: GateReport) -> None:
    """Keep HEAD as the best ever, unless that would let small losses creep in."""
    commit = commit_of("HEAD", context.project)
    if commit is None:
        raise RecordError("--update-best needs a git repository with a commit")
    path = _best_path(folder, report.device)
    changes = [
        (row.delta, row.margin) if row.delta_best is None else (row.delta_best, row.margin_best)
        for row in report.rows
    ]
    timed = [(delta, margin) for delta, margin in changes if delta is not None and margin]
    why_not = ""
    if not timed:
        why_not = "nothing was timed"
    elif path.is_file() and not any(delta < -margin for delta, margin in timed):
        why_not = "HEAD is no faster than it"
    elif uncommitted(context.project):
        why_not = "what was measured is not HEAD: there are uncommitted changes"
    if why_not:
        console.warn(f"the best-ever revision stays as it is: {why_not}")
        return
    value = {"schema": BEST_SCHEMA, "commit": commit, "created": run_record.now_iso()}
    json_file.write_json(path, value)


def _publish(
    report: GateReport, markdown: str | None, junit_path: str | None, json_path: str | None
) -> None:
    """Print the report and write it wherever it was asked for."""
    text = gate_markdown.gate_markdown(report)
    to = console.err if json_path == "-" else console.out
    to.print(console.Text(text.rstrip()), soft_wrap=True)
    if markdown is not None:
        files.write_text(Path(markdown), text)
    if junit_path is not None:
        files.write_text(Path(junit_path), junit.junit_xml(report))
    if json_path is not None:
        options.write_json_output(json_path, {"schema": "kernelbench.gate/1", "report": report})
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            console.warn(f"cannot add to GITHUB_STEP_SUMMARY: {error.strerror or error}")
