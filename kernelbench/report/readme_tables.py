"""The generated tables inside the project's and the lineages' READMEs, and those of its results.

``python -m kernelbench.report.readme_tables`` brings every README of the project up to date, and
before them ``results/outcomes.json`` and the tables of committed devices; ``--check`` only says
which ones are not. In a README only the text between the markers is replaced.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelbench.base.errors import KernelbenchError, UsageError
from kernelbench.base.files import write_text
from kernelbench.base.table import Row, markdown
from kernelbench.lineages.shape_table import SHAPES_MARKERS, outcome_rows, table_of
from kernelbench.lineages.tree import TreeVerdict, verdicts_between
from kernelbench.project.context import Context
from kernelbench.project.model import captions, reported_shapes
from kernelbench.project.project_file import Project, find_project
from kernelbench.project.registry import Lineage, Lineages, Step, load_lineages
from kernelbench.records import calibration_record, ledger, run_record, store, tables
from kernelbench.records.calibration_record import CalibrationRecord
from kernelbench.records.metrics import METRICS, TIMES, shown
from kernelbench.records.outcomes import (
    Outcomes,
    outcomes_text,
    path_of_outcomes,
    read_outcomes,
    with_runs,
)
from kernelbench.records.run_record import RunRecord, device_slug
from kernelbench.records.tables import Saved, fraction_cell, metric_cell

#: Marker pairs: the table of a lineage's steps, and a step's figures beside its parent's.
LINEAGE_MARKERS = ("<!-- lineage:begin -->", "<!-- lineage:end -->")
REPORTED_MARKERS = ("<!-- reported:begin -->", "<!-- reported:end -->")

#: Title of the second table of a lineage.
BESIDE_TITLE = "Variants and failed experiments"


def lineage_table(lineage: Lineage, steps: Sequence[Step]) -> str:
    """Markdown: the table of the main line, and below it that of what stands beside it."""
    beside = [step for step in steps if step.experiment]
    text = _steps_table(lineage, [step for step in steps if not step.experiment])
    if not beside:
        return text
    return f"{text}\n\n**{BESIDE_TITLE}**\n\n{_steps_table(lineage, beside)}"


def _steps_table(lineage: Lineage, steps: Sequence[Step]) -> str:
    """A caption, one row per step, and a note per step whose figures need one."""
    shapes = reported_shapes(steps)
    configured = {key for step in steps for key in step.config}
    settings = [key for key in ("tile", "stages", "warps", "grid") if key in configured]
    limited = any("nk" in step.limits for step in steps)
    rows: list[Row] = [
        {
            "step": f"[{step.name}]({step.path.relative_to(lineage.path).as_posix()}/)",
            "parent": step.parent or "–",
            "what changes": step.title,
            "status": step.status,
            **{key: _setting(step.config.get(key)) for key in settings},
            **({"N/K": step.limits.get("nk", "–")} if limited else {}),
            **_figures(step, shapes),
        }
        for step in steps
    ]
    said = captions(steps)
    lines = [*(f"Figures are {text}." for text in said), *([""] if said else [])]
    lines += markdown(rows, _headings(shapes)) if rows else []
    notes = [f"* {s.name}: {s.reported.note}" for s in steps if s.reported and s.reported.note]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def reported_table(step: Step, parent: Step | None) -> str:
    """Markdown: a step's reported figures under its parent's."""
    if step.reported is None:
        return "No figures are reported for this step."
    shown = [parent, step] if parent and parent.reported else [step]
    shapes = reported_shapes(shown)
    rows = [{"step": each.name, **_figures(each, shapes)} for each in shown]
    lines = [f"Figures are {step.reported.caption}.", "", *markdown(rows, _headings(shapes))]
    if step.reported.note:
        lines += ["", step.reported.note]
    return "\n".join(lines)


def replace_between(text: str, markers: tuple[str, str], content: str) -> str:
    """``text`` with ``content`` between the markers; unchanged where it has none.

    Raises:
        UsageError: If only one marker of the pair is there, or they are in the wrong order.
    """
    begin, end = markers
    if begin not in text and end not in text:
        return text
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise UsageError(f"marker {begin if not found else end} is missing or out of order")
    return f"{before}{begin}\n{content}\n{end}{after}"


def committed_outcomes(project: Project) -> Outcomes:
    """What the committed records and the kept outcomes show right or wrong."""
    return with_runs(read_outcomes(project.results), committed_runs(project))


def updated_results(project: Project) -> Iterator[tuple[Path, str, str]]:
    """The outcomes and the tables of devices with committed runs, as :func:`updated_readmes`."""
    files = {path_of_outcomes(project.results): outcomes_text(committed_outcomes(project))}
    for device in sorted({device_slug(run.device) for run in committed_runs(project)}):
        files |= store.derived_tables(project.results / device)
    for file, new in files.items():
        yield file, file.read_text(encoding="utf-8") if file.is_file() else "", new


def updated_readmes(project: Project, lineages: Lineages) -> Iterator[tuple[Path, str, str]]:
    """READMEs with generated parts, their texts now and up to date; UsageError at bad markers."""
    # The newest timed row per step, shape and L2 mode among committed runs on GPUs.
    rows = [
        row
        for row in tables.latest(committed_runs(project))
        if row.run.environment.kind == "cuda" and row.result.metrics
    ]
    checked = outcome_rows(committed_outcomes(project).values())
    comparisons = ledger.read_ledger(project.results)
    for readme in (project.root / "README.md", project.root / "docs" / "evidence-verdicts.md"):
        yield from _updated(readme, (CALIBRATION_MARKERS, calibration_table(project)))
    for lineage in lineages.lineages:
        steps = lineages.steps_of(lineage.name)
        readme = lineage.path / "README.md"
        parts = [
            (LINEAGE_MARKERS, lineage_table(lineage, steps)),
            (VERDICT_MARKERS, verdict_table(steps, comparisons)),
        ]
        if readme.is_file() and SHAPES_MARKERS[0] in readme.read_text(encoding="utf-8"):
            parts.append((SHAPES_MARKERS, table_of(Context(project), lineage, checked)))
        yield from _updated(readme, *parts)
        for step in steps:
            readme = step.path / "README.md"
            reported = reported_table(step, lineages.parent_of(step))
            measured = measured_table(step, rows)
            yield from _updated(readme, (REPORTED_MARKERS, reported), (RESULTS_MARKERS, measured))


def main(arguments: Sequence[str]) -> int:
    """Update the READMEs, or with ``--check`` list the stale ones; returns the exit code."""
    if list(arguments) not in ([], ["--check"]):
        raise UsageError("usage: python -m kernelbench.report.readme_tables [--check]")
    project = find_project()
    texts = (updated_results(project), updated_readmes(project, load_lineages(project)))
    stale = [(file, new) for file, old, new in itertools.chain(*texts) if new != old]
    for file, new in stale:
        if not arguments:
            write_text(file, new)
        verb = "is not up to date" if arguments else "updated"
        print(f"{file.relative_to(project.root)}: {verb}")
    return 1 if stale and arguments else 0


def _updated(file: Path, *parts: tuple[tuple[str, str], str]) -> Iterator[tuple[Path, str, str]]:
    """The file with each ``(markers, table)`` filled in, if it has any of the markers."""
    if not file.is_file():
        return
    text = new = file.read_text(encoding="utf-8")
    try:
        for markers, content in parts:
            new = replace_between(new, markers, content)
    except UsageError as error:
        raise UsageError(f"{file}: {error.message}") from error
    if any(marker in text for markers, _ in parts for marker in markers):
        yield file, text, new


def _headings(shapes: Sequence[str]) -> list[str]:
    return [f"{shape} (reported)" for shape in shapes]


def _figures(step: Step, shapes: Sequence[str]) -> Row:
    return dict(zip(_headings(shapes), step.figures(shapes), strict=True))


def _setting(value: object) -> str:
    if value is None:
        return "–"
    return "×".join(str(part) for part in value) if isinstance(value, list) else str(value)


VERDICT_MARKERS = ("<!-- verdicts:begin -->", "<!-- verdicts:end -->")


def verdict_table(steps: Sequence[Step], comparisons: Sequence[ledger.LedgerEntry]) -> str:
    """Markdown: one line per comparison of a step and its parent, device, shape and L2 mode.

    Args:
        steps: Of one lineage, in order.
        comparisons: Of any steps, oldest first; the newest of each kind counts.
    """
    groups: dict[tuple[str, ...], dict[str, TreeVerdict]] = {}
    for step in steps:
        for verdict in verdicts_between(step.parent, step.name, comparisons):
            key = (verdict.base, verdict.cand, verdict.device, verdict.shape, verdict.l2)
            groups.setdefault(key, {})[verdict.metric] = verdict
    if not groups:
        return "Nothing has been compared yet."
    devices = dict.fromkeys(f"{device}, {l2} L2" for _, _, device, _, l2 in groups)
    days = sorted(v.created[:10] for of in groups.values() for v in of.values())
    where = f"{' and '.join(devices)}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
    lines = [f"`kernelbench ab` on {where}: change of time with its 95 % interval.", ""]
    names = [m for m in METRICS if m in TIMES or any(m in of for of in groups.values())]
    rows: list[Row] = [
        {
            "comparison": f"{base} → {cand}",
            "shape": shape,
            "what changes": next(iter(verdicts.values())).why or "–",
            **{METRICS[metric].title: _cell(verdicts.get(metric)) for metric in names},
        }
        for (base, cand, _, shape, _), verdicts in groups.items()
    ]
    return "\n".join([*lines, *markdown(rows)])


def _cell(verdict: TreeVerdict | None) -> str:
    if verdict is None:
        return "–"
    if verdict.change is None or verdict.ci is None:
        return verdict.verdict
    low, high = verdict.ci
    return f"{verdict.change:+.2%} [{low:+.2%}, {high:+.2%}] {verdict.verdict}"


RESULTS_MARKERS = ("<!-- results:begin -->", "<!-- results:end -->")
CALIBRATION_MARKERS = ("<!-- calibration:begin -->", "<!-- calibration:end -->")


def committed_runs(project: Project) -> list[RunRecord]:
    """The saved runs under version control, oldest first; all outside a git checkout."""
    tracked = _tracked(project)
    runs, _ = store.load_runs(project.results)
    if tracked is None:
        return runs
    names = {run_record.id_of(Path(name)) for name in tracked}
    return [run for run in runs if run.id in names]


def _tracked(project: Project) -> set[str] | None:
    """The names of the result files under version control; None outside a git checkout."""
    command = ["git", "-C", str(project.root), "ls-files", "--", str(project.results)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return {Path(line).name for line in answer.stdout.splitlines()}


def measured_table(step: Step, rows: Sequence[Saved]) -> str:
    """Markdown: one line per device, shape and L2 mode in which the step was timed."""
    mine = [row for row in rows if row.result.step == step.name]
    if not mine:
        return "Nothing measured yet."
    names = shown(row.result for row in mine)
    lines = [
        {
            "device": row.run.device,
            "shape": row.result.shape,
            "L2": row.run.protocol.l2,
            **{METRICS[name].title: metric_cell(row.result.metrics.get(name)) for name in names},
            "of speed of light": fraction_cell(row.result.sol_us, row.result.time),
            "status": row.result.status,
            "date": row.run.created[:10],
        }
        for row in mine
    ]
    caption = "Measured with `kernelbench run`; medians in µs with the 5th–95th percentile."
    return "\n".join([caption, "", *markdown(lines, ["of speed of light"])])


def _trusted(record: CalibrationRecord) -> str:
    if record.findings():
        return f"no ({'; '.join(record.findings())})"
    return f"partly ({'; '.join(record.gaps())})" if record.evidence == "partial" else "yes"


def calibration_table(project: Project) -> str:
    """Markdown: one line per calibration of a GPU, every attempt, oldest first."""
    tracked = _tracked(project)
    rows: list[Row] = []
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
        verdicts = (f"{count} {label}" for label, count in sorted(fp.verdicts.items()))
        rejected = f"{fp.rejections.count}/{fp.rejections.total} ({fp.band_lo} to {fp.band_hi})"
        welch = f"{control.rejections.count}/{control.rejections.total}" if control else "–"
        rows.append(
            {
                "device": record.device,
                "kernel, shape": f"{record.step}, {record.shape}, {record.metric} time",
                "A/A rejected at α = .05 (97 % band)": rejected,
                "A/A verdicts": ", ".join(verdicts),
                "planted, found SLOWER": planted or "–",
                "Welch on A…A B…B": welch,
                "trusted": _trusted(record),
                "date, seed": f"{record.created[:10]}, {record.protocol.get('seed', '–')}",
            }
        )
    return "\n".join(markdown(rows)) if rows else "No device has been calibrated yet."


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KernelbenchError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
