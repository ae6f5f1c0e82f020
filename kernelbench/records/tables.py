"""Saved rows as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.records.run_record import TimeStats

if TYPE_CHECKING:
    from kernelbench.records.rows import Saved

_MARKDOWN_COLUMNS = (
    "step",
    "shape",
    "inputs",
    "executor",
    "L2",
    "status",
    "exact",
    "max abs err",
    "rel rms err",
    "device µs",
    "call µs",
    "speed of light µs",
    "fraction",
    "SM MHz",
    "date",
    "notes",
)


def rows_markdown(rows: Sequence[Saved]) -> str:
    """A Markdown table, one line a row; regenerated, never edited."""
    if not rows:
        return "No rows.\n"
    environment = rows[-1].run.environment
    driver = f", driver {environment.driver}" if environment.driver else ""
    cuda = f", CUDA {environment.cuda}" if environment.cuda else ""
    lines = [
        "<!-- Generated from the records in runs/ by kernelbench; do not edit. -->",
        f"# {environment.device}",
        "",
        (
            f"Torch {environment.torch}{driver}{cuda}. Medians; 5th–95th percentile in brackets. "
            "Fraction = speed of light / device time (call time where that is all there is)."
        ),
        "",
        "| " + " | ".join(_MARKDOWN_COLUMNS) + " |",
        "|" + " --- |" * len(_MARKDOWN_COLUMNS),
    ]
    for row in rows:
        result = row.result
        cells = (
            result.step,
            result.shape,
            result.inputs,
            result.executor,
            row.run.protocol.l2,
            result.status + (f": {result.reason}" if result.reason else ""),
            {True: "yes", False: "no", None: ""}[result.exact],
            "" if result.max_abs_err is None else f"{result.max_abs_err:.3g}",
            "" if result.rel_rms_err is None else f"{result.rel_rms_err:.3g}",
            time_cell(result.device_us),
            time_cell(result.call_us),
            "" if result.sol_us is None else f"{result.sol_us:.2f}",
            fraction_cell(result.sol_us, result.device_us or result.call_us),
            "" if result.sm_mhz is None else f"{result.sm_mhz:.0f}",
            row.run.created[:10],
            "; ".join(result.notes),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def time_cell(stats: TimeStats | None) -> str:
    """``412.30 [410.10–415.00] n=500 graph``, or nothing."""
    if stats is None:
        return ""
    return f"{stats.median:.2f} [{stats.p05:.2f}–{stats.p95:.2f}] n={stats.reps} {stats.method}"


def fraction_cell(sol_us: float | None, stats: TimeStats | None) -> str:
    """The share of the speed of light that a time reaches, as a percentage."""
    if sol_us is None or stats is None:
        return ""
    return f"{100 * sol_us / stats.median:.1f}%"


_CSV_COLUMNS = (
    "device",
    "step",
    "lineage",
    "shape",
    "dims",
    "inputs",
    "executor",
    "l2",
    "call_mode",
    "status",
    "reason",
    "exact",
    "max_abs_err",
    "rel_rms_err",
    "device_median_us",
    "device_mean_us",
    "device_p05_us",
    "device_p95_us",
    "device_reps",
    "device_method",
    "call_median_us",
    "call_mean_us",
    "call_p05_us",
    "call_p95_us",
    "call_reps",
    "call_method",
    "sol_us",
    "floor_us",
    "sm_mhz",
    "driver",
    "cuda",
    "torch",
    "created",
    "run",
    "source_sha",
    "notes",
)


def rows_csv(rows: Sequence[Saved]) -> str:
    """A CSV file with a header line."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for row in rows:
        result, run = row.result, row.run
        writer.writerow(
            [
                run.device,
                result.step,
                result.lineage,
                result.shape,
                result.dims,
                result.inputs,
                result.executor,
                run.protocol.l2,
                run.protocol.call,
                result.status,
                result.reason,
                "" if result.exact is None else result.exact,
                "" if result.max_abs_err is None else result.max_abs_err,
                "" if result.rel_rms_err is None else result.rel_rms_err,
                *_csv_times(result.device_us),
                *_csv_times(result.call_us),
                "" if result.sol_us is None else result.sol_us,
                "" if result.floor is None else result.floor.us,
                "" if result.sm_mhz is None else result.sm_mhz,
                run.environment.driver,
                run.environment.cuda,
                run.environment.torch,
                run.created,
                run.id,
                result.source_sha,
                "; ".join(result.notes),
            ]
        )
    return stream.getvalue()


def _csv_times(stats: TimeStats | None) -> list[object]:
    if stats is None:
        return [""] * 6
    return [stats.median, stats.mean, stats.p05, stats.p95, stats.reps, stats.method]
