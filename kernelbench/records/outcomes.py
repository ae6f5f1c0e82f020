"""What has been shown right, and on which executor: the newest outcome of each setting, in a file.

``results/outcomes.json`` keeps of every step, shape, executor, input class and emulated machine
whether the newest run was right. The READMEs' tables of correctness are made from it, so that the
records of a CPU, which are large and have no figures of use to others, need not be kept.
``kernelbench results outcomes results/cpu-…`` adds records to it, and keeps what it has already
unless they are newer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelbench.base import json_file, schema
from kernelbench.base.files import write_text
from kernelbench.records.run_record import UNJUDGED, ResultStatus, RunRecord
from kernelbench.records.tables import natural

OUTCOMES_SCHEMA: Literal["kernelbench.outcomes/1"] = "kernelbench.outcomes/1"


@dataclass(frozen=True)
class RunOutcome:
    """How one step on one shape ended with one input class."""

    step: str
    shape: str
    executor: str
    inputs: str
    #: What was emulated, as the record has it; None on any other executor.
    emulation: Mapping[str, Any] | None
    status: ResultStatus
    reason: str
    device: str  #: What the run ran on.
    run: str  #: Its identifier.


#: The executor that a record's ``extra["emulation"]`` is of.
EMULATING = "emulator"

#: Step, shape, executor, input class, and the emulation as text.
Setting = tuple[str, str, str, str, str]
Outcomes = dict[Setting, RunOutcome]


@dataclass(frozen=True)
class OutcomeBlock:
    """Outcomes of one run that are equal: every step of ``steps`` on every shape of ``shapes``."""

    run: str
    device: str
    executor: str
    emulation: dict[str, Any] | None
    status: ResultStatus
    reason: str
    inputs: tuple[str, ...]
    steps: tuple[str, ...]
    shapes: tuple[str, ...]


@dataclass(frozen=True)
class OutcomesFile:
    """What ``results/outcomes.json`` holds, a block a line."""

    schema: Literal["kernelbench.outcomes/1"]
    blocks: tuple[OutcomeBlock, ...] = field(default=())


def path_of_outcomes(results: Path) -> Path:
    """The file of a results folder."""
    return results / "outcomes.json"


def read_outcomes(results: Path) -> Outcomes:
    """The outcomes that a results folder keeps, if any; RecordError for a broken file."""
    path = path_of_outcomes(results)
    if not path.is_file():
        return {}
    hint = "restore it from version control"
    found = json_file.read_document(path, OutcomesFile, OUTCOMES_SCHEMA, "file of outcomes", hint)
    outcomes: Outcomes = {}
    for block in found.blocks:
        for step in block.steps:
            for shape in block.shapes:
                for inputs in block.inputs:
                    where = (step, shape, block.executor, inputs, block.emulation)
                    what = (block.status, block.reason, block.device, block.run)
                    _keep(outcomes, RunOutcome(*where, *what))
    return outcomes


def with_runs(known: Mapping[Setting, RunOutcome], runs: Iterable[RunRecord]) -> Outcomes:
    """``known`` with the outcomes of runs that are no older.

    What the emulator was told to emulate is part of the setting: a pass on one SM is none on 148.
    """
    found = dict(known)
    for run in runs:
        for row in run.results:
            if row.status not in UNJUDGED:
                emulation = run.extra.get("emulation") if row.executor == EMULATING else None
                where = (row.step, row.shape, row.executor, row.inputs, emulation)
                _keep(found, RunOutcome(*where, row.status, row.reason, run.device, run.id))
    return found


def _keep(outcomes: Outcomes, new: RunOutcome) -> None:
    emulation = "" if new.emulation is None else json.dumps(new.emulation, sort_keys=True)
    setting = (new.step, new.shape, new.executor, new.inputs, emulation)
    old = outcomes.get(setting)
    if old is None or old.run <= new.run:
        outcomes[setting] = new


def outcomes_text(outcomes: Outcomes) -> str:
    """The text of the file: blocks in order of their runs, each as large as it can be."""
    found = OutcomesFile(OUTCOMES_SCHEMA, tuple(_blocks(outcomes)))
    return json_file.row_lines(schema.encode(found), "blocks").decode()


def write_outcomes(results: Path, outcomes: Outcomes) -> Path:
    """Write the file atomically; its path, or EnvironmentProblem."""
    path = path_of_outcomes(results)
    write_text(path, outcomes_text(outcomes))
    return path


def _blocks(outcomes: Outcomes) -> list[OutcomeBlock]:
    """Outcomes as blocks: first by all but step, shape and inputs, then equal steps together."""
    alike: dict[tuple[str, ...], dict[str, dict[str, set[str]]]] = {}
    for (step, shape, executor, inputs, emulation), each in outcomes.items():
        key: tuple[str, ...]
        key = (each.run, each.device, executor, emulation, each.status, each.reason)
        alike.setdefault(key, {}).setdefault(step, {}).setdefault(shape, set()).add(inputs)
    blocks = []
    for key in sorted(alike):
        run, device, executor, emulation, status, reason = key
        for (classes, shapes), steps in sorted(_alike_steps(alike[key]).items()):
            value = {
                "run": run, "device": device, "executor": executor,
                "emulation": json.loads(emulation) if emulation else None,
                "status": status, "reason": reason, "inputs": [*classes],
                "steps": [*_ordered(steps)], "shapes": [*shapes],
            }  # fmt: skip
            blocks.append(schema.decode(OutcomeBlock, value))
    return blocks


def _alike_steps(
    steps: Mapping[str, Mapping[str, set[str]]],
) -> dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]]:
    """By input classes and shapes: the steps that have an outcome on just those."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for step, shapes in steps.items():
        by_classes: dict[tuple[str, ...], list[str]] = {}
        for shape, classes in shapes.items():
            by_classes.setdefault(tuple(sorted(classes)), []).append(shape)
        for classes_of, names in by_classes.items():
            found.setdefault((classes_of, _ordered(names)), []).append(step)
    return found


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: natural((name,))))
