"""The ledger: every comparison made, with its hypothesis, figures and verdict, in order.

``results/ledger.jsonl`` holds one JSON object a line. Lines are only ever appended, under a lock; a
line that cannot be written whole is taken back, so the file never ends in half a line. Older lines
may be in ``results/ledger.jsonl.gz``, packed by hand: ``gzip`` of the first lines, which leave.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from kernelbench.base import schema
from kernelbench.base.errors import EnvironmentProblem, RecordError
from kernelbench.records.metrics import METRICS, Metric, is_time

SCHEMA: Literal["kernelbench.comparison/1"] = "kernelbench.comparison/1"
_LOCK_LIMIT_S = 60


@dataclass(frozen=True)
class ArmRecord:
    """One arm: the step's name and the hashes of its sources and binary."""

    step: str
    source_sha: str
    binary_sha: str | None = None


@dataclass(frozen=True)
class LedgerEntry:
    """One comparison: one shape and one metric."""

    schema: Literal["kernelbench.comparison/1"]
    id: str
    created: str
    device: str
    command: str
    why: str
    base: ArmRecord
    cand: ArmRecord
    shape: str
    metric: str
    method: str
    verdict: str  #: ``FASTER``, ``SLOWER``, ``SAME``, ``AMBIGUOUS`` or ``NOT MEASURED``.
    reason: str
    #: ``base_us``, ``cand_us``: Medians of a time, in microseconds; None of another metric, whose
    #: medians are among the figures.
    base_us: float | None
    cand_us: float | None
    change: float | None  #: Change of the metric as a fraction.
    ci: tuple[float, float] | None  #: Its interval; None if nothing was measured.
    p_holm: float | None
    #: Every other number of the estimate, by name.
    figures: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    samples_file: str | None = None  #: Raw samples, relative to the results folder.

    def median(self, arm: Literal["base", "cand"]) -> float | None:
        """Of an arm, in the unit of the metric: of one that is no time it is among the figures."""
        if is_time(self.metric):
            return self.base_us if arm == "base" else self.cand_us
        found = (value for name, value in self.figures.items() if name.startswith(f"{arm}_"))
        return next(found, None)

    @property
    def unit(self) -> str:
        """What is said behind a median; nothing of a time, whose column says it."""
        return "" if is_time(self.metric) else f" {METRICS[cast(Metric, self.metric)].symbol}"


def path_of(results: Path) -> Path:
    """The ledger's file."""
    return results / "ledger.jsonl"


def append(results: Path, entries: Sequence[LedgerEntry]) -> None:
    """Add entries at the end, all or none; EnvironmentProblem if the file is held or unwritable."""
    from filelock import FileLock, Timeout

    path = path_of(results)
    encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
    data = "".join(encode(schema.encode(entry)) + "\n" for entry in entries).encode()
    try:
        results.mkdir(parents=True, exist_ok=True)
        lock = FileLock(results / ".ledger.lock", timeout=_LOCK_LIMIT_S)
        # Unbuffered: what a buffer could not write it would write again when it is closed.
        with lock, path.open("ab", buffering=0) as stream:
            size = stream.tell()
            try:
                left = memoryview(data)
                while left:
                    left = left[stream.write(left) :]
                os.fsync(stream.fileno())
            except BaseException:
                os.truncate(path, size)
                raise
    except Timeout as error:
        raise EnvironmentProblem(
            f"{path} is locked by another process for over {_LOCK_LIMIT_S} s", "try again later"
        ) from error
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write {path}: {error.strerror or error}",
            "the comparison is printed but not in the ledger",
        ) from error


def read_ledger(results: Path) -> list[LedgerEntry]:
    """Every entry, oldest first; RecordError, with its number, for a line that is none."""
    path = path_of(results)
    entries = []
    for file in (path.with_name(f"{path.name}.gz"), path):
        for number, line in enumerate(_lines(file), start=1):
            try:
                entries.append(schema.decode(LedgerEntry, json.loads(line)))
            except ValueError as error:
                raise RecordError(
                    f"{file}:{number}: not an entry of this version: {error}",
                    "restore the line from version control or take it out",
                ) from error
    return entries


def _lines(file: Path) -> list[str]:
    try:
        data = file.read_bytes()
        return (gzip.decompress(data) if file.suffix == ".gz" else data).decode().splitlines()
    except FileNotFoundError:
        return []
    except (EOFError, OSError, zlib.error) as error:
        raise RecordError(
            f"cannot read {file}: {getattr(error, 'strerror', '') or error}"
        ) from error
