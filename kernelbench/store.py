"""The results folder: saved runs, and the tables that are derived from them.

Layout: ``results/<device>/runs/<id>.json`` (one record a run, never changed) with
``<id>.samples.json.gz`` beside it (every raw sample, in order), and ``results/<device>/table.md``
and ``.csv``, made anew from all records whenever one is added. A lock file makes two processes
take turns at the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelbench import records
from kernelbench.errors import EnvironmentProblem, RecordError
from kernelbench.export import tables
from kernelbench.records import Result, RunRecord

_LOCK_LIMIT_S = 60


@dataclass(frozen=True)
class Saved:
    """One row of a saved run, with where it came from."""

    run: RunRecord
    result: Result


def save(folder: Path, record: RunRecord, samples: Sequence[dict[str, Any]]) -> Path:
    """Write a run record with its samples, then the tables of its device.

    Returns:
        The record's path.

    Raises:
        EnvironmentProblem: If it cannot be written; then neither record nor samples are there.
    """
    device = folder / records.device_slug(record.device)
    path = device / "runs" / f"{record.id}.json"
    samples_path = device / "runs" / f"{record.id}.samples.json.gz"
    if samples:
        records.write_samples(samples_path, list(samples))
        record = replace(record, samples_file=samples_path.name)
    try:
        records.write_json(path, record)
    except EnvironmentProblem:
        samples_path.unlink(missing_ok=True)
        raise
    rebuild_tables(device)
    return path


def rebuild_tables(device: Path) -> None:
    """Derive the tables of one device folder from its records, under its lock.

    Raises:
        EnvironmentProblem: If another process holds the lock for a minute, or on a full disk.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(device / ".lock", timeout=_LOCK_LIMIT_S):
            rows = latest(load_runs(device.parent, device.name)[0])
            records.write_text(device / "table.md", tables.markdown(rows))
            records.write_text(device / "table.csv", tables.csv_text(rows))
    except Timeout as error:
        raise EnvironmentProblem(
            f"{device / '.lock'} is held by another process for over {_LOCK_LIMIT_S} s",
            "the run is saved; the tables are made anew by the next run",
        ) from error
    except OSError as error:
        raise EnvironmentProblem(f"cannot lock {device}: {error.strerror or error}") from error


def load_runs(folder: Path, device: str | None = None) -> tuple[list[RunRecord], list[str]]:
    """Readable runs below a results folder, oldest first, and a line for each unreadable one."""
    runs: list[RunRecord] = []
    broken: list[str] = []
    for path in records.list_runs(folder):
        if device is not None and path.parent.parent.name != device:
            continue
        try:
            runs.append(records.read_run(path))
        except RecordError as error:
            broken.append(str(error))
    return runs, broken


def latest(runs: Iterable[RunRecord]) -> list[Saved]:
    """The newest row per step, shape, input class, executor and L2 mode, in order of appearance."""
    newest: dict[tuple[str, ...], Saved] = {}
    for run in runs:
        for result in run.results:
            key = (
                result.step,
                result.shape,
                result.inputs,
                result.executor,
                run.protocol.l2,
                run.protocol.call,
            )
            newest[key] = Saved(run, result)
    return [newest[key] for key in sorted(newest, key=_natural)]


def _natural(key: tuple[str, ...]) -> tuple[Any, ...]:
    import re

    return tuple(
        tuple((0, int(p)) if p.isdigit() else (1, p) for p in re.findall(r"\d+|\D+", part))
        for part in key
    )
