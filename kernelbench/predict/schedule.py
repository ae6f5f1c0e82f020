"""The record of a predicted schedule: what a picture can show of it, and its list of bubbles.

``results/predicted`` has one file for each step, shape and model, apart from everything measured:
only the report reads it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from kernelbench.base import schema
from kernelbench.base.files import write_text
from kernelbench.base.json_file import read_document, read_each, row_lines
from kernelbench.predict.api import Prediction
from kernelbench.predict.model import REPLAY, DeviceModel
from kernelbench.predict.timeline import COPIES, PATH, TENSOR_CORE, Span, Timeline, TimelineRow
from kernelbench.records.run_record import now_iso

SCHEMA: Literal["kernelbench.predicted-schedule/1"] = "kernelbench.predicted-schedule/1"
#: Moments that a picture tells apart; more rows have fewer, so that a record stays small.
_COLUMNS, _CELLS = 400, 9600
#: From this part of a moment on a unit of the SM is drawn as busy.
_BUSY = 0.25


@dataclass(frozen=True)
class Drawn:
    """What a stretch of a lane is: a kind of :data:`~kernelbench.predict.timeline.KINDS`, or busy.

    Attributes:
        cause, where: Of instructions only where the critical path has a bubble of the step.
    """

    kind: str
    cause: str
    where: str


@dataclass(frozen=True)
class Lane:
    """The critical path, a warp of a launch's first CTA, or a unit of its SM.

    Attributes:
        runs: For each stretch three numbers: its first moment, how many, its place in
            :attr:`Schedule.drawn`.
        busy: The part of the schedule in which a unit works; None of a warp.
    """

    name: str
    runs: tuple[int, ...]
    busy: float | None = None


@dataclass(frozen=True)
class Schedule:
    """A predicted schedule.

    Attributes:
        source: Hash of the step's sources; ``costs``: of the device's, and of the replay.
        by_cause: Parts of the critical path by cause, in us.
        columns: Moments of the predicted device time.
    """

    schema: Literal["kernelbench.predicted-schedule/1"]
    created: str
    device: str
    model: str
    costs: str
    source: str
    prediction: Prediction
    by_cause: dict[str, float]
    columns: int
    drawn: tuple[Drawn, ...]
    lanes: tuple[Lane, ...]


def digest_of(model: DeviceModel) -> str:
    """A hash of a device's costs and of the replay."""
    costs = json.dumps(model.values(), sort_keys=True).encode()
    return hashlib.sha256(costs + REPLAY.read_bytes()).hexdigest()[:16]


def schedule_of(model: DeviceModel, prediction: Prediction, timeline: Timeline) -> Schedule:
    """What a picture can show of a timeline."""
    path = [span for row in timeline.rows if row.name == PATH for span in row.spans]
    rows = [TimelineRow(0, PATH, (0.0, timeline.us), tuple(path))]
    rows += [row for row in timeline.rows if row.name != PATH]
    several = len({row.launch for row in rows}) > 1
    columns = min(_COLUMNS, _CELLS // len(rows))
    listed = {(bubble.cause, bubble.where) for bubble in prediction.bubbles if bubble.where}
    places: dict[Drawn, int] = {}
    lanes = []
    for row in rows:
        unit = row.name in (TENSOR_CORE, COPIES)
        spans = [*_united(row.spans)] if unit else row.spans
        runs: list[int] = []
        life, told = None if unit else row.life, listed if row.name == PATH else ()
        moments = _moments(spans, life, timeline.us / columns, told)
        for drawn, of in groupby(range(columns), moments.get):
            if drawn is not None:
                at = [*of]
                runs += [at[0], len(at), places.setdefault(drawn, len(places))]
        busy = sum(span.end - span.begin for span in spans) / timeline.us if unit else None
        name = f"launch {row.launch}, {row.name}" if several and row.name != PATH else row.name
        lanes.append(Lane(name, tuple(runs), busy))
    by_cause: dict[str, float] = {}
    for span in path:
        by_cause[span.cause] = by_cause.get(span.cause, 0.0) + span.end - span.begin
    return Schedule(
        SCHEMA, now_iso(), model.device, f"{model.name}.toml", digest_of(model),
        timeline.source, prediction, by_cause, columns, tuple(places), tuple(lanes),
    )  # fmt: skip


def _united(spans: Iterable[Span]) -> Iterator[Span]:
    """What overlaps, as one."""
    begin, end = math.inf, -math.inf
    for span in spans:
        if span.begin > end:
            if end > begin:
                yield Span("busy", "", "", begin, end)
            begin = span.begin
        end = max(end, span.end)
    if end > begin:
        yield Span("busy", "", "", begin, end)


def _moments(
    spans: Iterable[Span],
    life: tuple[float, float] | None,
    moment: float,
    listed: Collection[tuple[str, str]],
) -> dict[int, Drawn]:
    """What a row is for most of each moment; a warp that waits for nothing executes."""
    parts: dict[int, dict[Drawn, float]] = {}

    def add(drawn: Drawn, begin: float, end: float, sign: int = 1) -> None:
        for at in range(int(begin / moment), math.ceil(end / moment)):
            part = min(end, (at + 1) * moment) - max(begin, at * moment)
            of = parts.setdefault(at, {})
            of[drawn] = of.get(drawn, 0.0) + sign * part

    rest = Drawn("instructions", "", "")
    if life:
        add(rest, *life)
    for span in spans:
        drawn = Drawn(span.kind, span.cause, span.where)
        if span.kind == rest.kind and (span.cause, span.where) not in listed:
            drawn = rest
        add(drawn, span.begin, span.end)
        if life:
            add(rest, span.begin, span.end, -1)
    least = 0.0 if life else _BUSY * moment
    found = {at: max(of.items(), key=lambda each: each[1]) for at, of in parts.items()}
    return {at: drawn for at, (drawn, part) in found.items() if part > least}


def save_schedule(folder: Path, found: Schedule) -> Path:
    """Write the record below a results folder, in place of an older one."""
    made = found.prediction
    name = "-".join((found.model.removesuffix(".toml"), made.step, made.shape))
    path = folder / "predicted" / (re.sub(r"[^\w.-]+", "-", name) + ".json")
    write_text(path, row_lines(schema.encode(found), "lanes").decode())
    return path


def read_schedules(folder: Path) -> tuple[list[Schedule], list[str]]:
    """The schedules of a results folder, and a line for each file that cannot be read."""
    called = "record of a predicted schedule"
    return read_each(
        sorted((folder / "predicted").glob("*.json")),
        lambda path: read_document(path, Schedule, SCHEMA, called),
    )
