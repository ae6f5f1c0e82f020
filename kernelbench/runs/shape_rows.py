"""What the messages about one shape build up, and its rows' times."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import Any

from kernelbench.measure import speed_of_light
from kernelbench.measure.outcomes import CheckResult, TimedBlock
from kernelbench.project.problem import Work
from kernelbench.records.run_record import ReadFloor, Result, ResultStatus, TimeStats, summarize
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
    samples: dict[str, list[TimedBlock]] = field(default_factory=dict)
    measured: dict[str, MetricMeasured] = field(default_factory=dict)
    fault: Failure | None = None
    work: Work | None = None
    floor: ReadFloor | None = None
    floor_note: str = ""
    finished: bool = False


def with_times(row: Result, rows: ShapeRows) -> tuple[Result, list[dict[str, Any]]]:
    """A row with what was timed, and the raw samples, an entry for each metric."""
    samples: list[dict[str, Any]] = []
    times: dict[str, TimeStats | None] = {"call": None, "device": None}
    clocks: list[float] = []
    notes = list(row.notes)
    throttled: set[str] = set()
    for metric, blocks in rows.samples.items():
        values = [t for block in blocks for t in block.time_us]
        complete = rows.measured.get(metric)
        method = complete.method if complete else "incomplete"
        if not complete:
            notes.append(f"{metric} time incomplete: {len(values)} reps, outputs not re-checked")
        else:
            notes += complete.notes
        times[metric] = stats = summarize(values, method)
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
                "blocks": [block.to_json() for block in blocks],
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
        call_us=times["call"],
        device_us=times["device"],
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
    for name, stats, least in (
        ("device", row.device_us, floor),
        ("call", row.call_us, call_floor),
    ):
        if stats is not None and speed_of_light.below_floor(stats.median, least):
            return replace(
                row,
                status="wrong",
                reason=f"{name} time {stats.median:.2f} µs is impossible: no right kernel "
                f"takes less than {least.impossible_us:.2f} µs ({least.l2_mode} L2)",
            )
    return row
