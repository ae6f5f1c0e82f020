"""From a project's records to what a report shows."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbench.base.demangle import short_name
from kernelbench.base.errors import KernelbenchError, RecordError
from kernelbench.base.json_file import read_each, read_json
from kernelbench.base.version import __version__
from kernelbench.checks.report import LastCheck, last_checks
from kernelbench.inspection.code_lock import read_lock
from kernelbench.lineages.tree import trees
from kernelbench.predict.schedule import read_schedules
from kernelbench.project.context import Context
from kernelbench.project.registry import Lineage
from kernelbench.records import calibration_record, ledger, outcomes, run_record, store
from kernelbench.records.ledger import LedgerEntry
from kernelbench.records.metrics import sample_key
from kernelbench.records.run_record import RunRecord
from kernelbench.report.html import record
from kernelbench.report.html.lineage_page import LineageSource, lineage_page
from kernelbench.report.html.record import (
    PAGE_SCHEMA,
    CalibrationPage,
    CheckPage,
    ComparisonPage,
    Distribution,
    FindingPage,
    KernelPage,
    ReportRecord,
    Totals,
    project_name,
)
from kernelbench.stats.blocks import block_differences, samples_of


@dataclass
class _Source:
    context: Context
    folder: Path
    lineages: list[Lineage]
    runs: list[RunRecord]
    entries: list[ledger.LedgerEntry]
    checks: dict[str, LastCheck]
    notes: list[str] = field(default_factory=list)


def gather(
    context: Context,
    folder: Path,
    lineages: Sequence[str] = (),
    *,
    diffs: bool = True,
    on_progress: Callable[[str], None] = lambda _text: None,
) -> ReportRecord:
    """Collect everything that a report shows; nothing is run or built.

    Args:
        folder: Of the results.
        lineages: Only these and their peers; all of the project if there are none.
        diffs: Whether to compare each step's source with its parent's.

    Raises:
        UsageError: For a lineage that does not exist.
        RecordError: If the ledger cannot be read.
    """
    chosen = [context.lineages.lineage(name) for name in lineages]
    chosen = chosen or [*context.lineages.lineages]
    names = {lineage.name for lineage in chosen}
    peers = [each for each in context.lineages.all_lineages if each.peers_of in names]
    chosen += [lineage for lineage in peers if lineage.name not in names]
    on_progress("reading records")
    source = _read(context, folder, chosen)
    comparisons = _comparisons(source)
    kernels = _kernels(source)
    schedules, broken = read_schedules(folder)
    source.notes += broken
    found = trees(
        context.lineages, chosen, source.runs, source.entries,
        outcomes=outcomes.read_outcomes(folder), checks=source.checks,
    )  # fmt: skip
    pages = []
    for lineage, tree in zip(chosen, found, strict=True):
        on_progress(f"{lineage.name}: sources and figures")
        theirs = [t for of, t in zip(chosen, found, strict=True) if of.peers_of == lineage.name]
        own = LineageSource(
            context, folder, lineage, tree, theirs, source.runs, comparisons, kernels, diffs,
            schedules,
        )  # fmt: skip
        pages.append(lineage_page(own, source.notes))
    mutations = record.tables_of(context.project.root / record.MUTATIONS)
    return ReportRecord(
        schema=PAGE_SCHEMA,
        created=run_record.now_iso(),
        version=__version__,
        project=project_name(context.project.root),
        totals=_totals(source, comparisons),
        lineages=tuple(pages),
        comparisons=comparisons,
        calibrations=_calibrations(source),
        checks=tuple(_check(name, check) for name, check in sorted(source.checks.items())),
        mutations_file=record.MUTATIONS if mutations else "",
        mutations=mutations,
        notes=tuple(dict.fromkeys(source.notes)),
    )


def _read(context: Context, folder: Path, lineages: list[Lineage]) -> _Source:
    runs, broken = store.load_runs(folder)
    checks, broken_checks = last_checks(folder)
    steps = {step.name for each in lineages for step in context.lineages.steps_of(each.name)}
    known = ledger.read_ledger(folder)
    entries = [entry for entry in known if {entry.base.step, entry.cand.step} & steps]
    checks = {name: check for name, check in checks.items() if name in steps}
    notes = [*broken, *broken_checks]
    return _Source(context, folder, lineages, runs, entries, checks, notes)


def _comparisons(source: _Source) -> tuple[ComparisonPage, ...]:
    # A file has the samples of all shapes and metrics of one comparison.
    read = functools.lru_cache(maxsize=1)(read_json)
    lineage_of = {
        step.name: lineage.name
        for lineage in source.lineages
        for step in source.context.lineages.steps_of(lineage.name)
    }
    pages = []
    for entry in source.entries:
        try:
            differences = differences_of(entry, source.folder, read)
        except RecordError as error:
            source.notes.append(str(error))
            differences = None
        pages.append(ComparisonPage(entry, lineage_of.get(entry.cand.step, ""), differences))
    return tuple(pages)


def _kernels(source: _Source) -> dict[str, tuple[KernelPage, ...]]:
    try:
        locked = read_lock(source.context.project.results / "code.lock")
    except KernelbenchError as error:
        source.notes.append(str(error))
        return {}
    found: dict[str, tuple[KernelPage, ...]] = {}
    for key, entry in locked.items():
        pages = tuple(
            KernelPage(short_name(name), key.arch, key.nvcc, kernel.registers, kernel.bytes)
            for name, kernel in entry.kernels.items()
        )
        found[key.step] = found.get(key.step, ()) + pages
    return found


def _totals(source: _Source, comparisons: Sequence[ComparisonPage]) -> Totals:
    days = [run.created for run in source.runs] + [entry.created for entry in source.entries]
    return Totals(
        lineages=len(source.lineages),
        steps=sum(len(source.context.lineages.steps_of(each.name)) for each in source.lineages),
        runs=len(source.runs),
        rows=sum(len(run.results) for run in source.runs),
        devices=tuple(sorted({run.device for run in source.runs})),
        verdicts=dict(Counter(page.entry.verdict for page in comparisons)),
        first=min(days, default="")[:10],
        last=max(days, default="")[:10],
    )


def _calibrations(source: _Source) -> tuple[CalibrationPage, ...]:
    paths = sorted(source.folder.glob("*/calibration/*.json"), key=lambda file: file.name)
    records, broken = read_each(paths, calibration_record.read_calibration)
    source.notes.extend(broken)
    return tuple(
        CalibrationPage(
            record=record,
            evidence=record.evidence,
            findings=tuple(record.findings()),
            gaps=tuple(record.gaps()),
            p_values=distribution(record.false_positives.p_values, 0.0, 1.0),
        )
        for record in records
    )


def _check(step: str, last: LastCheck) -> CheckPage:
    rows = last.checked.rows
    findings: dict[str, FindingPage] = {}
    for row in rows:
        for seen in row.seen:
            found = seen.finding
            named = (found.identity, found.kind, found.text, row.shape)
            page = FindingPage(*named, seen.schedules, seen.allowed, seen.waits)
            findings.setdefault(found.identity, page)
    return CheckPage(
        step=step,
        created=last.created,
        statuses=dict(Counter(row.status for row in rows)),
        schedules=sum(row.schedules for row in rows),
        findings=tuple(findings.values()),
        not_reached=last.checked.not_reached,
        memory=last.checked.memory,
    )


_BINS = 25


def distribution(values: Sequence[float], low: float, high: float) -> Distribution | None:
    """The histogram of values between two ends; None without values or without width."""
    if not values or high <= low:
        return None
    counts, _ = np.histogram(np.clip(values, low, high), bins=_BINS, range=(low, high))
    return Distribution(
        low, high, tuple(int(count) for count in counts), len(values), float(np.median(values))
    )


def differences_of(
    entry: LedgerEntry, results: Path, read: Callable[[Path], Any] = read_json
) -> Distribution | None:
    """Paired differences of a comparison's blocks, as fractions of time.

    Args:
        results: The folder that the ledger's names of files are relative to.
        read: Reads a file of samples.

    Returns:
        Their histogram; None where no samples are kept, or fewer than two blocks.

    Raises:
        RecordError: If the samples are there and cannot be read.
    """
    if entry.samples_file is None or not (results / entry.samples_file).is_file():
        return None
    try:
        found = [
            _differences(session["blocks"], sample_key(entry.metric))
            for shape in read(results / entry.samples_file)
            if shape["shape"] == entry.shape
            for session in shape["sessions"]
            if session["metric"] == entry.metric
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{entry.samples_file} holds no samples of this version: {error!r}"
        ) from error
    values = np.expm1(np.concatenate(found)) if found else np.zeros(0)
    ends = [*values.tolist(), *(entry.ci or ())]
    whole = distribution(values.tolist(), min(ends), max(ends)) if ends else None
    sessions = tuple(float(np.median(np.expm1(each))) for each in found if len(each))
    return whole and replace(whole, sessions=sessions)


def _differences(blocks: Sequence[Mapping[str, Any]], values: str) -> NDArray[Any]:
    """Of the whole blocks of one session: ln of the candidate's level over the base's."""
    samples = samples_of((block["arm"], block[values], False) for block in blocks)
    return np.zeros(0) if samples is None else block_differences(samples)
