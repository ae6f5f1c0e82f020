"""What the messages about one shape build up, and its rows' times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelbench.measure import speed_of_light
from kernelbench.measure.results import CheckResult, TimedBlock
from kernelbench.project.problem import Work
from kernelbench.records.device_table import TableRow
from kernelbench.records.metrics import METRICS, Metric, Summary, is_time, summarize
from kernelbench.records.run_record import ReadFloor, Result, ResultStatus
from kernelbench.stats.defaults import MARGIN
from kernelbench.worker.jobs import Timing
from kernelbench.worker.messages import MetricMeasured

#: Spread of device times that a user is told of: of 206 rows of one H200, 98 % had less.
NOISY_SPREAD = 0.15


@dataclass(frozen=True)
class Failure:
    """What ended a shape before all of it was done."""

    status: ResultStatus
    reason: str


@dataclass
class ShapeRows:
    """The rows of one shape as messages build them up."""

    checks: dict[str, CheckResult] = field(default_factory=dict)
    samples: dict[Metric, list[TimedBlock]] = field(default_factory=dict)
    measured: dict[Metric, MetricMeasured] = field(default_factory=dict)
    fault: Failure | None = None
    work: Work | None = None
    floor: ReadFloor | None = None
    floor_note: str = ""
    finished: bool = False


def with_times(row: Result, rows: ShapeRows) -> tuple[Result, list[dict[str, Any]]]:
    """A row with what was timed, and the raw samples, an entry for each metric."""
    samples: list[dict[str, Any]] = []
    metrics: dict[Metric, Summary] = {}
    clocks: list[float] = []
    notes = list(row.notes)
    throttled: set[str] = set()
    for metric, blocks in rows.samples.items():
        values = [t for block in blocks for t in block.values]
        complete = rows.measured.get(metric)
        method = complete.method if complete else "incomplete"
        if not complete:
            notes.append(
                f"{METRICS[metric].title} incomplete: {len(values)} reps, outputs not re-checked"
            )
        else:
            notes += complete.notes
        metrics[metric] = stats = summarize(values, method)
        if metric == "device" and stats.spread > NOISY_SPREAD:
            spread = f"{100 * stats.spread:.0f}% of the median"
            notes.append(f"device time noisy: 5th to 95th percentile span {spread}")
        clocks += [block.sm_mhz for block in blocks if block.sm_mhz]
        throttled |= {reason for block in blocks for reason in block.throttle}
        samples.append(
            {
                "step": row.step,
                "shape": row.shape,
                "metric": metric,
                "method": method,
                "blocks": [block.to_json(metric) for block in blocks],
            }
        )
    for metric, complete in rows.measured.items():
        if metric not in rows.samples:
            notes += complete.notes
    if rows.floor_note:
        notes.append(rows.floor_note)
    if throttled:
        notes.append("clock slowed while timed: " + ", ".join(sorted(throttled)))
    row = replace(
        row,
        metrics=metrics,
        notes=tuple(notes),
        floor=rows.floor,
        sm_mhz=statistics.median(clocks) if clocks else None,
    )
    return row, samples


def against_floor(row: Result, work: Work | None, device: str, timing: Timing) -> Result:
    """Add the speed of light; a time below the datasheet's floor fails the row."""
    if work is None or not work.bytes_total:
        return row
    ceilings = speed_of_light.datasheet(device)
    if ceilings is None:
        return row
    floor = speed_of_light.speed_of_light(work, ceilings, timing.l2)
    row = replace(row, sol_us=floor.us)
    # Of fifteen calls in one event pair only the first is cold.
    warm = speed_of_light.speed_of_light(work, ceilings, "warm")
    call_floor = floor if timing.call == "single" else warm
    for name, stats in row.metrics.items():
        least = call_floor if name == "call" else floor
        if is_time(name) and speed_of_light.below_floor(stats.median, least):
            found = f"{METRICS[name].title} {stats.median:.2f} µs is impossible: no right kernel "
            found += f"takes less than {least.impossible_us:.2f} µs ({least.l2_mode} L2)"
            return replace(row, status="wrong", reason=found)
    return row


#: Change of a device time that a user is told of: ten times what `ab` calls the same.
FAR = 10 * MARGIN


def with_distance(rows: Sequence[Result], kept: Sequence[TableRow], l2: str) -> tuple[Result, ...]:
    """The rows, with a note on those whose device time is far from the kept one.

    Args:
        kept: Rows of this device's table.
        l2: State of the L2 cache in which ``rows`` were timed.
    """
    before = {(old.step, old.shape, old.executor): old for old in kept if old.l2 == l2}
    return tuple(_noted(row, before.get((row.step, row.shape, row.executor))) for row in rows)


def _noted(row: Result, old: TableRow | None) -> Result:
    now, before = row.metrics.get("device"), old.metrics.get("device") if old else None
    if now is None or old is None or before is None:
        return row
    change = now.median / before.median - 1
    if abs(change) <= FAR:
        return row
    note = (
        f"device time {now.median:.2f} µs, {100 * change:+.0f}% against that of "
        f"{old.date} ({before.median:.2f} µs)"
    )
    return replace(row, notes=(*row.notes, note))
