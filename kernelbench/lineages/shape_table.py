"""The step × shape table of a lineage's README: what has been shown right, on which executor.

It says only what the committed ``results/outcomes.json`` and run records say, so that every reader
can derive it. Figures of time are in the tables beside the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelbench.base.table import Row, markdown
from kernelbench.executors.targets import executors
from kernelbench.project.context import Context
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.registry import Lineage, Step
from kernelbench.records.outcomes import RunOutcome
from kernelbench.records.run_record import FAILED, UNKNOWN

SHAPES_MARKERS = ("<!-- shapes:begin -->", "<!-- shapes:end -->")

_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"

#: The newest outcome per setting (input class, number of SMs, …), by step, shape and executor.
Rows = Mapping[tuple[str, str, str], Sequence[RunOutcome]]


def outcome_rows(outcomes: Iterable[RunOutcome]) -> Rows:
    """The outcomes that a table is made from, those of the oldest run first."""
    found: dict[tuple[str, str, str], list[RunOutcome]] = {}
    for each in outcomes:
        found.setdefault((each.step, each.shape, each.executor), []).append(each)
    return found


def shape_table(
    steps: Sequence[Step], shapes: Mapping[str, Any], problem: Problem, rows: Rows
) -> str:
    """Markdown: a row per step that works, a column per shape, footnotes for what cannot run."""
    working = [step for step in steps if step.status == "works"]
    notes: dict[str, int] = {}
    body: list[Row] = []
    for step in working:
        cells = {
            name: _cell(step, name, shape, problem, rows, notes) for name, shape in shapes.items()
        }
        body.append({"step": step.name, **cells})
    lines = [_legend(problem), "", *markdown(body or [dict.fromkeys(("step", *shapes), "")])]
    if notes:
        lines += ["", *(f"{_superscript(n)} {text}  " for text, n in notes.items())]
        lines[-1] = lines[-1].rstrip()
    return "\n".join(lines)


def table_of(context: Context, lineage: Lineage, rows: Rows) -> str:
    """The table of one lineage.

    Raises:
        UsageError: If the shapes cannot be read.
    """
    problem = load_problem(lineage)
    shapes = context.shapes.of(problem.name)
    return shape_table(context.lineages.steps_of(lineage.name), shapes, problem, rows)


def _legend(problem: Problem) -> str:
    classes = ", ".join(problem.input_classes)
    return (
        f"What the newest saved run says: ✓ right on every input class ({classes}), ✗ not right, "
        "(in brackets) right where it was run, which was not on every class; – beyond the step's "
        "limits; empty: not run. G: a GPU of the step's own arch, S: `gpu-soft` on a Hopper GPU, "
        "E: the emulator, with every number of SMs that was run, T: torch on the CPU."
    )


def _cell(
    step: Step, name: str, shape: Any, problem: Problem, rows: Rows, notes: dict[str, int]
) -> str:
    reason = problem.broken_limit(shape, step.limits)
    if reason:
        return _footnote(reason, notes)
    good, partial, bad = [], [], []
    skipped = ""
    for executor in executors():
        letter = executor.letter
        found = rows.get((step.name, name, executor.name), ())
        ran = [row for row in found if row.status not in UNKNOWN]
        if found and not ran:
            skipped = found[0].reason
        elif any(row.status in FAILED for row in ran):
            bad.append(letter)
        elif ran and {row.inputs for row in ran} >= set(problem.input_classes):
            good.append(letter)
        elif ran:
            partial.append(letter)
    if skipped and not (good or partial or bad):
        return _footnote(skipped, notes)
    parts = ["✓" + "".join(good)] if good else []
    parts += [f"({''.join(partial)})"] if partial else []
    parts += ["✗" + "".join(bad)] if bad else []
    return " ".join(parts)


def _footnote(text: str, notes: dict[str, int]) -> str:
    return "–" + _superscript(notes.setdefault(text, len(notes) + 1))


def _superscript(number: int) -> str:
    return "".join(_SUPERSCRIPTS[int(digit)] for digit in str(number))
