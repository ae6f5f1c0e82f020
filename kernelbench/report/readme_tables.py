"""The generated tables inside the project's and the lineages' READMEs, and those of its results.

``python -m kernelbench.report.readme_tables`` brings every README of the project up to date, and
before them ``results/outcomes.json`` and the tables of committed devices; ``--check`` only says
which ones are not. In a README only the text between the markers is replaced.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelbench.base.errors import KernelbenchError, UsageError
from kernelbench.base.files import write_text
from kernelbench.base.markdown import table
from kernelbench.lineages.shape_table import SHAPES_MARKERS, outcome_rows, table_of
from kernelbench.project.context import Context
from kernelbench.project.project_file import Project, find_project
from kernelbench.project.registry import Lineage, Lineages, Step, load_lineages
from kernelbench.project.reported_figures import caption, figures, shapes_of
from kernelbench.records import ledger, store
from kernelbench.records.outcomes import (
    Outcomes,
    outcomes_text,
    path_of_outcomes,
    read_outcomes,
    with_runs,
)
from kernelbench.records.run_record import device_slug
from kernelbench.report.measured_table import (
    CALIBRATION_MARKERS,
    RESULTS_MARKERS,
    calibration_table,
    committed_rows,
    committed_runs,
    measured_table,
)
from kernelbench.report.verdict_table import VERDICT_MARKERS, verdict_table

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
    shapes = shapes_of(steps)
    settings = [key for key in ("tile", "stages", "warps", "grid") if _any_setting(steps, key)]
    limits = [("nk", "N/K")] if any("nk" in step.limits for step in steps) else []
    head = ["step", "parent", "what changes", "status", *settings]
    head += [title for _, title in limits] + [f"{shape} (reported)" for shape in shapes]
    rows = []
    for step in steps:
        link = f"[{step.name}]({step.path.relative_to(lineage.path).as_posix()}/)"
        row = [link, step.parent or "–", step.title, step.status]
        row += [_setting(step.config.get(key)) for key in settings]
        row += [str(step.limits.get(key, "–")) for key, _ in limits]
        rows.append(row + figures(step, shapes))
    lines = [f"Figures are {text}." for text in _captions(steps)]
    lines += ["", *table(head, rows, _last(head, shapes))] if lines else table(head, rows)
    notes = [
        f"* {step.name}: {step.reported.note}"
        for step in steps
        if step.reported and step.reported.note
    ]
    if notes:
        lines += ["", *notes]
    return "\n".join(lines)


def reported_table(step: Step, parent: Step | None) -> str:
    """Markdown: a step's reported figures under its parent's."""
    if step.reported is None:
        return "No figures are reported for this step."
    shown = [parent, step] if parent and parent.reported else [step]
    shapes = shapes_of(shown)
    head = ["step", *(f"{shape} (reported)" for shape in shapes)]
    rows = [[each.name, *figures(each, shapes)] for each in shown]
    lines = [f"Figures are {caption(step.reported)}.", ""]
    lines += table(head, rows, _last(head, shapes))
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
        folder = project.results / device
        files |= store.derived_tables(folder)
    for file, new in files.items():
        yield file, file.read_text(encoding="utf-8") if file.is_file() else "", new


def updated_readmes(project: Project, lineages: Lineages) -> Iterator[tuple[Path, str, str]]:
    """Every README with a generated part: (file, its text now, its text up to date).

    Raises:
        UsageError: If a README has an unpaired marker; names the file.
    """
    rows = committed_rows(project)
    checked = outcome_rows(committed_outcomes(project).values())
    comparisons = ledger.read_ledger(project.results)
    readme = project.root / "README.md"
    yield from _updated(readme, (CALIBRATION_MARKERS, calibration_table(project)))
    for lineage in lineages.lineages:
        steps = lineages.steps_of(lineage.name)
        readme = lineage.path / "README.md"
        parts = [
            (LINEAGE_MARKERS, lineage_table(lineage, steps)),
            (VERDICT_MARKERS, verdict_table(steps, comparisons)),
        ]
        if _has(readme, SHAPES_MARKERS):
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
    stale = [
        (file, new)
        for file, old, new in itertools.chain(
            updated_results(project), updated_readmes(project, load_lineages(project))
        )
        if new != old
    ]
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
        for markers, table in parts:
            new = replace_between(new, markers, table)
    except UsageError as error:
        raise UsageError(f"{file}: {error.message}") from error
    if any(marker in text for markers, _ in parts for marker in markers):
        yield file, text, new


def _has(file: Path, markers: tuple[str, str]) -> bool:
    return file.is_file() and markers[0] in file.read_text(encoding="utf-8")


def _captions(steps: Sequence[Step]) -> list[str]:
    return list(dict.fromkeys(caption(step.reported) for step in steps if step.reported))


def _last(head: Sequence[str], shapes: Sequence[str]) -> range:
    """The columns of figures, one per shape."""
    return range(len(head) - len(shapes), len(head))


def _any_setting(steps: Sequence[Step], key: str) -> bool:
    return any(key in step.config for step in steps)


def _setting(value: object) -> str:
    if value is None:
        return "–"
    return "×".join(str(part) for part in value) if isinstance(value, list) else str(value)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KernelbenchError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
