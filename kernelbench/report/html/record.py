"""What a report holds: the JSON contract of ``kernelbench report --json``."""

from __future__ import annotations

import contextlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelbench.emulator.findings import Waiting
from kernelbench.emulator.memory_map import MemoryMap
from kernelbench.lineages.source_diff import SourceDiff
from kernelbench.lineages.tree import Checked, Measured
from kernelbench.predict.api import Bubble
from kernelbench.predict.schedule import Schedule
from kernelbench.project.model import Kind, Repair, Reported, StepStatus
from kernelbench.records.calibration_record import CalibrationRecord
from kernelbench.records.ledger import LedgerEntry
from kernelbench.report.ladder_plot import Ladder
from kernelbench.report.roofline import LineageReport
from kernelbench.report.sweep_plot import Sweep

PAGE_SCHEMA: Literal["kernelbench.report/1"] = "kernelbench.report/1"


@dataclass(frozen=True)
class Distribution:
    """A histogram: ``counts`` of values in bins of one width from ``low`` to ``high``."""

    low: float
    high: float
    counts: tuple[int, ...]
    total: int  #: Number of values.
    median: float  #: Theirs.
    sessions: tuple[float, ...] = ()  #: The median of each session that the values are from.


@dataclass(frozen=True)
class ComparisonPage:
    """One line of the ledger."""

    entry: LedgerEntry
    lineage: str  #: Of the candidate; empty if no lineage has it.
    #: Paired differences of blocks, as fractions of time, where samples are kept.
    differences: Distribution | None


@dataclass(frozen=True)
class StepTimePage:
    """A measured time."""

    measured: Measured
    of_sol: float | None  #: The speed of light as a fraction of it, if known.
    of_others: bool  #: The step's sources were others then.


@dataclass(frozen=True)
class KernelPage:
    """What a kernel was last compiled to, as the code lock has it."""

    name: str
    arch: str
    nvcc: str
    registers: int
    bytes: int


@dataclass(frozen=True)
class StepPage:
    """One step."""

    name: str
    parent: str | None
    prefix: str  #: The lines that draw the branch that it is on.
    title: str
    status: StepStatus
    kind: Kind
    arch: str
    experiment: bool
    technique: str
    hypothesis: str
    #: The prose of its README, a block each, as Markdown without generated tables.
    lesson: tuple[str, ...]
    config: dict[str, str]
    repaired: tuple[Repair, ...]
    reported: Reported | None
    times: tuple[StepTimePage, ...]
    checked: tuple[Checked, ...]
    last_check: str
    kernels: tuple[KernelPage, ...]
    #: Against its parent; None without one, or where ``not_compared`` says why.
    source: SourceDiff | None
    diff_lines: int  #: Lines of the diff's text.
    not_compared: str
    comparisons: tuple[int, ...]  #: Places in the report's list of comparisons with its parent.


@dataclass(frozen=True)
class FastestPage:
    """The fastest step and peer on a shape: of runs of their own, which is no comparison."""

    device: str
    shape: str
    metric: str
    step: str
    us: float
    low: float
    high: float
    of_sol: float | None
    peer: str
    peer_us: float | None
    ratio: float | None  #: The peer's time over the step's; None without a peer.


@dataclass(frozen=True)
class BarPage:
    """A step of the main line in its lineage's head, with the newest comparison with its parent."""

    step: str
    parent: str
    us: float
    verdict: str  #: Empty where the two were not compared.
    change: float | None
    ci: tuple[float, float] | None


@dataclass(frozen=True)
class BehindPage:
    """A shape on which a peer is ahead: of runs of their own."""

    shape: str
    peer: str
    ratio: float


@dataclass(frozen=True)
class HeadPage:
    """What a lineage comes to on its first shape."""

    device: str
    shape: str
    metric: str
    reported: bool  #: The figures are those of the lineage's source: nobody measured them here.
    step: str
    us: float
    first: str
    times_first: float  #: The time of the first step over the fastest one's.
    bars: tuple[BarPage, ...]
    #: ``low``, ``high``: The range of nine in ten repetitions.
    low: float | None = None
    high: float | None = None
    of_sol: float | None = None
    peer: str = ""
    times_peer: float | None = None  #: That of the best peer of the same run.
    verdict: str = ""
    change: float | None = None
    ci: tuple[float, float] | None = None
    #: Base and candidate of the newest comparison that has the step, or else one of the ties; the
    #: verdict, the change and its interval are that comparison's.
    compared_with: tuple[str, str] | None = None
    ties: tuple[str, ...] = ()  #: Other steps whose median lies in that range.
    ahead: int = 0  #: Shapes on which no peer is ahead, of those that were ``compared``.
    compared: int = 0
    behind: tuple[BehindPage, ...] = ()


