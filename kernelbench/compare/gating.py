"""The two forms of ``kernelbench gate``: stored tables, or another revision measured live."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

from kernelbench.base import json_file
from kernelbench.base.errors import EnvironmentProblem, RecordError, UsageError
from kernelbench.base.observer import Observer
from kernelbench.compare import gate_tables
from kernelbench.compare.comparer import VerdictRules
from kernelbench.compare.gate_report import GateReport, RowStatus
from kernelbench.compare.live_gate import LiveGate
from kernelbench.project.context import Context, parse_results
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.project_file import Project
from kernelbench.project.registry import Lineages
from kernelbench.project.revision import commit_of, lineages_at, uncommitted
from kernelbench.records import calibration_record, run_record, store
from kernelbench.records.metrics import METRICS, Metric
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import StepRun
from kernelbench.runs.settings import Measuring, MeasuringOptions, Names, names_of, require_results
from kernelbench.stats.defaults import ALPHA, MARGIN, SESSIONS
from kernelbench.worker.launcher import Launcher


def gate_files(
    baseline: Path,
    current: Path,
    *,
    metric: Metric = "device",
    margin: float = MARGIN,
    fail_on: tuple[RowStatus, ...] = (),
    results: str | Path | None = None,
    observer: Observer | None = None,
) -> GateReport:
    """Judge a record of ``run --json`` by another one, of the same device.

    Args:
        baseline: The record of before.
        current: The record to judge.
        metric: What decides.
        margin: Change below which nobody cares, as a fraction.
        fail_on: Beside what always fails: ``ambiguous``, ``skipped``.
        results: Folder of the best times so far and of calibrations; the project's if None.
        observer: Told of records that cannot be read.

    Raises:
        RecordError: If one of the records cannot be read or compared.
    """
    folder = parse_results(results, Context.find().project)
    before, after = run_record.read_run(baseline), run_record.read_run(current)
    runs, broken = store.load_runs(folder, run_record.device_slug(after.device))
    for line in broken:
        (observer or Observer()).warning(line)
    return gate_tables.compare_tables(
        before,
        after,
        best=gate_tables.best_ever(runs, after),
        spreads=calibration_record.load_spreads(folder, after.device, "level", after.protocol.l2),
        margin=margin,
        metric=metric,
        fail_on=fail_on,
    )


def gate_against(
    reference: str,
    steps: Names | None = None,
    shapes: Names | None = None,
    *,
    best: str | None = None,
    update_best: bool = False,
    metric: Metric = "device",
    margin: float = MARGIN,
    sessions: int = SESSIONS,
    fail_on: tuple[RowStatus, ...] = (),
    results: str | Path | None = None,
    observer: Observer | None = None,
    **measuring: Unpack[MeasuringOptions],
) -> GateReport:
    """Measure steps against those of another revision, interleaved; a SLOWER is measured again.

    Args:
        reference: A git reference or a folder.
        steps: If None, those of the project's lineages that have the shapes and times here.
        shapes: The problem's benchmark shapes if None.
        best: A second revision, the best so far; the one kept for the device if None.
        update_best: After a pass, keep HEAD as the best if none is kept or it is faster.
        metric: What decides.
        margin: Change below which nobody cares, as a fraction.
        sessions: Fresh processes per comparison.
        fail_on: Beside what always fails: ``ambiguous``, ``skipped``.
        results: Folder of the best revision and of calibrations; the project's if None.
        observer: Told what happens.
        measuring: The fields of :class:`~kernelbench.runs.settings.Measuring`.

    Raises:
        UsageError: For what does not exist or is out of range.
        RecordError: If a revision cannot be found.
        EnvironmentProblem: If nothing can be timed here.
    """
    observer = observer or Observer()
    settings = Measuring.of(measuring)
    context = Context.find()
    folder = parse_results(results, context.project)
    if update_best:
        require_results(folder)
    rules = VerdictRules(folder, settings.timing(metric), ALPHA, margin, settings.seed)
    with contextlib.ExitStack() as stack:
        # First: a name that does not exist is a mistake on any machine.
        predecessor = stack.enter_context(lineages_at(reference, context.project))
        wanted = names_of(steps) or lineages_with(context, names_of(shapes))
        plans = plan(
            context, wanted, names_of(shapes), "auto", [], settings.device, warn=observer.warning
        )
        if not names_of(steps):
            plans = comparable(plans, metric, warn=observer.warning)
        _require_timed(plans, metric)
        former, note = _best(best, context, plans, folder, stack)
        launcher = stack.enter_context(Launcher())
        live = LiveGate(
            context, launcher, rules, sessions, metric, settings.timeout_s, observer.progress
        )
        report = live.run(plans, predecessor, former, notes=[note], fail_on=fail_on)
    if update_best and not report.failures:
        why_not = keep_best(context.project, folder, report)
        if why_not:
            observer.warning(f"the best-ever revision stays as it is: {why_not}")
    return report


def _require_timed(plans: Sequence[StepRun], metric: Metric) -> None:
    """Refuse what cannot be timed here."""
    for step_plan in plans:
        executor = step_plan.target.executor
        if not executor.timed:
            raise EnvironmentProblem(
                f"{step_plan.step.name} runs on the {executor.name} here, "
                "whose times are never compared"
            )
        if not executor.device_timed and metric != "call":
            raise EnvironmentProblem(
                f"{METRICS[metric].title} needs a GPU",
                "--metric call compares wall-clock times on this CPU",
            )


def _best(
    named: str | None,
    context: Context,
    plans: Sequence[StepRun],
    folder: Path,
    stack: contextlib.ExitStack,
) -> tuple[Lineages | None, str]:
    """The lineages of the best revision, as long as ``stack`` is open, and a note about it."""
    gpu = plans[0].target.gpu
    kept = kept_best(folder, gpu.name) if named is None and gpu is not None else None
    reference, source = (named, "--best") if named is not None else kept or (None, "")
    if reference is None:
        return None, "no best-ever revision is kept (--best, --update-best): predecessor only"
    try:
        lineages = stack.enter_context(lineages_at(reference, context.project))
    except RecordError:
        if named is not None:
            raise
        return None, f"the best-ever revision {reference} is not in this clone: not compared"
    return lineages, f"best ever: {reference} ({source})"


BEST_SCHEMA = "kernelbench.best/1"


def kept_best(folder: Path, device: str) -> tuple[str, str] | None:
    """The commit kept for a device, and since when, or None; RecordError for another version."""
    path = _path(folder, device)
    if not path.is_file():
        return None
    value = json_file.read_json(path)
    if not isinstance(value, dict) or value.get("schema") != BEST_SCHEMA:
        raise RecordError(f"{path} is not of schema {BEST_SCHEMA!r}", "remove it, or --best REF")
    return str(value["commit"]), f"kept since {value['created']}"


def keep_best(project: Project, folder: Path, report: GateReport) -> str:
    """Keep HEAD as the best ever, unless that would let small losses creep in.

    Args:
        project: Whose HEAD it is.
        folder: The results folder.
        report: Of the gate that HEAD passed.

    Returns:
        Why it was not kept; empty if it was.

    Raises:
        RecordError: If the project is not in a git repository with a commit.
    """
    commit = commit_of("HEAD", project)
    if commit is None:
        raise RecordError("--update-best needs a git repository with a commit")
    path = _path(folder, report.device)
    changes = [
        (row.delta, row.margin) if row.delta_best is None else (row.delta_best, row.margin_best)
        for row in report.rows
    ]
    timed = [(delta, margin) for delta, margin in changes if delta is not None and margin]
    if not timed:
        return "nothing was timed"
    if path.is_file() and not any(delta < -margin for delta, margin in timed):
        return "HEAD is no faster than it"
    if uncommitted(project):
        return "what was measured is not HEAD: there are uncommitted changes"
    value = {"schema": BEST_SCHEMA, "commit": commit, "created": run_record.now_iso()}
    json_file.write_json(path, value)
    return ""


def _path(folder: Path, device: str) -> Path:
    return folder / run_record.device_slug(device) / "best.json"


def lineages_with(context: Context, shapes: Sequence[str]) -> list[str]:
    """Names of the lineages, peers aside, whose problem has these shapes.

    All of them where no shape is named, or none has them all: what is wrong is then said of these.
    """
    chains = context.lineages.chains
    found = []
    for lineage in chains:
        with contextlib.suppress(UsageError):
            context.shapes_for(load_problem(lineage), shapes)
            found.append(lineage.name)
    return found or [lineage.name for lineage in chains]


def comparable(
    plans: Sequence[StepRun], metric: Metric, *, warn: Callable[[str], None]
) -> list[StepRun]:
    """The plans that have such times here; ``warn`` is told of the others.

    All of them where none has: whoever goes on says why.

    Args:
        plans: Steps with their shapes and targets.
        metric: What decides.
        warn: Told of what is left out.
    """
    kept: list[StepRun] = []
    left_out: list[StepRun] = []
    for each in plans:
        executor = each.target.executor
        has_times = executor.timed if metric == "call" else executor.device_timed
        (kept if has_times else left_out).append(each)
    if not kept:
        return list(plans)
    if left_out:
        names = ", ".join(each.step.name for each in left_out)
        warn(f"no {METRICS[metric].title}s here, left out: {names}")
    return kept
