"""How far device times are from the newest ones that were kept of the same step and shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelbench.records.device_table import TableRow
from kernelbench.records.run_record import Result
from kernelbench.stats.defaults import MARGIN

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
    if row.device_us is None or old is None or old.device is None:
        return row
    change = row.device_us.median / old.device.median - 1
    if abs(change) <= FAR:
        return row
    note = (
        f"device time {row.device_us.median:.2f} µs, {100 * change:+.0f}% against that of "
        f"{old.date} ({old.device.median:.2f} µs)"
    )
    return replace(row, notes=(*row.notes, note))
