"""The result schema, and reading and writing of records.

A *run record* is what one ``kernelbench run`` measured; tables are derived from it, never typed. It
is saved as gzip-compressed JSON with a row a line (``zcat`` shows it); :func:`read_run` reads that,
plain JSON as ``run --json`` writes it, and both of every older schema.
"""

from __future__ import annotations

import datetime
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelbench.base import schema
from kernelbench.base.errors import RecordError
from kernelbench.base.json_file import read_json, row_lines, write_gzip
from kernelbench.base.row_table import Row, RowTable
from kernelbench.records.run_upgrades import upgraded

RUN_SCHEMA: Literal["kernelbench.run/3"] = "kernelbench.run/3"

ResultStatus = Literal[
    "pass", "wrong", "hang", "fault", "skipped", "problem", "reference", "machine", "harness"
]
#: Device time is the GPU's, call time the caller's.
Metric = Literal["device", "call"]
#: What the L2 cache holds when something is timed: none of its data, or what the last time left.
L2Mode = Literal["cold", "warm"]
#: A call by itself, or 15 in one event pair.
CallForm = Literal["single", "competition"]
#: Statuses that mean the step is not right.
FAILED: tuple[ResultStatus, ...] = ("wrong", "hang", "fault")
#: Statuses that mean the step was not judged: what is at fault is the problem's own code, its
#: reference, the machine, or kernelbench.
UNJUDGED: tuple[ResultStatus, ...] = ("problem", "reference", "machine", "harness")
#: Statuses of rows from which nothing is known of the step.
UNKNOWN: tuple[ResultStatus, ...] = ("skipped", *UNJUDGED)


@dataclass(frozen=True)
class TimeStats:
    """Summary of one step's timed repetitions, in microseconds.

    Attributes:
        reps: Number of timed repetitions.
        method: ``events`` (CUDA events around the Python call), ``competition`` (15 calls in one
            event pair, per call), ``graph`` (CUDA-graph replay between events), ``profiler`` (sum
            of kernel durations), ``wall`` (host clock, CPU only).
    """

    median: float
    mean: float
    min: float
    p05: float
    p95: float
    std: float
    reps: int
    method: str

    @property
    def spread(self) -> float:
        """From the 5th to the 95th percentile, as a fraction of the median."""
        return (self.p95 - self.p05) / self.median if self.median else 0.0


@dataclass(frozen=True)
class ReadFloor:
    """How long it took, in the same run, only to read what a step must read.

    Attributes:
        bytes: Bytes read once: those of :attr:`kernelbench.project.problem.Work.bytes_read`.
        us: Median in microseconds of one graph replay between events, L2 as for the step.
        reps: Timed repetitions.
        method: What read them: ``bulk copies``, ``vector loads`` or ``torch.sum``.
    """

    bytes: int
    us: float
    reps: int
    method: str


@dataclass(frozen=True)
class Result:
    """One row: a step on one shape with one input class.

    Attributes:
        exact: Whether the result equals the rounded reference in every bit; None if not run.
        max_abs_err: Largest absolute error; None if not run or a value is not finite.
        rel_rms_err: Root mean square error over that of the reference; None also where the problem
            does not say, and in records from before it was taken.
        call_us: Time of one call through Python, host overhead included; None if not timed.
        device_us: Time on the device alone; None if not timed.
        sol_us: Speed of light of the shape on this device and L2 mode; None if unknown.
        floor: The read floor measured right after the step; None where none was.
        reason: Why the status is not ``pass``, in one line.
        notes: What a reader of the figures must know (e.g. time budget, throttling).
        source_sha: Hash of the step's sources; binary_sha: of its compiled code, if any.
        sm_mhz: Median SM clock while it was timed.
    """

    step: str
    lineage: str
    problem: str
    shape: str
    dims: str
    inputs: str
    executor: str
    status: ResultStatus
    exact: bool | None
    max_abs_err: float | None
    call_us: TimeStats | None
    device_us: TimeStats | None
    reason: str
    notes: tuple[str, ...] = ()
    sol_us: float | None = None
    sm_mhz: float | None = None
    source_sha: str = ""
    binary_sha: str | None = None
    rel_rms_err: float | None = None
    floor: ReadFloor | None = None


@dataclass(frozen=True)
class Environment:
    """The machine and software that a figure was measured with. Holds no host name or path."""

    device: str
    kind: Literal["cuda", "cpu"]
    arch: str
    sms: int
    l2_bytes: int
    memory_bytes: int
    driver: str
    cuda: str
    torch: str
    python: str
    kernelbench: str
    gpu_processes: int = 0
    mig: bool = False


@dataclass(frozen=True)
class Protocol:
    """How the figures of a run were taken."""

    seed: int
    reps: int
    warmups: int
    l2: Literal["cold", "warm", "none"]
    call: CallForm
    flush_bytes: int
    time_budget_s: float | None = None