@dataclass(frozen=True)
class BubblePage:
    """A bubble of a predicted schedule; it would save the part ``saves`` if it were free."""

    bubble: Bubble
    saves: float


@dataclass(frozen=True)
class CausePage:
    """A cause's part of the predicted critical path, in us, and of the parent's."""

    cause: str
    parent_us: float | None
    us: float


@dataclass(frozen=True)
class PredictedPage:
    """A step's predicted schedule on a shape: nobody measured any of it."""

    step: str
    #: The parent's, if the results have one of the same costs, and the step's. The last is not
    #: drawn where another page draws it as a parent's.
    schedules: tuple[Schedule, ...]
    bubbles: tuple[BubblePage, ...]
    #: Bubbles of the parent's list that the step has removed, the largest first.
    removed: tuple[BubblePage, ...]
    causes: tuple[CausePage, ...]
    stale: str  #: What has changed since, and was not predicted anew.
    drawn: bool = True


@dataclass(frozen=True)
class LineagePage:
    """One lineage; ``peers_of`` is the lineage that it is a peer of, if it is one."""

    name: str
    title: str
    problem: str
    source: str
    peers_of: str
    captions: tuple[str, ...]
    steps: tuple[StepPage, ...]
    head: HeadPage | None
    fastest: tuple[FastestPage, ...]
    ladders: tuple[Ladder, ...]
    sweeps: tuple[Sweep, ...]
    rooflines: tuple[LineageReport, ...]
    peers: tuple[str, ...]
    predicted: tuple[PredictedPage, ...] = ()


@dataclass(frozen=True)
class CalibrationPage:
    """A calibration, what speaks against it, and what it lacks."""

    record: CalibrationRecord
    evidence: Literal["full", "partial"]
    findings: tuple[str, ...]
    gaps: tuple[str, ...]
    p_values: Distribution | None


@dataclass(frozen=True)
class FindingPage:
    """A finding of the newest check of a step, with the shape that showed it first."""

    identity: str
    kind: str
    text: str
    shape: str
    schedules: int
    allowed: str
    waits: tuple[Waiting, ...] = ()  #: Who waits for what, if it is a hang.


@dataclass(frozen=True)
class CheckPage:
    """The newest check of a step."""

    step: str
    created: str
    statuses: dict[str, int]
    schedules: int
    findings: tuple[FindingPage, ...]
    not_reached: tuple[str, ...]
    memory: tuple[MemoryMap, ...] = ()  #: What its kernels have of shared and tensor memory.


@dataclass(frozen=True)
class MarkdownTable:
    """A table of another document of the project, its cells as they stand there."""

    heading: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Totals:
    """How much the project has."""

    lineages: int
    steps: int
    runs: int
    rows: int
    devices: tuple[str, ...]
    verdicts: dict[str, int]
    first: str
    last: str


@dataclass(frozen=True)
class ReportRecord:
    """Everything that a report shows."""

    schema: Literal["kernelbench.report/1"]
    created: str
    version: str
    project: str
    totals: Totals
    lineages: tuple[LineagePage, ...]
    comparisons: tuple[ComparisonPage, ...]
    calibrations: tuple[CalibrationPage, ...]
    checks: tuple[CheckPage, ...]
    mutations_file: str
    #: Tables of the checker's trial with mutants, from ``mutations_file``.
    mutations: tuple[MarkdownTable, ...]
    notes: tuple[str, ...]  #: What could not be read, a line each.


#: Where a project that plants mutants keeps what became of them, below its root.
MUTATIONS = "tools/mutations/table.md"
_GENERATED = re.compile(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", re.DOTALL)


def project_name(root: Path) -> str:
    """As its pyproject.toml has it, or the folder's."""
    name = None
    with contextlib.suppress(OSError, ValueError):
        table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        name = table.get("project", {}).get("name")
    return name if isinstance(name, str) else root.name


def lesson_of(folder: Path) -> tuple[str, ...]:
    """The blocks of prose in a step's README, without its title and what is generated."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    blocks = re.split(r"\n\s*\n", _GENERATED.sub("", text))
    return tuple(
        block.strip()
        for block in blocks
        if block.strip() and not block.lstrip().startswith(("# ", "|", "!["))
    )


def tables_of(file: Path) -> tuple[MarkdownTable, ...]:
    """The tables of a Markdown file, each with the heading above it; none if there is no file."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    found: list[MarkdownTable] = []
    heading, rows = "", list[tuple[str, ...]]()
    for line in [*lines, ""]:
        if line.startswith("|"):
            rows.append(tuple(cell.strip() for cell in line.strip().strip("|").split("|")))
            continue
        if len(rows) > 2:
            found.append(MarkdownTable(heading, rows[0], tuple(rows[2:])))
        rows = []
        if line.startswith("#"):
            heading = line.lstrip("# ")
    return tuple(found)
