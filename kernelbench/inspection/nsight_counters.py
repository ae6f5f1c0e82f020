"""What Nsight Compute is asked, and what its raw page says.

Metric names are those of GH100 (sm_90) and GB100 (sm_100); ncu gives ``n/a`` for a name that a chip
does not have (Nsight Compute's FAQ).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_DURATION = "gpu__time_duration.sum"
_DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
# wgmma and mma run on the pipe "tensor", tcgen05 on "tc".
_TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
_TC = "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_OCCUPANCY_LIMIT = "sm__maximum_warps_per_active_cycle_pct"
_REGISTERS = "launch__registers_per_thread"
_SHARED_STATIC = "launch__shared_mem_per_block_static"
_SHARED_DYNAMIC = "launch__shared_mem_per_block_dynamic"
_L2_HITS = "lts__t_sector_hit_rate.pct"
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(?P<reason>\w+)_per_issue_active\.ratio")
#: A warp that issues an instruction; the others say why one does not.
_ISSUING = "selected"
_STALLS_SHOWN = 3

_COMMON = (
    _DURATION, _DRAM, _OCCUPANCY, _OCCUPANCY_LIMIT, _REGISTERS, _SHARED_STATIC, _SHARED_DYNAMIC,
    _L2_HITS,
)  # fmt: skip
#: The section that has a chip's own list of stall reasons.
SECTIONS = ("WarpStateStats",)

_NAME = "Kernel Name"
#: ncu's units of time; with ``--print-units base`` it is the first, whose spelling has changed.
_MICROSECONDS = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
    "s": 1e6, "second": 1e6,
}  # fmt: skip


class CountersError(ValueError):
    """The output is not ncu's raw page; the message is one line."""


@dataclass(frozen=True)
class Stall:
    """Why warps waited."""

    reason: str
    share: float  #: Of the time between two instructions of a warp, from 0 to 1.


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel; None is what could not be had."""

    kernel: str
    duration_us: float | None
    #: ``dram_pct``, ``tensor_pct``: Of the peak that can be sustained, over the launch's whole
    #: duration; the tensor pipe is the busier one, where a GPU has two.
    dram_pct: float | None = None
    tensor_pct: float | None = None
    #: Warps that were there, of those that an SM can hold, while it had any.
    occupancy_pct: float | None = None
    occupancy_limit_pct: float | None = None  #: What the launch's resources allow.
    registers: int | None = None
    shared_bytes: int | None = None  #: Static and dynamic, of a CTA.
    l2_hit_pct: float | None = None  #: Hits among the sectors that L2 looked up.
    stalls: tuple[Stall, ...] = ()  #: The greatest, at most three.


_IN_WORDS = {
    "duration_us": "duration", "dram_pct": "DRAM throughput", "tensor_pct": "tensor pipe",
    "occupancy_pct": "occupancy", "occupancy_limit_pct": "theoretical occupancy",
    "registers": "registers", "shared_bytes": "shared memory", "l2_hit_pct": "L2 hit rate",
    "stalls": "stall reasons",
}  # fmt: skip


def metrics(capability: tuple[int, int]) -> tuple[str, ...]:
    """What to ask of a GPU of this compute capability."""
    return (*_COMMON, _TENSOR, *([_TC] if capability >= (10, 0) else []))


def read_raw_page(text: str) -> tuple[Launch, ...]:
    """The launches of ``ncu --csv --page raw``, in order; CountersError without a whole table."""
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if f'"{_NAME}"' in line), None)
    if start is None:
        raise CountersError("no table")
    rows = [row for row in csv.reader(io.StringIO("".join(lines[start:]))) if len(row) > 1]
    heads, *rest = rows
    if not rest:
        raise CountersError("a table without units")
    units = dict(zip(heads, rest[0], strict=False))
    launches = []
    for row in rest[1:]:
        if len(row) != len(heads):
            raise CountersError(f"a row with {len(row)} of {len(heads)} cells")
        launches.append(_launch(dict(zip(heads, row, strict=True)), units))
    return tuple(launches)


def missing(launches: Sequence[Launch]) -> tuple[str, ...]:
    """What no launch has a value for, in words."""
    return tuple(
        words for column, words in _IN_WORDS.items()
        if all(getattr(launch, column) in (None, ()) for launch in launches)
    )  # fmt: skip


def _launch(row: Mapping[str, str], units: Mapping[str, str]) -> Launch:
    duration = _number(row.get(_DURATION))
    scale = _MICROSECONDS.get(units.get(_DURATION, ""))
    tensor = [value for name in (_TENSOR, _TC) if (value := _number(row.get(name))) is not None]
    shared = [_bytes(row, units, name) for name in (_SHARED_STATIC, _SHARED_DYNAMIC)]
    registers = _number(row.get(_REGISTERS))
    return Launch(
        kernel=row[_NAME],
        duration_us=None if duration is None or scale is None else duration * scale,
        dram_pct=_number(row.get(_DRAM)),
        tensor_pct=max(tensor, default=None),
        occupancy_pct=_number(row.get(_OCCUPANCY)),
        occupancy_limit_pct=_number(row.get(_OCCUPANCY_LIMIT)),
        registers=None if registers is None else round(registers),
        shared_bytes=None if None in shared else sum(size for size in shared if size is not None),
        l2_hit_pct=_number(row.get(_L2_HITS)),
        stalls=_stalls(row),
    )


def _bytes(row: Mapping[str, str], units: Mapping[str, str], name: str) -> int | None:
    """A size; with any prefix in its unit, ``--print-units base`` was not obeyed: unknown."""
    size = _number(row.get(name))
    plain = units.get(name, "").partition("/")[0] in ("byte", "B")
    return round(size) if size is not None and plain else None


def _stalls(row: Mapping[str, str]) -> tuple[Stall, ...]:
    """The greatest stall reasons; of all warps' states together, issuing included."""
    states = {
        match["reason"]: value
        for name, cell in row.items()
        if (match := _STALL.fullmatch(name)) and (value := _number(cell)) is not None
    }
    total = sum(states.values())
    if total <= 0:
        return ()
    waits = [
        Stall(reason.replace("_", " "), value / total)
        for reason, value in states.items()
        if reason != _ISSUING and value > 0
    ]
    return tuple(sorted(waits, key=lambda stall: -stall.share)[:_STALLS_SHOWN])


def _number(cell: str | None) -> float | None:
    """``1,205.00`` as a number; None for ``n/a``, an empty cell, or no cell."""
    try:
        return float((cell or "").replace(",", ""))
    except ValueError:
        return None
