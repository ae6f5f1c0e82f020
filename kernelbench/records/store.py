"""The results folder: saved runs, and the tables that are derived from them.

Layout: ``results/<device>/runs/<id>.json`` (one record a run, never changed) with
``<id>.samples.json.gz`` beside it (every raw sample, in order), and ``results/<device>/table.md``
and ``.csv``, made anew from all records whenever one is added. A lock file makes two processes
take turns at the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelbench.base import files, json_file
from kernelbench.base.errors import EnvironmentProblem, RecordError
from kernelbench.records import run_record, tables
from kernelbench.records.rows import latest
from kernelbench.records.run_record import RunRecord

_LOCK_LIMIT_S = 60


def save_run(folder: Path, record: RunRecord, samples: Sequence[dict[str, Any]]) -> Path:
    """Write a run record with its samples, then the tables of its device.

    Returns:
        The record's path.

    Raises:
        EnvironmentProblem: If it cannot be written; then neither record nor samples are there.
    """
    device = folder / run_record.device_slug(record.device)
    path = device / "runs" / f"{record.id}.json"
    samples_path = device / "runs" / f"{record.id}.samples.json.gz"
    if samples:
        run_record.write_samples(samples_path, list(samples))
        record = replace(record, samples_file=samples_path.name)
    try:
        json_file.write_json(path, record)
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
            files.write_text(device / "table.md", tables.rows_markdown(rows))
            files.write_text(device / "table.csv", tables.rows_csv(rows))
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
    for path in run_record.list_runs(folder):
        if device is not None and path.parent.parent.name != device:
            continue
        try:
            runs.append(run_record.read_run(path))
        except RecordError as error:
            broken.append(str(error))
    return runs, broken
