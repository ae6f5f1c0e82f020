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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelbench.base import schema
from kernelbench.base.errors import RecordError
from kernelbench.base.json_file import read_json, row_lines, write_gzip
from kernelbench.base.table import Row, RowTable
from kernelbench.records.metrics import COLUMNS, METRICS, Metric, Metrics, WithMetrics, shown

RUN_SCHEMA: Literal["kernelbench.run/3"] = "kernelbench.run/3"

ResultStatus = Literal[
    "pass", "wrong", "hang", "fault", "skipped", "problem", "reference", "machine", "harness"
]
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
class ReadFloor:
    """How long it took, in the same run, only to read what a step must read."""

    bytes: int  #: Bytes read once: those of :attr:`kernelbench.project.problem.Work.bytes_read`.
    us: float  #: Median in microseconds of one graph replay between events, L2 as for the step.
    reps: int  #: Timed repetitions.
    method: str  #: What read them: ``bulk copies``, ``vector loads`` or ``torch.sum``.


@dataclass(frozen=True)
class Result(WithMetrics):
    """One row: a step on one shape with one input class.

    Attributes:
        exact: Whether the result equals the rounded reference in every bit; None if not run.
        max_abs_err: Largest absolute error; None if not run or a value is not finite.
        rel_rms_err: Root mean square error over that of the reference; None also where the problem
            does not say, and in records from before it was taken.
        metrics: What was measured, by metric: ``call_us`` and ``device_us`` in JSON.
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
    metrics: Metrics = field(metadata={schema.COLUMNS: COLUMNS})
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


@dataclass(frozen=True, repr=False)
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
        metrics = shown(self.results)
        return [_flat(row, metrics) for row in self.results]

    def _caption(self) -> str:
        return f"{self.command} on {self.device}, {self.created}, seed {self.protocol.seed}"


def _flat(row: Result, metrics: Sequence[Metric]) -> Row:
    measured: Row = {}
    for name in metrics:
        of = row.metrics.get(name)
        measured[f"{name}_{METRICS[name].unit}"] = of.median if of else None
        measured[f"{name}_method"] = of.method if of else ""
    return {
        "step": row.step,
        "shape": row.shape,
        "inputs": row.inputs,
        "executor": row.executor,
        "status": row.status,
        "exact": row.exact,
        "max_abs_err": row.max_abs_err,
        "rel_rms_err": row.rel_rms_err,
        **measured,
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
    """Read what :func:`write_samples` wrote; RecordError if the file is absent or broken."""
    try:
        return read_json(path)
    except RecordError as error:
        raise RecordError(f"cannot read samples: {error}") from error


def write_run(path: Path, record: RunRecord) -> None:
    """Write a record atomically as gzip-compressed JSON, a row a line."""
    write_gzip(path, row_lines(schema.encode(record), "results"))


def read_run(path: Path) -> RunRecord:
    """A run record of any schema so far, saved or from ``run --json``; or RecordError."""
    return parse_run(read_json(path), str(path))


def parse_run(value: Any, where: str) -> RunRecord:
    """A run record from ``where``, brought to this version's schema; RecordError if it is none."""
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
    """Saved run records below a results folder, of one device's folder or all, oldest first."""
    found: dict[tuple[str, Path], Path] = {}
    for suffix in (PLAIN_SUFFIX, RUN_SUFFIX):
        for path in folder.glob(f"{device}/runs/*{suffix}"):
            if not path.name.endswith(f".samples{suffix}"):
                found[id_of(path), path.parent] = path
    return [found[key] for key in sorted(found)]


_PREFIX = "kernelbench.run/"

#: Fields that records of schema 1 got in the course of time, with what their absence meant.
_LATER_ROW_FIELDS: dict[str, Any] = {
    "notes": [], "sol_us": None, "sm_mhz": None, "source_sha": "", "binary_sha": None,
    "rel_rms_err": None, "floor": None,
}  # fmt: skip
_LATER_FIELDS: dict[str, Any] = {"complete": True, "samples_file": None, "extra": {}}
_LATER_ENVIRONMENT: dict[str, Any] = {"gpu_processes": 0, "mig": False}
_LATER_PROTOCOL: dict[str, Any] = {"time_budget_s": None}


def _from_1(value: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 has every field in every record: what schema 1 left out is said."""
    filled = {**_LATER_FIELDS, **value, "schema": f"{_PREFIX}2"}
    for name, later in (("environment", _LATER_ENVIRONMENT), ("protocol", _LATER_PROTOCOL)):
        if isinstance(value.get(name), dict):
            filled[name] = {**later, **value[name]}
    rows = value.get("results")
    if isinstance(rows, list):
        filled["results"] = [
            {**_LATER_ROW_FIELDS, **row} if isinstance(row, dict) else row for row in rows
        ]
    return filled


#: By the version that it reads; each gives the JSON value of the next, with every figure as it was.
#: A change of the schema adds one.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _from_1,
    # Schema 3 has four more statuses, of rows whose step was not judged; the others stay.
    2: lambda value: {**value, "schema": f"{_PREFIX}3"},
}


def upgraded(value: dict[str, Any]) -> dict[str, Any]:
    """The value in the newest schema; as it is where its schema is unknown."""
    while (version := _version(value)) in UPGRADES:
        value = UPGRADES[version](value)
    return value


def _version(value: dict[str, Any]) -> int:
    found = re.fullmatch(re.escape(_PREFIX) + r"(\d+)", str(value.get("schema")))
    return int(found[1]) if found else 0
