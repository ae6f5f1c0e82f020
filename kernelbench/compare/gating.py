"""The two forms of ``kernelbench gate``: stored tables, or another revision measured live."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from kernelbench.base.callbacks import OnProgress, OnWarning
from kernelbench.base.errors import EnvironmentProblem, RecordError
from kernelbench.compare import gate_tables
from kernelbench.compare.best_ever import keep_best, kept_best
from kernelbench.compare.gate_report import GateReport, RowStatus
from kernelbench.compare.live_gate import LiveGate, Settings
from kernelbench.project.context import Context, parse_results
from kernelbench.project.registry import Lineages
from kernelbench.project.revision import lineages_at
from kernelbench.records import calibration_record, run_record, store
from kernelbench.records.run_record import Metric
from kernelbench.runs.api import warn_in_python
from kernelbench.runs.defaults import comparable, lineages_with
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import StepRun
from kernelbench.runs.settings import (
    Measuring,
    MeasuringOptions,
    Names,
    names_of,
    require_results,
)
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
    on_warning: OnWarning = warn_in_python,
) -> GateReport:
    """Judge a record of ``run --json`` by another one, of the same device.

    Args:
        margin: Change below which nobody cares, as a fraction.
        fail_on: Beside what always fails: ``ambiguous``, ``skipped``.
        results: Folder of the best times so far and of calibrations; the project's if None.

    Raises:
        RecordError: If one of the records cannot be read or compared.
    """
    folder = parse_results(results, Context.find().project)
    before, after = run_record.read_run(baseline), run_record.read_run(current)
    runs, broken = store.load_runs(folder, run_record.device_slug(after.device))
    for line in broken:
        on_warning(line)
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
    on_progress: OnProgress | None = None,
    on_warning: OnWarning = warn_in_python,
    **measuring: Unpack[MeasuringOptions],
) -> GateReport:
    """Measure steps against those of another revision, interleaved; a SLOWER is measured again.

    Args:
        reference: A git reference or a folder.
        steps: If None, those of the project's lineages that have the shapes and times here.
        shapes: The problem's benchmark shapes if None.
        best: A second revision, the best so far; the one kept for the device if None.
        update_best: After a pass, keep HEAD as the best if none is kept or it is faster.
        margin: Change below which nobody cares, as a fraction.
        sessions: Fresh processes per comparison.
        fail_on: Beside what always fails: ``ambiguous``, ``skipped``.
        results: Folder of the best revision and of calibrations; the project's if None.
        measuring: The fields of :class:`~kernelbench.runs.settings.Measuring`.

    Raises:
        UsageError: For what does not exist or is out of range.
        RecordError: If a revision cannot be found.
        EnvironmentProblem: If nothing can be timed here.
    """
    settings = Measuring.of(measuring)
    context = Context.find()
    folder = parse_results(results, context.project)
    if update_best:
        require_results(folder)
    wanted = names_of(steps) or lineages_with(context, names_of(shapes))
    plans = plan(context, wanted, names_of(shapes), "auto", [], settings.device, warn=on_warning)
    if not names_of(steps):
        plans = comparable(plans, metric, warn=on_warning)
    _require_timed(plans, metric)
    live_settings = Settings(
        settings.timing(metric), sessions, metric, margin, ALPHA, settings.seed,
        settings.timeout_s, folder,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        predecessor = stack.enter_context(lineages_at(reference, context.project))
        former, note = _best(best, context, plans, folder, stack)
        launcher = stack.enter_context(Launcher())
        live = LiveGate(context, launcher, live_settings, on_progress or (lambda _text: None))
        report = live.run(plans, predecessor, former, notes=[note], fail_on=fail_on)
    if update_best and not report.failures:
        why_not = keep_best(context.project, folder, report)
        if why_not:
            on_warning(f"the best-ever revision stays as it is: {why_not}")
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
        if not executor.device_timed and metric == "device":
            raise EnvironmentProblem(
                "device time needs a GPU", "--metric call compares wall-clock times on this CPU"
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
