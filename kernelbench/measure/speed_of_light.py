"""The speed of light: what a device's ceilings allow for a problem's work.

Two sets of ceilings exist for a device: the vendor's *datasheet*, and what was *measured* on the
device itself (``ceilings_bench.py``), which is what a kernel can hope for. They give two figures:

* ``us``, the conventional speed of light that fractions are quoted against: FLOPs over the peak
  rate, or bytes over the memory bandwidth, whichever takes longer;
* ``impossible_us``, a bound that no right kernel can beat, from the datasheet only. It is lower,
  because a datasheet rate is no physical limit: the clock may go above the one that it was stated
  for, and what a kernel writes may still be in the L2 cache when its time ends.

A time below ``impossible_us`` means that the work was not done, or not timed: a failure, no record.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelbench.base import json_file, schema
from kernelbench.base.errors import RecordError, UnknownNameError
from kernelbench.project.problem import Work
from kernelbench.records import run_record
from kernelbench.records.run_record import L2Mode

CEILINGS_SCHEMA = "kernelbench.ceilings/1"
MIB = 1 << 20

#: Formats by width. Where a GPU lacks one, its problems run at best at the rate of a wider one.
PRECISIONS = ("fp4", "fp8", "fp16", "bf16", "tf32", "fp32", "fp64")


@dataclass(frozen=True)
class Reading:
    """One measured quantity behind the ceilings."""

    #: ``read`` (``size`` bytes from cold DRAM), ``l2-read`` (``size`` bytes resident in L2),
    #: ``matmul-<precision>`` (``size`` cubed) or ``empty-graph``.
    what: str
    size: int
    #: ``median_us``, ``min_us``: Time of one such operation in microseconds, over ``reps``.
    median_us: float
    min_us: float
    reps: int


@dataclass(frozen=True)
class Ceilings:
    """What a device can do at most."""

    device: str  #: Its name as CUDA reports it.
    source: Literal["datasheet", "measured"]
    dram_bytes_per_s: float  #: Memory bandwidth.
    l2_bytes: int  #: L2 size.
    flops: dict[str, float]  #: Dense FLOP/s by precision (:data:`PRECISIONS`), never with sparsity.
    l2_bytes_per_s: float | None = None  #: L2 read bandwidth.
    #: ``flops_headroom``, ``dram_headroom``: How many times the stated rates the hardware could
    #: reach: highest clock over the clock that the rate was stated for. 1 for measured ceilings.
    flops_headroom: float = 1.0
    dram_headroom: float = 1.0
    notes: tuple[str, ...] = ()
    measured: str = ""  #: When; empty for a datasheet, as ``command`` and ``readings`` are.
    command: str = ""  #: What measured it.
    #: Time between two events around a graph of one empty kernel.
    empty_graph_us: float | None = None
    readings: tuple[Reading, ...] = ()
    schema: Literal["kernelbench.ceilings/1"] = "kernelbench.ceilings/1"


@dataclass(frozen=True)
class Floor:
    """The speed of light of some work under some ceilings."""

    us: float  #: The longer of ``compute_us`` and ``memory_us``; ``bound`` says which.
    bound: Literal["memory", "compute"]
    compute_us: float
    memory_us: float
    #: No right kernel is faster; 0 for measured ceilings, which prove nothing.
    impossible_us: float
    #: The format whose rate was taken: the work's own, or the nearest wider one that the device
    #: has.
    precision: str
    l2_mode: L2Mode


@dataclass(frozen=True)
class Published:
    """Speeds of light that a problem's source publishes, in µs by shape; shown, never used."""

    source: str
    device: str
    us: dict[str, float]


@dataclass(frozen=True)
class _Sheet:
    """A GPU of ``datasheets.toml``, whose fields these are."""

    aliases: list[str]
    device: str
    flops: dict[str, float]
    clock_mhz: tuple[int, int]
    memory_bytes_per_s: tuple[float, float]
    l2_mib: int
    notes: tuple[str, ...]

    @functools.cached_property
    def ceilings(self) -> Ceilings:
        """What it can do at most, by its datasheet."""
        (clock, highest), (memory, pins) = self.clock_mhz, self.memory_bytes_per_s
        return Ceilings(
            self.device, "datasheet", memory, self.l2_mib * MIB, self.flops,
            flops_headroom=highest / clock, dram_headroom=pins / memory, notes=self.notes,
        )  # fmt: skip


