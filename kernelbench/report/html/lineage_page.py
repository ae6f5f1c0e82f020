"""A lineage as a report shows it: steps with sources and lessons, ladders, sweeps, rooflines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from kernelbench.base.errors import KernelbenchError
from kernelbench.lineages.source_diff import SourceDiff, source_diff
from kernelbench.lineages.tree import Measured, Node, Tree
from kernelbench.predict.schedule import Schedule
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.registry import Lineage, Step
from kernelbench.records.run_record import RunRecord
from kernelbench.report import roofline
from kernelbench.report.html.heads import head_of
from kernelbench.report.html.predicted import predicted_pages
from kernelbench.report.html.record import (
    ComparisonPage,
    FastestPage,
    KernelPage,
    LineagePage,
    StepPage,
    StepTimePage,
    lesson_of,
)
from kernelbench.report.ladder_plot import Ladder, ladder_of_shape
from kernelbench.report.roofline import LineageReport
from kernelbench.report.roofline_plot import steps_only
from kernelbench.report.sweep_plot import Sweep, dims_of, sweeps


@dataclass(frozen=True)
class LineageSource:
    """What a lineage's page is made of."""

    context: Context
    folder: Path
    lineage: Lineage
    tree: Tree
    peers: Sequence[Tree]  #: Trees of the lineages that are its peers.
    runs: Sequence[RunRecord]
    comparisons: Sequence[ComparisonPage]  #: All of the report's.
    kernels: Mapping[str, tuple[KernelPage, ...]]  #: By step.
    diffs: bool  #: Whether sources are to be compared.
    schedules: Sequence[Schedule] = ()  #: Predicted ones, of all lineages.


def lineage_page(source: LineageSource, notes: list[str]) -> LineagePage:
    """The page of one lineage; what cannot be shown becomes a line of ``notes``."""
    lineage = source.lineage
    steps = {step.name: step for step in source.context.lineages.steps_of(lineage.name)}
    ladders: tuple[Ladder, ...] = ()
    rooflines: tuple[LineageReport, ...] = ()
    swept: tuple[Sweep, ...] = ()
    dims: dict[str, str] = {}
    problem_name = ""
    try:
        problem_name = load_problem(lineage).name
        dims = dims_of(source.context, lineage.name)
        if not lineage.peers_of:
            swept = sweeps(source.tree, source.peers, dims, source.runs)
            ladders = _ladders(source, dims, swept)
            rooflines = tuple(_rooflines(source, dims))
    except KernelbenchError as error:
        notes.append(f"{lineage.name}: {error}")
    peers = () if lineage.peers_of else source.peers
    page = LineagePage(
        name=lineage.name,
        title=lineage.title,
        problem=problem_name,
        source=lineage.source,
        peers_of=lineage.peers_of,
        captions=source.tree.captions,
        steps=_steps(source, steps),
        head=None,
        fastest=tuple(_fastest(source.tree, peers)),
        ladders=ladders,
        sweeps=swept,
        rooflines=rooflines,
        peers=tuple(node.step for tree in peers for node in tree.nodes),
        predicted=tuple(predicted_pages(source.schedules, steps)),
    )
    if lineage.peers_of:
        return page
    entries = [comparison.entry for comparison in source.comparisons]
    return replace(page, head=head_of(page, [*dims], entries, source.runs, lineage.reference))


def _ladders(
    source: LineageSource, dims: Mapping[str, str], swept: Iterable[Sweep]
) -> tuple[Ladder, ...]:
    """One for each shape, of a sweep's shapes for the first: the sweep shows the others."""
    nodes = [node for node in source.tree.nodes if not node.experiment]
    timed = {time.shape for node in nodes for time in node.measured}
    timed |= {shape for node in nodes if node.reported for shape in node.reported.values}
    shapes = [shape for shape in dims if shape in timed]
    for sweep in swept:
        of_sweep = {point.shape for line in sweep.lines for point in line.points}
        first = next((shape for shape in shapes if shape in of_sweep), "")
        shapes = [shape for shape in shapes if shape == first or shape not in of_sweep]
    found = (ladder_of_shape(source.context, source.tree, shape) for shape in shapes)
    # Of one step alone there is nothing to climb.
    return tuple(
        drawn
        for drawn in found
        if drawn is not None and len({p.step for each in drawn.series for p in each.points}) > 1
    )


