"""The measured figures inside READMEs, from the saved records under version control.

What is not committed stays out: a table in a README must be one that every reader can derive.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from kernelbench.project.project_file import Project
from kernelbench.project.registry import Step
from kernelbench.records import calibration_record, rows, run_record, store
from kernelbench.records.calibration_record import CalibrationRecord
from kernelbench.records.rows import Saved
from kernelbench.records.run_record import RunRecord
from kernelbench.records.tables import fraction_cell, time_cell

RESULTS_MARKERS = ("<!-- results:begin -->", "<!-- results:end -->")
CALIBRATION_MARKERS = ("<!-- calibration:begin -->", "<!-- calibration:end -->")


def committed_rows(project: Project) -> list[Saved]:
    """The newest timed row per step, shape and L2 mode among committed runs on GPUs.

    Outside a git checkout (a source archive) every saved run counts.
    """
    return [
        row
        for row in rows.latest(committed_runs(project))
        if row.run.environment.kind == "cuda" and (row.result.device_us or row.result.call_us)
    ]


def committed_runs(project: Project) -> list[RunRecord]:
    """The saved runs under version control, oldest first."""
    tracked = _tracked(project)
    runs, _ = store.load_runs(project.results)
    if tracked is None:
        return runs
    names = {run_record.id_of(Path(name)) for name in tracked}
    return [run for run in runs if run.id in names]


def _tracked(project: Project) -> set[str] | None:
    """The names of the result files under version control; None outside a git checkout."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(project.root), "ls-files", "--", str(project.results)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {Path(line).name for line in answer.stdout.splitlines()}


def measured_table(step: Step, rows: Sequence[Saved]) -> str:
    """Markdown: one line per device, shape and L2 mode in which the step was timed."""
    mine = [row for row in rows if row.result.step == step.name]
    if not mine:
        return "Nothing measured yet."
    lines = [
        "Measured with `kernelbench run`; medians in µs with the 5th–95th percentile.",
        "",
        "| device | shape | L2 | device time | call time | of speed of light | status | date |",
        "| --- | --- | --- | --- | --- | ---: | --- | --- |",
    ]
    for row in mine:
        result = row.result
        cells = (
            row.run.device,
            result.shape,
            row.run.protocol.l2,
            time_cell(result.device_us),
            time_cell(result.call_us),
            fraction_cell(result.sol_us, result.device_us or result.call_us),
            result.status,
            row.run.created[:10],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _trusted(record: CalibrationRecord) -> str:
    if record.findings():
        return "; ".join(record.findings())
    return f"partial: {'; '.join(record.gaps())}" if record.evidence == "partial" else "yes"


def calibration_table(project: Project) -> str:
    """Markdown: one line per calibration of a GPU, every attempt, oldest first."""
    tracked = _tracked(project)
    columns = (
        "device",
        "kernel, shape",
        "A/A rejected at α = .05 (97 % band)",
        "A/A verdicts",
        "planted, found SLOWER",
        "Welch on A…A B…B",
        "trusted",
        "date, seed",
    )
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for path in sorted(project.results.glob("*/calibration/*.json"), key=lambda file: file.name):
        if tracked is not None and path.name not in tracked:
            continue
        record = calibration_record.read_calibration(path)
        fp, control = record.false_positives, record.sequential
        planted = ", ".join(
            f"{100 * power.level:+.2g}%{' (margin + 2 MDE)' if power.target else ''} "
            f"{power.slower.count}/{power.slower.total}"
            for power in record.planted
        )
        cells = (
            record.device,
            f"{record.step}, {record.shape}, {record.metric} time",
            f"{fp.rejections.count}/{fp.rejections.total} ({fp.band_lo} to {fp.band_hi})",
            ", ".join(f"{count} {label}" for label, count in sorted(fp.verdicts.items())),
            planted or "–",
            f"{control.rejections.count}/{control.rejections.total}" if control else "–",
            _trusted(record),
            f"{record.created[:10]}, {record.protocol.get('seed', '–')}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else "No device has been calibrated yet."
