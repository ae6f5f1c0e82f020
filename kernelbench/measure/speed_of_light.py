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

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """One measured quantity behind the ceilings.

    Attributes:
        what: ``read`` (``size`` bytes from cold DRAM), ``l2-read`` (``size`` bytes resident in L2),
            ``matmul-<precision>`` (``size`` cubed) or ``empty-graph``.
        median_us, min_us: Time of one such operation in microseconds, over ``reps``.
    """

    what: str
    size: int
    median_us: float
    min_us: float
    reps: int


@dataclass(frozen=True)
class Ceilings:
    """What a device can do at most.

    Attributes:
        device: Its name as CUDA reports it.
        dram_bytes_per_s: Memory bandwidth. l2_bytes: L2 size. l2_bytes_per_s: L2 read bandwidth.
        flops: Dense FLOP/s by precision (:data:`PRECISIONS`), never with sparsity.
        flops_headroom, dram_headroom: How many times the stated rates the hardware could reach:
            highest clock over the clock that the rate was stated for. 1 for measured ceilings.
        measured: Date; command: how; readings: from what. All empty for a datasheet.
        empty_graph_us: Time between two events around a graph of one empty kernel.
    """

    device: str
    source: Literal["datasheet", "measured"]
    dram_bytes_per_s: float
    l2_bytes: int
    flops: dict[str, float]
    l2_bytes_per_s: float | None = None
    flops_headroom: float = 1.0
    dram_headroom: float = 1.0
    notes: tuple[str, ...] = ()
    measured: str = ""
    command: str = ""
    empty_graph_us: float | None = None
    readings: tuple[Reading, ...] = ()
    schema: Literal["kernelbench.ceilings/1"] = "kernelbench.ceilings/1"


@dataclass(frozen=True)
class Floor:
    """The speed of light of some work under some ceilings.

    Attributes:
        us: The longer of ``compute_us`` and ``memory_us``; ``bound`` says which.
        impossible_us: No right kernel is faster; 0 for measured ceilings, which prove nothing.
        precision: The format whose rate was taken: the work's own, or the nearest wider one that
            the device has.
    """

    us: float
    bound: Literal["memory", "compute"]
    compute_us: float
    memory_us: float
    impossible_us: float
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
    aliases: tuple[str, ...]
    ceilings: Ceilings = field(repr=False)


def _hopper(
    device: str,
    fp16: float,
    bandwidth: float,
    l2_mib: int,
    flops_headroom: float,
    dram_headroom: float,
    notes: tuple[str, ...],
) -> Ceilings:
    """Hopper's dense rates hang together: FP8 twice, TF32 half of FP16."""
    flops = {"fp8": 2 * fp16, "fp16": fp16, "bf16": fp16, "tf32": fp16 / 2}
    return Ceilings(
        device=device, source="datasheet", dram_bytes_per_s=bandwidth, l2_bytes=l2_mib * MIB,
        flops=flops, flops_headroom=flops_headroom, dram_headroom=dram_headroom, notes=notes,
    )  # fmt: skip


_DENSE = "dense rates: the datasheet states them with 2:4 sparsity, which is twice as much"
_SXM_CLOCK = "rates are for 1830 MHz; the highest SM clock is 1980 MHz"
_PCIE_CLOCK = "rates are for 1620 MHz; the highest SM clock is 1755 MHz"
_PCIE_MEMORY = "bandwidth from the memory itself: 5120 bits at 1593 MHz, double data rate"