def _rooflines(source: LineageSource, dims: Mapping[str, str]) -> Iterable[LineageReport]:
    """One per device with times of the lineage and known ceilings."""
    nodes = [node for tree in (source.tree, *source.peers) for node in tree.nodes]
    names = {node.step for node in nodes}
    problem = load_problem(source.lineage)
    known = source.context.shapes.of(problem.name)
    for device in sorted({t.device for node in source.tree.nodes for t in node.measured}):
        timed = {t.shape for node in nodes for t in node.measured if t.device == device}
        shapes = [known[shape] for shape in dims if shape in timed]
        where = roofline.device_named(device, source.folder)
        if shapes and (where.datasheet or where.measured):
            of = (source.lineage, problem, shapes, where)
            report = steps_only(roofline.report_lineage(*of, ("cold",), source.folder), names)
            if any(shape.steps for shape in report.shapes):
                yield report


def _steps(source: LineageSource, steps: Mapping[str, Step]) -> tuple[StepPage, ...]:
    nodes = source.tree.nodes
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [*pool.map(lambda node: _source_of(source, steps[node.step]), nodes)]
    return tuple(
        _step(source, node, steps[node.step], *of) for node, of in zip(nodes, found, strict=True)
    )


def _source_of(source: LineageSource, step: Step) -> tuple[SourceDiff | None, str]:
    """What changes from the parent, or why that cannot be said."""
    parent = source.context.lineages.parent_of(step)
    if parent is None or not source.diffs:
        return None, ""
    if "planned" in (step.status, parent.status):
        return None, "not written yet"
    try:
        return source_diff(parent, step), ""
    except (KernelbenchError, OSError) as error:
        return None, str(error)


def _step(
    source: LineageSource, node: Node, step: Step, changed: SourceDiff | None, unsaid: str
) -> StepPage:
    now = source_sha(step) if node.measured else ""
    return StepPage(
        name=step.name,
        parent=step.parent,
        prefix=node.prefix,
        title=step.title,
        status=step.status,
        kind=step.kind,
        arch=step.arch,
        experiment=step.experiment,
        technique=step.technique,
        hypothesis=step.hypothesis,
        lesson=lesson_of(step.path),
        config={name: _in_words(value) for name, value in step.config.items()},
        repaired=step.repaired,
        reported=step.reported,
        times=tuple(
            StepTimePage(time, _of_sol(time), time.source_sha not in ("", now))
            for time in node.measured
        ),
        checked=node.checked,
        last_check=node.last_check,
        kernels=source.kernels.get(step.name, ()),
        source=changed,
        diff_lines=sum(len(file.text) for file in changed.files) if changed else 0,
        not_compared=unsaid,
        comparisons=_newest(step, source.comparisons),
    )


def _in_words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _of_sol(time: Measured) -> float | None:
    return time.sol_us / time.time.median if time.sol_us is not None else None


def _newest(step: Step, comparisons: Sequence[ComparisonPage]) -> tuple[int, ...]:
    """Places of the newest comparisons with the parent, one per setting."""
    found: dict[tuple[str, ...], int] = {}
    for place, page in enumerate(comparisons):
        entry = page.entry
        arms = (entry.base.step, entry.cand.step)
        if step.parent is not None and {*arms} == {step.parent, step.name}:
            l2 = str(entry.protocol.get("l2", ""))
            found[(*arms, entry.device, entry.shape, entry.metric, l2)] = place
    return tuple(found.values())


def _fastest(tree: Tree, peers: Sequence[Tree]) -> Iterable[FastestPage]:
    best: dict[tuple[str, str, str], tuple[str, Measured]] = {}
    rival: dict[tuple[str, str, str], tuple[str, Measured]] = {}
    for each, found in ((tree, best), *((peer, rival) for peer in peers)):
        for node in each.nodes:
            for time in node.measured:
                key = (time.device, time.shape, time.metric)
                if time.l2 != "cold" or node.experiment:
                    continue
                if key not in found or time.time.median < found[key][1].time.median:
                    found[key] = (node.step, time)
    for (device, shape, metric), (step, time) in best.items():
        peer, other = rival.get((device, shape, metric), ("", None))
        stats = time.time
        yield FastestPage(
            device=device,
            shape=shape,
            metric=metric,
            step=step,
            us=stats.median,
            low=stats.p05,
            high=stats.p95,
            of_sol=_of_sol(time),
            peer=peer,
            peer_us=other.time.median if other else None,
            ratio=other.time.median / stats.median if other else None,
        )
