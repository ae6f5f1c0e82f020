"""The record that ``kernelbench list --json`` gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelbench.base.errors import UsageError
from kernelbench.executors.targets import runnable
from kernelbench.machine.devices import torch_info
from kernelbench.project.model import UNITS, captions, reported_shapes
from kernelbench.project.registry import Kind, Lineages, Reported, Step, StepStatus

SCHEMA = "kernelbench.list/1"


@dataclass(frozen=True)
class ListedStep:
    """One step; ``reported`` figures come from the lineage's source, not from a measurement."""

    name: str
    lineage: str
    parent: str | None
    kind: Kind
    arch: str
    status: StepStatus
    reported: Reported | None


@dataclass(frozen=True)
class ListRecord:
    """All listed steps, in order; ``schema.decode(ListRecord, value)`` validates one."""

    schema: str
    steps: tuple[ListedStep, ...]


@dataclass(frozen=True)
class LineageView:
    """What a table of one lineage shows."""

    name: str  #: The lineage's name.
    title: str  #: What it solves.
    shapes: list[str]  #: The shapes with reported figures, one column each.
    unit: str  #: Of all of these figures; empty if there are several.
    captions: list[str]  #: What the figures are, where they come from.
    #: Per step: the step, whether and where it runs here, its figures.
    rows: list[tuple[Step, str, list[str]]]
    notes: list[tuple[str, str]]  #: Step name and what must be known of its figures.
    blocked: bool  #: Whether a written step cannot run here.


def select_steps(
    lineages: Lineages, specs: Sequence[str], lineage: str | None, status: str | None
) -> list[Step]:
    """The named steps (or all) of one lineage (or all) in one status (or any), in the usual order.

    Args:
        specs: As for :meth:`Lineages.select`.

    Raises:
        UsageError: If there is no such lineage or step, or a named one is of no lineage here.
    """
    if lineage is not None:
        lineages.steps_of(lineages.lineage(lineage).name)
    known = lineages.all_steps if specs or lineage else lineages.steps
    named = lineages.select(specs) if specs else known
    for step in named:
        if step not in known:
            raise UsageError(f"{step.name} is of no lineage here: {step.path}")
    return [
        step
        for step in known
        if step in named and lineage in (None, step.lineage) and status in (None, step.status)
    ]


def list_record(steps: Sequence[Step]) -> ListRecord:
    """What ``list --json`` writes of these steps."""
    return ListRecord(
        schema=SCHEMA,
        steps=tuple(
            ListedStep(s.name, s.lineage, s.parent, s.kind, s.arch, s.status, s.reported)
            for s in steps
        ),
    )


def views(lineages: Lineages, steps: Sequence[Step]) -> list[LineageView]:
    """The tables of steps, one per lineage that has any; asks the machine what runs here."""
    shown = []
    for lineage in lineages.all_lineages if steps else ():
        own = [step for step in steps if step.lineage == lineage.name]
        if not own:
            continue
        shapes = reported_shapes(own)
        units = {UNITS[step.reported.unit] for step in own if step.reported}
        here = {step.name: _here(step) for step in own}
        shown.append(
            LineageView(
                name=lineage.name,
                title=lineage.title,
                shapes=shapes,
                unit=units.pop() if len(units) == 1 else "",
                captions=captions(own),
                rows=[(step, here[step.name], step.figures(shapes)) for step in own],
                notes=[(s.name, s.reported.note) for s in own if s.reported and s.reported.note],
                blocked=any(here[s.name].startswith("no") for s in own if s.status != "planned"),
            )
        )
    return shown


def _here(step: Step) -> str:
    """The executor that would run the step here; ``no``, or ``–`` where nothing is written yet."""
    if step.status == "planned":
        return "–"
    # Every step's data and reference are torch's.
    if torch_info() is None:
        return "no (torch)"
    works, reason = runnable(step)
    return reason.partition(":")[0] if works else "no"
