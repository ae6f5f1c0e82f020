"""A lineage as a tree, with what is known of each step: reported, measured, checked, compared.

Times come from saved runs on a GPU of the step's own kind only: what an emulator or ``gpu-soft``
ran has no time. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelbench.base.errors import UsageError
from kernelbench.checks.report import LastCheck
from kernelbench.executors.targets import device_timed
from kernelbench.lineages.shape_table import outcome_rows
from kernelbench.project.model import captions, reported_shapes
from kernelbench.project.registry import Lineage, Lineages, Reported, Step, StepStatus
from kernelbench.records import ledger
from kernelbench.records.metrics import Metric, Summary
from kernelbench.records.outcomes import RunOutcome, Setting, with_runs
from kernelbench.records.run_record import FAILED, UNKNOWN, RunRecord

SCHEMA: Literal["kernelbench.lineage/1"] = "kernelbench.lineage/1"


@dataclass(frozen=True)
class Measured:
    """The newest time of a step on one device, shape and L2 mode."""

    device: str
    shape: str
    l2: str
    metric: Metric
    time: Summary  #: In microseconds; ``metric`` says of what.
    sol_us: float | None  #: Speed of light of the shape on the device; None if unknown.
    run: str  #: Identifier of the saved run.
    created: str
    source_sha: str = ""  #: Of the step's sources then; empty if the record does not say.


@dataclass(frozen=True)
class Checked:
    """On which shapes the newest runs on an executor were right, and on which not."""

    executor: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class TreeVerdict:
    """The newest comparison of two steps on one device, shape, metric and L2 mode."""

    base: str
    cand: str
    device: str
    shape: str
    metric: str
    l2: str
    verdict: str  #: On ``cand``, against ``base``.
    change: float | None  #: Of time, as a fraction; None where nothing was measured.
    ci: tuple[float, float] | None
    why: str
    created: str


@dataclass(frozen=True)
class Node:
    """One step of the tree."""

    step: str
    parent: str | None
    prefix: str  #: The lines that draw the branch that it is on; empty on the trunk.
    title: str
    status: StepStatus
    arch: str
    experiment: bool  #: Whether it is a variant or a failed experiment.
    base: str | None  #: Name of the step whose files it shares; None for a step of its own.
    reported: Reported | None
    measured: tuple[Measured, ...]
    checked: tuple[Checked, ...]
    verdicts: tuple[TreeVerdict, ...]
    last_check: str = ""  #: What the newest `check` found, in words; empty if there was none.


@dataclass(frozen=True)
class Tree:
    """One lineage."""

    lineage: str
    title: str
    shapes: tuple[str, ...]  #: Those to show.
    devices: tuple[str, ...]  #: Those with times of them.
    captions: tuple[str, ...]  #: What the reported figures are, and where they come from.
    nodes: tuple[Node, ...]  #: In the order in which the tree is drawn.


@dataclass(frozen=True)
class TreeRecord:
    """What ``kernelbench lineage --json`` gives."""

    schema: Literal["kernelbench.lineage/1"]
    lineages: tuple[Tree, ...]


def trees(
    lineages: Lineages,
    chosen: Sequence[Lineage],
    runs: Iterable[RunRecord],
    comparisons: Sequence[ledger.LedgerEntry],
    *,
    outcomes: Mapping[Setting, RunOutcome] | None = None,
    checks: Mapping[str, LastCheck] | None = None,
    shapes: Sequence[str] = (),
    device: str | None = None,
) -> tuple[Tree, ...]:
    """The trees of lineages.

    Args:
        runs: Saved runs, oldest first; ``comparisons``: the ledger, likewise.
        outcomes: What is known of runs that are not among them.
        checks: The newest check by step.
        shapes: The shapes to show; those with reported figures if there are none; failing
            these, those that were timed or compared.
        device: Only devices whose name contains this, in any case.

    Raises:
        UsageError: If no saved run or comparison is of such a device, or nothing of a shape.
    """
    runs = list(runs)
    shown = [*with_runs(outcomes or {}, runs).values()]
    if device is not None:
        known = {run.device for run in runs} | {entry.device for entry in comparisons}
        known |= {each.device for each in shown}
        if not any(_fits(name, device) for name in known):
            raise UsageError(
                f"nothing was measured on a device like {device!r}",
                f"known: {', '.join(sorted(known))}" if known else "`kernelbench run` saves runs",
            )
        runs = [run for run in runs if _fits(run.device, device)]
        comparisons = [entry for entry in comparisons if _fits(entry.device, device)]
        shown = [each for each in shown if _fits(each.device, device)]
    known_of = (times_of(runs), _checked(shown), checks or {}, comparisons)
    found = tuple(
        _tree(lineage, lineages.steps_of(lineage.name), *known_of, shapes) for lineage in chosen
    )
    for shape in shapes:
        if not any(shape in tree.shapes for tree in found):
            raise UsageError(
                f"nothing is reported, measured or compared for shape {shape!r}",
                "`kernelbench show` lists what was measured",
            )
    return found


def outline(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    """The steps in the order of the tree, each with the lines that draw its branch.

    Of a step's children the one that leads furthest goes on in its column, as a history does; the
    others branch off before it.
    """
    children: dict[str | None, list[Step]] = {}
    names = {step.name for step in steps}
    for step in steps:
        # The parent of a project's first step may be one that ships.
        children.setdefault(step.parent if step.parent in names else None, []).append(step)
    return [line for root in children.get(None, ()) for line in _drawn(root, children, "", "")]


def _drawn(
    step: Step, children: dict[str | None, list[Step]], first: str, rest: str
) -> Iterator[tuple[str, Step]]:
    yield first, step
    below = children.get(step.name, [])
    following = [child for child in below if not child.experiment]
    trunk = max(following, key=lambda child: _height(child, children), default=None)
    branches = [child for child in below if child is not trunk]
    for child in branches:
        last = trunk is None and child is branches[-1]
        corner, bar = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _drawn(child, children, rest + corner, rest + bar)
    if trunk is not None:
        yield from _drawn(trunk, children, rest, rest)


def _height(step: Step, children: dict[str | None, list[Step]]) -> int:
    below = [child for child in children.get(step.name, ()) if not child.experiment]
    return 1 + max((_height(child, children) for child in below), default=0)


def _tree(
    lineage: Lineage,
    steps: Sequence[Step],
    times: dict[str, list[Measured]],
    checked: dict[str, list[Checked]],
    checks: Mapping[str, LastCheck],
    comparisons: Sequence[ledger.LedgerEntry],
    shapes: Sequence[str],
) -> Tree:
    known = dict.fromkeys(
        reported_shapes(steps)
        + [time.shape for step in steps for time in times.get(step.name, ())]
        + [entry.shape for entry in comparisons if any(s.name == entry.cand.step for s in steps)]
    )
    shown = [shape for shape in shapes if shape in known] if shapes else reported_shapes(steps)
    shown = shown or list(() if shapes else known)
    nodes = tuple(
        Node(
            step=step.name,
            parent=step.parent,
            prefix=prefix,
            title=step.title,
            status=step.status,
            arch=step.arch,
            experiment=step.experiment,
            base=step.base.name if step.base else None,
            reported=step.reported,
            measured=tuple(times.get(step.name, ())),
            checked=tuple(checked.get(step.name, ())),
            verdicts=verdicts_between(step.parent, step.name, comparisons),
            last_check=checks[step.name].in_words() if step.name in checks else "",
        )
        for prefix, step in outline(steps)
    )
    on = {time.device for node in nodes for time in node.measured if time.shape in shown}
    return Tree(
        lineage=lineage.name,
        title=lineage.title,
        shapes=tuple(shown),
        devices=tuple(sorted(on)),
        captions=tuple(captions(steps)),
        nodes=nodes,
    )


def _fits(name: str, part: str) -> bool:
    return part.lower() in name.lower()


def times_of(runs: Iterable[RunRecord]) -> dict[str, list[Measured]]:
    """Times by step: the newest per device, shape and L2 mode, the device's time before a call's.

    A newer run that was not right leaves no time: what it contradicts is not shown.
    """
    found: dict[tuple[str, str, str], dict[str, Measured]] = {}
    for run in runs:
        if run.environment.kind != "cuda":
            continue
        rows = [row for row in run.results if device_timed(row.executor)]
        for row in rows:
            if row.status == "pass" and row.timed is not None:
                measured = Measured(
                    run.device, row.shape, run.protocol.l2, *row.timed, row.sol_us, run.id,
                    run.created, row.source_sha,
                )  # fmt: skip
                found.setdefault((row.step, run.device, row.shape), {})[measured.l2] = measured
        for row in rows:
            if row.status in FAILED:
                found.pop((row.step, run.device, row.shape), None)
    times: dict[str, list[Measured]] = {}
    for (step, *_), modes in found.items():
        times.setdefault(step, []).extend(modes.values())
    return times


def _checked(outcomes: Iterable[RunOutcome]) -> dict[str, list[Checked]]:
    verdicts: dict[tuple[str, str], dict[str, bool]] = {}
    for (step, shape, executor), rows in outcome_rows(outcomes).items():
        ran = [row for row in rows if row.status not in UNKNOWN]
        if ran:
            right = all(row.status not in FAILED for row in ran)
            verdicts.setdefault((step, executor), {})[shape] = right
    found: dict[str, list[Checked]] = {}
    for (step, executor), shapes in sorted(verdicts.items()):
        good = tuple(shape for shape, right in shapes.items() if right)
        bad = tuple(shape for shape, right in shapes.items() if not right)
        found.setdefault(step, []).append(Checked(executor, good, bad))
    return found


def verdicts_between(
    one: str | None, other: str, comparisons: Iterable[ledger.LedgerEntry]
) -> tuple[TreeVerdict, ...]:
    """The newest comparison of two steps per setting, in order of appearance.

    Either may be the candidate: of a variant that lacks an idea, the step that has it is.
    """
    newest: dict[tuple[str, ...], ledger.LedgerEntry] = {}
    for entry in comparisons:
        base, cand = entry.base.step, entry.cand.step
        if base != cand and {base, cand} == {one, other}:
            l2 = str(entry.protocol.get("l2", ""))
            newest[base, cand, entry.device, entry.shape, entry.metric, l2] = entry
    return tuple(
        TreeVerdict(
            *(base, cand, device, shape, metric, l2),
            *(entry.verdict, entry.change, entry.ci, entry.why, entry.created),
        )
        for (base, cand, device, shape, metric, l2), entry in newest.items()
    )