@dataclass(frozen=True)
class RunRecord(RowTable):
    """Everything that one ``kernelbench run`` found."""

    schema: Literal["kernelbench.run/3"]
    id: str
    created: str
    command: str
    device: str
    environment: Environment
    protocol: Protocol
    results: tuple[Result, ...]
    complete: bool = True
    samples_file: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[Result, ...]:
        """The rows whose step is not right."""
        return tuple(row for row in self.results if row.status in FAILED)

    @property
    def skipped(self) -> tuple[Result, ...]:
        """The rows that did not run."""
        return tuple(row for row in self.results if row.status == "skipped")

    @property
    def unjudged(self) -> tuple[Result, ...]:
        """The rows that say nothing of their step, because something else is at fault."""
        return tuple(row for row in self.results if row.status in UNJUDGED)

    def rows(self) -> list[Row]:
        """One row per step, shape and input class; times are medians in microseconds."""
        return [_flat(row) for row in self.results]

    def _caption(self) -> str:
        return f"{self.command} on {self.device}, {self.created}, seed {self.protocol.seed}"


def _flat(row: Result) -> Row:
    return {
        "step": row.step,
        "shape": row.shape,
        "inputs": row.inputs,
        "executor": row.executor,
        "status": row.status,
        "exact": row.exact,
        "max_abs_err": row.max_abs_err,
        "rel_rms_err": row.rel_rms_err,
        "device_us": row.device_us.median if row.device_us else None,
        "device_method": row.device_us.method if row.device_us else "",
        "call_us": row.call_us.median if row.call_us else None,
        "call_method": row.call_us.method if row.call_us else "",
        "sol_us": row.sol_us,
        "floor_us": row.floor.us if row.floor else None,
        "sm_mhz": row.sm_mhz,
        "reason": row.reason,
        "notes": list(row.notes),
        "lineage": row.lineage,
        "problem": row.problem,
        "dims": row.dims,
    }


def new_id() -> str:
    """A sortable, unique identifier: UTC time and four random bytes."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def now_iso() -> str:
    """The current time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def device_slug(device: str) -> str:
    """The folder name of a device: ``NVIDIA H200`` -> ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "unknown"


def write_samples(path: Path, value: Any) -> None:
    """Write raw samples atomically as gzip-compressed JSON."""
    write_gzip(path, json.dumps(value, separators=(",", ":")).encode())


def read_samples(path: Path) -> Any:
    """Read what :func:`write_samples` wrote.

    Raises:
        RecordError: If the file is absent or broken.
    """
    try:
        return read_json(path)
    except RecordError as error:
        raise RecordError(f"cannot read samples: {error}") from error


def write_run(path: Path, record: RunRecord) -> None:
    """Write a record atomically as gzip-compressed JSON, a row a line."""
    write_gzip(path, row_lines(schema.encode(record), "results"))


def read_run(path: Path) -> RunRecord:
    """Read and validate one run record, saved or from ``run --json``, of any schema so far.

    Raises:
        RecordError: If the file is absent, broken, of a later schema or not a run record.
    """
    return parse_run(read_json(path), str(path))


def parse_run(value: Any, where: str) -> RunRecord:
    """Validate a run record that came from ``where``, after bringing it to this version's schema.

    Raises:
        RecordError: If it is not a run record, or of a later schema.
    """
    found = value.get("schema") if isinstance(value, dict) else None
    value = upgraded(value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or value.get("schema") != RUN_SCHEMA:
        what = f"schema {found!r}" if found else "no schema field"
        raise RecordError(
            f"{where} is not a run record of this version ({what}, expected {RUN_SCHEMA!r})",
            "make it anew with `kernelbench run … --json FILE`",
        )
    try:
        return schema.decode(RunRecord, value, every_field=True)
    except schema.SchemaError as error:
        raise RecordError(f"{where} is not a valid run record: {error}") from error


#: How the files of records end: as saved now, and as they were with schema 1.
RUN_SUFFIX, PLAIN_SUFFIX = ".json.gz", ".json"


def id_of(path: Path) -> str:
    """The identifier of the run that a record's file is of."""
    return path.name.removesuffix(".gz").removesuffix(PLAIN_SUFFIX)


def list_runs(folder: Path, device: str = "*") -> list[Path]:
    """Saved run records below a results folder (``results/<device>/runs``), oldest first.

    Args:
        device: Name of the device's folder; all by default.
    """
    found: dict[tuple[str, Path], Path] = {}
    for suffix in (PLAIN_SUFFIX, RUN_SUFFIX):
        for path in folder.glob(f"{device}/runs/*{suffix}"):
            if not path.name.endswith(f".samples{suffix}"):
                found[id_of(path), path.parent] = path
    return [found[key] for key in sorted(found)]


def summarize(samples_us: Sequence[float], method: str) -> TimeStats:
    """Order statistics of raw samples in microseconds; no sample is dropped.

    Raises:
        ValueError: If there are no samples.
    """
    import numpy as np

    values = np.asarray(samples_us, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples to summarize")
    low, median, high = np.percentile(values, [5, 50, 95])
    return TimeStats(
        median=float(median),
        mean=float(values.mean()),
        min=float(values.min()),
        p05=float(low),
        p95=float(high),
        std=float(values.std(ddof=1)) if values.size > 1 else 0.0,
        reps=int(values.size),
        method=method,
    )
