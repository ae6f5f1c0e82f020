"""The predicted schedule of a step's first CTA: which warp does or waits for what, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbench.predict.model import CAUSES, spans
from kernelbench.predict.trace import OPS, StepTrace

#: What a span is, by its cause; the rest of a warp's life is instructions.
KINDS: Mapping[str, tuple[str, ...]] = {
    "instructions": ("issue", "instructions", "loads and stores", "tcgen05.ld"),
    "waits for a copy": (
        "copy: latency", "copy: HBM", "copy: L2", "copy: SM port", "copy: TMA unit", "bulk store",
    ),
    "waits for the tensor core": ("tensor core",),
    "waits for another warp": ("another warp's arrival", "named barrier", "cluster barrier"),
    "waits for the grid or the GPU": (
        "launch and start", "tensor map publish/acquire", "launch control", "global word",
        "end of the grid before",
    ),
}  # fmt: skip
_KIND_OF = {cause: kind for kind, causes in KINDS.items() for cause in causes}
TENSOR_CORE, COPIES, PATH = "tensor core", "copies under way", "critical path"


@dataclass(frozen=True)
class Span:
    """A stretch of a row's time, in us; ``where`` is a source line or empty."""

    kind: str
    cause: str
    where: str
    begin: float
    end: float


@dataclass(frozen=True)
class TimelineRow:
    """A warp of the first CTA, a unit of its SM, or the launch's part of the critical path.

    Attributes:
        name: ``warp 4, mma_warp``, :data:`TENSOR_CORE`, :data:`COPIES` or :data:`PATH`.
        life: From its first to its last cycle, in us.
    """

    launch: int
    name: str
    life: tuple[float, float]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Timeline:
    """What a prediction replays, as far as the first CTA of each launch goes.

    Attributes:
        us: All of it.
        source: Hash of the step's sources.
    """

    step: str
    shape: str
    device: str
    us: float
    rows: tuple[TimelineRow, ...]
    source: str = ""


def timeline_rows(traced: StepTrace, costs: Mapping[str, float]) -> tuple[TimelineRow, ...]:
    """The rows of a trace, launch by launch: warps, tensor core, copies, critical path.

    Args:
        costs: By the names of :data:`~kernelbench.predict.model.COSTS`.
    """
    by_row: dict[tuple[int, int], list[Any]] = {}
    for each in spans(traced.records, costs, traced.stretches):
        by_row.setdefault((int(each["launch"]), int(each["row"])), []).append(each)
    warps = {
        launch: sum(
            at == launch and of[0]["cause"] == len(CAUSES) for (at, _), of in by_row.items()
        )
        for launch in {at for at, _ in by_row}
    }
    roles = _roles(traced)
    return tuple(
        _row(traced, launch, row, warps[launch], roles.get((launch, row), ""), found)
        for (launch, row), found in sorted(by_row.items())
    )


def _roles(traced: StepTrace) -> dict[tuple[int, int], str]:
    """The function that each warp of a first CTA spends most of its records in."""
    launches = np.cumsum(traced.records["op"] == OPS.index("launch")) - 1
    first = (traced.records["cta"] == 0) & (traced.records["op"] != OPS.index("launch"))
    counts: dict[tuple[int, int], Counter[str]] = {}
    for launch, each in zip(launches[first], traced.records[first], strict=True):
        place = traced.found(int(each["pc"]))
        if place is not None and place.role not in ("", place.kernel):
            counts.setdefault((int(launch), int(each["warp"])), Counter())[place.role] += 1
    return {warp: count.most_common(1)[0][0] for warp, count in counts.items()}


def _row(
    traced: StepTrace, launch: int, row: int, warps: int, role: str, found: list[Any]
) -> TimelineRow:
    alive = [each for each in found if each["cause"] == len(CAUSES)]
    shown = []
    for each in found:
        if each["cause"] == len(CAUSES):
            continue
        cause, where = CAUSES[each["cause"]], traced.place(int(each["pc"]))
        kind = "busy" if row in (warps, warps + 1) else _KIND_OF[cause]
        shown.append(Span(kind, cause, where, float(each["from"]), float(each["to"])))
    shown.sort(key=lambda span: span.begin)
    name = f"warp {row}" if row < warps else (TENSOR_CORE, COPIES, PATH)[row - warps]
    if role:
        name += f", {role}"
    if alive:
        life = float(alive[0]["from"]), float(alive[0]["to"])
    else:
        life = shown[0].begin, max(span.end for span in shown)
    return TimelineRow(launch, name, life, tuple(shown))


def perfetto(timelines: Iterable[Timeline]) -> dict[str, Any]:
    """A Chrome trace-event document for ui.perfetto.dev: a process a step, a thread a row."""
    events: list[dict[str, Any]] = []
    for pid, each in enumerate(timelines, 1):
        name = f"{each.step} on {each.shape}, predicted for {each.device}"
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        for tid, row in enumerate(each.rows, 1):
            events += _thread(row, pid, tid)
    return {
        "displayTimeUnit": "ns",
        "otherData": {"note": "predicted, not measured: the first CTA of each launch"},
        "traceEvents": events,
    }


def _thread(row: TimelineRow, pid: int, tid: int) -> Iterator[dict[str, Any]]:
    same = {"pid": pid, "tid": tid}
    name = f"launch {row.launch}, {row.name}"
    yield {"ph": "M", "name": "thread_name", **same, "args": {"name": name}}
    yield {"ph": "M", "name": "thread_sort_index", **same, "args": {"sort_index": tid}}
    for number, span in enumerate(row.spans):
        told = {"name": span.cause, "cat": span.kind, **same, "args": {"where": span.where}}
        if row.name == COPIES:  # they overlap
            told["id"] = f"{pid}-{tid}-{number}"
            yield {"ph": "b", "ts": span.begin, **told}
            yield {"ph": "e", "ts": span.end, **told}
        else:
            yield {"ph": "X", "ts": span.begin, "dur": span.end - span.begin, **told}
