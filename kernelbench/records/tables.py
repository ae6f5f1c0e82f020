"""Rows of saved runs, one for each input class: the newest of each kind, and as CSV."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelbench.base.table import Row, csv_text
from kernelbench.records.metrics import METRICS, Metric, Summary, shown
from kernelbench.records.run_record import UNKNOWN, Result, RunRecord


def metric_cell(summary: Summary | None) -> str:
    """``412.30 [410.10–415.00] n=500 graph``, or nothing."""
    if summary is None:
        return ""
    low, high = summary.p05, summary.p95
    return f"{summary.median:.2f} [{low:.2f}–{high:.2f}] n={summary.reps} {summary.method}"


def fraction_cell(sol_us: float | None, time: Summary | None) -> str:
    """The share of the speed of light that a time reaches, as a percentage."""
    if sol_us is None or time is None:
        return ""
    return f"{100 * sol_us / time.median:.1f}%"


def rows_csv(rows: Sequence[Saved]) -> str:
    """A CSV file with a header line."""
    metrics = shown(row.result for row in rows)
    return csv_text([_for_programs(row, metrics) for row in rows])


def _for_programs(row: Saved, metrics: Sequence[Metric]) -> Row:
    result, run = row.result, row.run
    cells: Row = {
        "device": run.device,
        "step": result.step,
        "lineage": result.lineage,
        "shape": result.shape,
        "dims": result.dims,
        "inputs": result.inputs,
        "executor": result.executor,
        "l2": run.protocol.l2,
        "call_mode": run.protocol.call,
        "status": result.status,
        "reason": result.reason,
        "exact": result.exact,
        "max_abs_err": result.max_abs_err,
        "rel_rms_err": result.rel_rms_err,
    }
    for name in metrics:
        found = result.metrics.get(name)
        for figure in ("median", "mean", "p05", "p95"):
            cells[f"{name}_{figure}_{METRICS[name].unit}"] = found and getattr(found, figure)
        for figure in ("reps", "method"):
            cells[f"{name}_{figure}"] = found and getattr(found, figure)
    return cells | {
        "sol_us": result.sol_us,
        "floor_us": result.floor and result.floor.us,
        "sm_mhz": result.sm_mhz,
        "driver": run.environment.driver,
        "cuda": run.environment.cuda,
        "torch": run.environment.torch,
        "created": run.created,
        "run": run.id,
        "source_sha": result.source_sha,
        "notes": "; ".join(result.notes),
    }


@dataclass(frozen=True)
class Saved:
    """One row of a saved run, with where it came from."""

    run: RunRecord
    result: Result


def latest(runs: Iterable[RunRecord]) -> list[Saved]:
    """The newest row per step, shape, input class, executor and L2 mode, in order of appearance.

    One that was skipped stands only where there is no other: nothing is known of it.
    """
    newest: dict[tuple[str, ...], Saved] = {}
    for run in runs:
        for result in run.results:
            of = (result.step, result.shape, result.inputs, result.executor)
            key = (*of, run.protocol.l2, run.protocol.call)
            if result.status not in UNKNOWN or key not in newest:
                newest[key] = Saved(run, result)
    return [newest[key] for key in sorted(newest, key=natural)]


def natural(key: tuple[str, ...]) -> tuple[Any, ...]:
    """A sort key that puts ``v2`` before ``v10``."""
    return tuple(
        tuple((0, int(p)) if p.isdigit() else (1, p) for p in re.findall(r"\d+|\D+", part))
        for part in key
    )