@functools.cache
def _sheets() -> list[_Sheet]:
    text = Path(__file__).with_name("datasheets.toml").read_text(encoding="utf-8")
    return [schema.decode(_Sheet, gpu) for gpu in tomllib.loads(text)["gpu"]]


def datasheet(device: str) -> Ceilings | None:
    """The datasheet's ceilings of the device with this full name; None if it is not known.

    Only exact names count: an H200 NVL or a MIG instance has other rates than an H200.
    """
    return next((sheet.ceilings for sheet in _sheets() if sheet.device == device), None)


def known_device(name: str) -> Ceilings:
    """A datasheet's ceilings by full or short name (``h100-pcie``); or UnknownNameError."""
    wanted = name.strip().lower()
    for sheet in _sheets():
        if wanted in (sheet.device.lower(), *sheet.aliases):
            return sheet.ceilings
    raise UnknownNameError("device", name, [sheet.aliases[0] for sheet in _sheets()])


def rate_for(precision: str, flops: Mapping[str, float]) -> tuple[str, float] | None:
    """The format and dense rate that bound work of ``precision`` on a device with these rates.

    A device without the format computes it in a wider one at best, and every wider format is
    slower or as fast: the fastest rate among the formats at least as wide is a true upper bound.

    Raises:
        ValueError: If ``precision`` is none of :data:`PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}: expected {', '.join(PRECISIONS)}")
    wide_enough = [p for p in PRECISIONS[PRECISIONS.index(precision) :] if p in flops]
    if not wide_enough:
        return None
    best = max(wide_enough, key=lambda p: (flops[p], -PRECISIONS.index(p)))
    return best, flops[best]


def speed_of_light(work: Work, ceilings: Ceilings, l2_mode: L2Mode) -> Floor:
    """The floor of ``work`` under ``ceilings``.

    Cold: every byte moves between DRAM and the chip. Warm: what fits in the L2 cache need not; if
    the L2 bandwidth is known, every byte moves through that.

    Args:
        work: FLOPs and bytes.
        ceilings: Rates of the device.
        l2_mode: ``cold`` or ``warm``.

    Raises:
        ValueError: If the work's precision is unknown.
    """
    rate = rate_for(work.precision, ceilings.flops)
    precision, flops = rate if rate is not None else (work.precision, float("inf"))
    compute_s = work.flops / flops
    bandwidth = ceilings.dram_bytes_per_s
    beyond_l2 = max(0.0, work.bytes_total - ceilings.l2_bytes)
    if l2_mode == "cold":
        memory_s = work.bytes_total / bandwidth
        # Written bytes may stay in the L2, read ones must have come.
        least_bytes = max(work.bytes_read, beyond_l2)
    else:
        memory_s = beyond_l2 / bandwidth
        if ceilings.l2_bytes_per_s is not None:
            memory_s = max(memory_s, work.bytes_total / ceilings.l2_bytes_per_s)
        least_bytes = beyond_l2
    impossible_s = 0.0
    if ceilings.source == "datasheet":
        impossible_s = max(
            compute_s / ceilings.flops_headroom, least_bytes / (bandwidth * ceilings.dram_headroom)
        )
    return Floor(
        us=max(compute_s, memory_s) * 1e6,
        bound="compute" if compute_s >= memory_s else "memory",
        compute_us=compute_s * 1e6,
        memory_us=memory_s * 1e6,
        impossible_us=impossible_s * 1e6,
        precision=precision,
        l2_mode=l2_mode,
    )


def below_floor(time_us: float, floor: Floor) -> bool:
    """Whether a time is faster than possible: the work was not done, or not timed."""
    return time_us < floor.impossible_us


def ceilings_path(device: str, results: Path) -> Path:
    """Where the measured ceilings of a device are kept below a results folder."""
    return results / run_record.device_slug(device) / "ceilings.json"


def save_measured(ceilings: Ceilings, results: Path) -> Path:
    """Write measured ceilings atomically over older ones; the path, or EnvironmentProblem."""
    path = ceilings_path(ceilings.device, results)
    json_file.write_json(path, ceilings)
    return path


def load_measured(device: str, results: Path) -> Ceilings | None:
    """The measured ceilings of a device, None if there are none; RecordError for a broken file."""
    path = ceilings_path(device, results)
    if not path.is_file():
        return None
    hint = "make it anew with `kernelbench roofline --measure`"
    ceilings = json_file.read_document(path, Ceilings, CEILINGS_SCHEMA, "file of ceilings", hint)
    if ceilings.device != device:
        raise RecordError(f"{path} holds the ceilings of {ceilings.device}, not of {device}")
    return ceilings