#: Headrooms are highest over stated clock, and pin rate (width × clock × 2) over stated bandwidth.
_SHEETS = (
    _Sheet(
        ("b200",),
        Ceilings(
            device="NVIDIA B200",
            source="datasheet",
            dram_bytes_per_s=8.0e12,
            l2_bytes=126 * MIB,
            flops={"fp4": 9.0e15, "fp8": 4.5e15, "fp16": 2.25e15, "bf16": 2.25e15, "tf32": 1.1e15},
            # 148 SMs × 32768 FP4 FLOP per clock reach 9 PFLOP/s at 1856 MHz; the limit is 1965 MHz.
            flops_headroom=1965 / 1856,
            # 8192 bits × 3996 MHz × 2 = 8.184 TB/s.
            dram_headroom=8.184 / 8.0,
            notes=(
                "NVIDIA HGX B200 datasheet, per GPU (later editions state 7.7 TB/s)",
                _DENSE,
                "L2 size as CUDA reports it; not in the datasheet",
            ),
        ),
    ),
    _Sheet(
        ("h200", "h200-sxm"),
        _hopper(
            "NVIDIA H200",
            989.4e12,
            4.8e12,
            60,
            1980 / 1830,
            # 6144 bits × 3201 MHz × 2 = 4.917 TB/s.
            4.917 / 4.8,
            ("NVIDIA H200 datasheet (SXM)", _DENSE, _SXM_CLOCK, "L2 size as CUDA reports it"),
        ),
    ),
    _Sheet(
        ("h100", "h100-sxm"),
        _hopper(
            "NVIDIA H100 80GB HBM3",
            989.4e12,
            3.35e12,
            50,
            1980 / 1830,
            # 5120 bits × 2619 MHz × 2 = 3.352 TB/s.
            3.3524 / 3.35,
            ("NVIDIA H100 datasheet (SXM)", _DENSE, _SXM_CLOCK),
        ),
    ),
    _Sheet(
        ("h100-pcie",),
        _hopper(
            "NVIDIA H100 PCIe",
            756.5e12,
            2.039e12,
            50,
            1755 / 1620,
            1.0,
            ("NVIDIA H100 datasheet (PCIe)", _DENSE, _PCIE_CLOCK, _PCIE_MEMORY),
        ),
    ),
    _Sheet(
        ("h800-pcie",),
        _hopper(
            "NVIDIA H800 PCIe",
            756.5e12,
            2.039e12,
            50,
            1755 / 1620,
            1.0,
            ("NVIDIA H800 datasheet (PCIe)", _DENSE, _PCIE_CLOCK, _PCIE_MEMORY),
        ),
    ),
)


def datasheet(device: str) -> Ceilings | None:
    """The datasheet's ceilings of the device with this full name; None if it is not known.

    Only exact names count: an H200 NVL or a MIG instance has other rates than an H200.
    """
    for sheet in _SHEETS:
        if sheet.ceilings.device == device:
            return sheet.ceilings
    return None


def known_device(name: str) -> Ceilings:
    """The datasheet's ceilings for a full or short name (``b200``, ``h100-pcie``), in any case.

    Raises:
        UnknownNameError: With the nearest known name.
    """
    wanted = name.strip().lower()
    for sheet in _SHEETS:
        if wanted in (sheet.ceilings.device.lower(), *sheet.aliases):
            return sheet.ceilings
    raise UnknownNameError("device", name, [sheet.aliases[0] for sheet in _SHEETS])


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
    """Write measured ceilings atomically, in place of older ones; returns the path.

    Raises:
        EnvironmentProblem: If the file cannot be written.
    """
    path = ceilings_path(ceilings.device, results)
    json_file.write_json(path, ceilings)
    return path


def load_measured(device: str, results: Path) -> Ceilings | None:
    """The measured ceilings of a device; None if there are none.

    Raises:
        RecordError: If the file is broken, of another version, or of another device.
    """
    path = ceilings_path(device, results)
    if not path.is_file():
        return None
    value = json_file.read_json(path)
    found = value.get("schema") if isinstance(value, dict) else None
    if found != CEILINGS_SCHEMA:
        raise RecordError(
            f"{path} holds no ceilings of this version (schema {found!r})",
            "make it anew with `kernelbench roofline --measure`",
        )
    try:
        ceilings = schema.decode(Ceilings, value)
    except schema.SchemaError as error:
        raise RecordError(
            f"{path} holds no valid ceilings: {error}",
            "make it anew with `kernelbench roofline --measure`",
        ) from error
    if ceilings.device != device:
        raise RecordError(f"{path} holds the ceilings of {ceilings.device}, not of {device}")
    return ceilings
