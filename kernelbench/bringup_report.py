"""What ``kernelbench bringup`` leaves behind: one record as JSON, and the same as Markdown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelbench import records
from kernelbench.errors import ExitCode
from kernelbench.lineage import Step
from kernelbench.lineage_table import METRIC_NAMES, UNITS
from kernelbench.markdown import table
from kernelbench.records import Environment, Result

BRINGUP_SCHEMA = "kernelbench.bringup/1"

Outcome = Literal[
    "PASS", "DIFFERS", "FAILED", "TIMED OUT", "CONFIRMED", "REFUTED", "NOT RUN", "NOT AVAILABLE",
    "ok", "warn", "missing",
]  # fmt: skip
#: What makes the command leave with "incorrect". A refuted point is an answer, not a failure.
BAD: tuple[Outcome, ...] = ("DIFFERS", "FAILED", "TIMED OUT")


@dataclass(frozen=True)
class Line:
    """One finding: of a function, a point, a step or the machine."""

    name: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Stage:
    """One stage with its lines.

    Attributes:
        state: ``done``; ``stopped``, by Ctrl-C; ``failed``, with the reason; or ``not run``.
    """

    name: str
    title: str
    state: Literal["done", "stopped", "failed", "not run"]
    reason: str = ""
    seconds: float = 0.0
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A measured time beside the figure that the step's source reports.

    Attributes:
        call_us, device_us: Medians in microseconds, measured here.
        reported: The source's figure with its unit, metric and device; empty if it has none.
    """

    step: str
    shape: str
    call_us: float | None
    device_us: float | None
    reported: str


@dataclass(frozen=True)
class BringupRecord:
    """The JSON contract of ``kernelbench bringup``.

    Attributes:
        arch: Of the GPU, such as ``sm_90``.
        complete: Whether every stage has ended by itself.
        results: Rows of every step, shape and input class, as those of ``kernelbench run``.
    """

    schema: str
    created: str
    command: str
    version: str
    device: str
    arch: str
    seed: int
    quick: bool
    complete: bool
    stages: tuple[Stage, ...]
    figures: tuple[Figure, ...] = ()
    results: tuple[Result, ...] = ()
    environment: Environment | None = None


def figure(step: Step, row: Result) -> Figure:
    """A row's times beside what is reported for its shape."""
    reported = step.reported
    text = ""
    if reported is not None and row.shape in reported.values:
        text = (
            f"{reported.values[row.shape]:g} {UNITS[reported.unit]}, "
            f"{METRIC_NAMES[reported.metric]}, reported on {reported.device}"
        )
    call, device = row.call_us, row.device_us
    return Figure(
        row.step, row.shape, call.median if call else None, device.median if device else None, text
    )


def summary(stage: Stage) -> str:
    """How many lines ended how, in one line."""
    if stage.state in ("failed", "not run"):
        return f"{stage.state}: {stage.reason}"
    counts = Counter(line.outcome for line in stage.lines)
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "nothing to do"
    return f"{text}, then stopped" if stage.state == "stopped" else text


def exit_code(record: BringupRecord) -> ExitCode:
    """What the command leaves with: what is wrong outweighs what could not be run."""
    if any(line.outcome in BAD for stage in record.stages for line in stage.lines):
        return ExitCode.INCORRECT
    not_run = (
        line.outcome == "NOT RUN"
        for stage in record.stages
        for line in stage.lines
        if stage.name == "functions"
    )
    if any(stage.state == "failed" for stage in record.stages) or any(not_run):
        return ExitCode.ENVIRONMENT
    return ExitCode.PASS


def save(path: Path, record: BringupRecord) -> None:
    """Write the record, and beside it the same as Markdown.

    Raises:
        EnvironmentProblem: If it cannot be written.
    """
    records.write_json(path, record)
    records.write_text(path.with_suffix(".md"), markdown(record))


def markdown(record: BringupRecord) -> str:
    """The record for people."""
    lines = [
        f"# Bringup on {record.device} ({record.arch})",
        "",
        f"`{record.command}`, kernelbench {record.version}, {record.created}, seed {record.seed}"
        + ("" if record.complete else "; **not complete**"),
        "",
        *table(
            ("stage", "state", "found", "s"),
            [(s.title, s.state, summary(s), f"{s.seconds:.0f}") for s in record.stages],
        ),
    ]
    for stage in record.stages:
        if stage.lines:
            rows = [(line.name, line.outcome, line.detail) for line in stage.lines]
            lines += ["", f"## {stage.title}", "", *table(("", "outcome", "detail"), rows)]
    if record.figures:
        figures = [
            (f.step, f.shape, _us(f.call_us), _us(f.device_us), f.reported or "–")
            for f in record.figures
        ]
        head = ("step", "shape", "call µs", "device µs", "reported, not measured here")
        lines += ["", f"## Times measured on {record.device}", "", *table(head, figures)]
    return "\n".join(lines) + "\n"


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
