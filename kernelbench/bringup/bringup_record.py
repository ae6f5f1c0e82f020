"""What ``kernelbench bringup`` leaves behind: one record as JSON, and the same as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernelbench.base import files, json_file, schema
from kernelbench.base.errors import ExitCode
from kernelbench.base.table import markdown
from kernelbench.project.model import METRIC_NAMES, UNITS, Step
from kernelbench.records.metrics import COLUMNS, Metric
from kernelbench.records.run_record import Environment, Result

BRINGUP_SCHEMA = "kernelbench.bringup/1"

StageOutcome = Literal[
    "PASS", "DIFFERS", "FAILED", "TIMED OUT", "CONFIRMED", "REFUTED", "NOT RUN", "NOT AVAILABLE",
    "NOT JUDGED", "ok", "warn", "missing",
]  # fmt: skip
#: What makes the command leave with "incorrect". A refuted point is an answer, not a failure.
BAD: tuple[StageOutcome, ...] = ("DIFFERS", "FAILED", "TIMED OUT")
#: What is said of whatever was timed while the GPU had other work.
SHARED = "other processes used the GPU"


@dataclass(frozen=True)
class BringupLine:
    """One finding: of a function, a point, a step or the machine."""

    name: str
    outcome: StageOutcome
    detail: str = ""
    shared: bool = False  #: Whether it is of a time when other processes used the GPU.

    @property
    def text(self) -> str:
        """The detail, and that others used the GPU if they did."""
        return f"{self.detail}; {SHARED}" if self.shared else self.detail


@dataclass(frozen=True)
class Stage:
    """One stage with its lines."""

    name: str
    title: str
    #: ``done``; ``stopped``, by Ctrl-C; ``failed``, with the reason; or ``not run``.
    state: Literal["done", "stopped", "failed", "not run"]
    reason: str = ""
    seconds: float = 0.0
    lines: tuple[BringupLine, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A measured time beside the figure that the step's source reports."""

    step: str
    shape: str
    #: By metric, measured here; ``call_us`` and ``device_us`` in JSON.
    medians: Mapping[Metric, float] = field(metadata={schema.COLUMNS: COLUMNS})
    reported: str  #: The source's figure with its unit, metric and device; empty if it has none.
    #: Whether other processes used the GPU meanwhile: not the step's own time, then.
    shared: bool = False

    @property
    def times(self) -> tuple[str, str]:
        """Call and device time for people; with a star where :data:`SHARED` holds."""
        star = "*" if self.shared else ""
        found = (self.medians.get("call"), self.medians.get("device"))
        call, device = ("–" if us is None else f"{us:.1f}{star}" for us in found)
        return call, device


@dataclass(frozen=True)
class BringupRecord:
    """The JSON contract of ``kernelbench bringup``."""

    schema: str
    created: str
    command: str
    version: str
    device: str
    arch: str  #: Of the GPU, such as ``sm_90``.
    seed: int
    quick: bool
    complete: bool  #: Whether every stage has ended by itself.
    stages: tuple[Stage, ...]
    figures: tuple[Figure, ...] = ()
    #: Rows of every step, shape and input class, as those of ``kernelbench run``.
    results: tuple[Result, ...] = ()
    environment: Environment | None = None


def figure(step: Step, row: Result, *, shared: bool) -> Figure:
    """A row's times beside what is reported for its shape."""
    reported = step.reported
    text = ""
    if reported is not None and row.shape in reported.values:
        text = (
            f"{reported.values[row.shape]:g} {UNITS[reported.unit]}, "
            f"{METRIC_NAMES[reported.metric]}, reported on {reported.device}"
        )
    medians = {name: summary.median for name, summary in row.metrics.items()}
    return Figure(row.step, row.shape, medians, text, shared)


def footnote(record: BringupRecord) -> str:
    """What the stars of :attr:`Figure.times` mean; empty if there are none."""
    return f"*: {SHARED}" if any(figure.shared for figure in record.figures) else ""


def summary(stage: Stage) -> str:
    """How many lines ended how, in one line."""
    if stage.state in ("failed", "not run"):
        return f"{stage.state}: {stage.reason}"
    counts = Counter(line.outcome for line in stage.lines)
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "nothing to do"
    if stage.state == "stopped":
        text += ", then stopped"
    return f"{text}; {SHARED}" if any(line.shared for line in stage.lines) else text


def bringup_exit_code(record: BringupRecord) -> ExitCode:
    """What the command leaves with: what is wrong outweighs what could not be run or judged."""
    if any(line.outcome in BAD for stage in record.stages for line in stage.lines):
        return ExitCode.INCORRECT
    open_still = (
        line.outcome == "NOT JUDGED" or (line.outcome == "NOT RUN" and stage.name == "functions")
        for stage in record.stages
        for line in stage.lines
    )
    if any(stage.state == "failed" for stage in record.stages) or any(open_still):
        return ExitCode.ENVIRONMENT
    return ExitCode.PASS


def save_bringup(path: Path, record: BringupRecord) -> None:
    """Write the record, and the same as Markdown beside it; EnvironmentProblem if that fails."""
    json_file.write_json(path, record)
    files.write_text(path.with_suffix(".md"), bringup_markdown(record))


def bringup_markdown(record: BringupRecord) -> str:
    """The record as a Markdown report."""
    lines = [
        f"# Bringup on {record.device} ({record.arch})",
        "",
        f"`{record.command}`, kernelbench {record.version}, {record.created}, seed {record.seed}"
        + ("" if record.complete else "; **not complete**"),
        "",
    ]
    lines += markdown([
        {"stage": s.title, "state": s.state, "found": summary(s), "s": f"{s.seconds:.0f}"}
        for s in record.stages
    ])  # fmt: skip
    for stage in record.stages:
        if stage.lines:
            rows = [{"": f.name, "outcome": f.outcome, "detail": f.text} for f in stage.lines]
            lines += ["", f"## {stage.title}", "", *markdown(rows)]
    if record.figures:
        head = ("step", "shape", "call µs", "device µs", "reported, not measured here")
        figures = [
            dict(zip(head, (f.step, f.shape, *f.times, f.reported or "–"), strict=True))
            for f in record.figures
        ]
        lines += ["", f"## Times measured on {record.device}", "", *markdown(figures)]
        if note := footnote(record):
            lines += ["", note]
    return "\n".join(lines) + "\n"
