"""The results folder: saved runs, and the tables that are derived from them.

Layout: ``results/<device>/runs/<id>.json.gz`` (one record a run, never changed) with
``<id>.samples.json.gz`` beside it (every raw sample, in order), and ``results/<device>/table.csv``
and ``.md`` with the newest figures. A save reads the table and its own record, no other, so that it
costs the same however many there are; a lock makes two processes take turns at the tables.

A save first leaves a mark, ``results/<device>/.saving-<id>``, and takes it away when its rows are
in the tables. Where a process was killed in between, the next save adds its rows too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelbench.base import files
from kernelbench.base.errors import EnvironmentProblem, RecordError
from kernelbench.base.json_file import read_each, read_json
from kernelbench.records import device_table, run_record
from kernelbench.records.device_table import TableKey, TableRow
from kernelbench.records.run_record import PLAIN_SUFFIX, RUN_SUFFIX, RunRecord

_LOCK_LIMIT_S = 60
#: A mark without a record is of a save under way; after this long, of one that was killed.
_MARK_LIMIT_S = 3600
_MARK = ".saving-"


def save_run(folder: Path, record: RunRecord, samples: Sequence[dict[str, Any]]) -> Path:
    """Write a run record with its samples, then bring the tables of its device up to date.

    Args:
        folder: The results folder.
        record: The run.
        samples: Raw samples, in the order of its rows.

    Returns:
        The record's path.

    Raises:
        EnvironmentProblem: If it cannot be written; then neither record nor samples are there.
    """
    device = folder / run_record.device_slug(record.device)
    path = device / "runs" / f"{record.id}{RUN_SUFFIX}"
    samples_path = device / "runs" / f"{record.id}.samples.json.gz"
    mark = device / f"{_MARK}{record.id}"
    files.write_text(mark, "")
    try:
        if samples:
            run_record.write_samples(samples_path, list(samples))
            record = replace(record, samples_file=samples_path.name)
        run_record.write_run(path, record)
    except EnvironmentProblem:
        samples_path.unlink(missing_ok=True)
        mark.unlink(missing_ok=True)
        raise
    _update_tables(device, record)
    return path


def _update_tables(device: Path, record: RunRecord) -> None:
    """Bring the tables up to date with a new record, and with those of saves that were killed."""
    with _locked(device):
        saved = {record.id: record} | _unfinished(device, record.id)
        try:
            known = device_table.read_csv(device / "table.csv")
            _, newest = device_table.read_head(device / "table.md")
        except RecordError:
            # Absent, of an older version or with a merge conflict in it.
            _write(derived_tables(device))
        else:
            rows = device_table.merged(known, saved.values())
            _write(_tables(device, rows, record.device, max(newest, *saved)))
        for name in saved:
            (device / f"{_MARK}{name}").unlink(missing_ok=True)


def _unfinished(device: Path, own: str) -> dict[str, RunRecord]:
    """Records whose save has not reached the tables yet; those of other processes may be among."""
    found: dict[str, RunRecord] = {}
    for mark in sorted(device.glob(f"{_MARK}*")):
        name = mark.name.removeprefix(_MARK)
        path = device / "runs" / f"{name}{RUN_SUFFIX}"
        if name == own:
            continue
        with contextlib.suppress(RecordError, OSError):
            if path.is_file():
                found[name] = run_record.read_run(path)
            elif time.time() - mark.stat().st_mtime > _MARK_LIMIT_S:
                mark.unlink()
    return found


def rebuild_tables(device: Path) -> None:
    """Make a device's tables anew from its records, under its lock; or EnvironmentProblem."""
    with _locked(device):
        _write(derived_tables(device))


def _write(tables: dict[Path, str]) -> None:
    for path, text in tables.items():
        files.write_text(path, text)


def derived_tables(device: Path) -> dict[Path, str]:
    """What the tables of a device folder should hold, from all its records."""
    runs, _ = load_runs(device.parent, device.name)
    if not runs:
        return {}
    return _tables(device, device_table.merged({}, runs), runs[-1].device, runs[-1].id)


def _tables(
    device: Path, rows: dict[TableKey, TableRow], name: str, newest: str
) -> dict[Path, str]:
    # The Markdown comes last: it says up to which run both are.
    return {
        device / "table.csv": device_table.write_csv(rows.values()),
        device / "table.md": device_table.write_markdown(name, newest, [*rows.values()]),
    }


@contextlib.contextmanager
def _locked(device: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        held = FileLock(device / ".lock", timeout=_LOCK_LIMIT_S).acquire()
    except Timeout as error:
        raise EnvironmentProblem(
            f"{device / '.lock'} is held by another process for over {_LOCK_LIMIT_S} s",
            "the run is saved; the tables get it with the next run",
        ) from error
    except OSError as error:
        raise EnvironmentProblem(f"cannot lock {device}: {error.strerror or error}") from error
    with held:
        yield


def newest_figures(folder: Path) -> tuple[dict[str, list[TableRow]], list[str]]:
    """The rows of every device's tables, by the device's name, and a line per unreadable record.

    Where tables lack the newest record (it was copied into the folder, or its save was killed), the
    rows are taken from the records; nothing is written.
    """
    newest = {path.parent.parent: path for path in run_record.list_runs(folder)}
    found: dict[str, list[TableRow]] = {}
    broken: list[str] = []
    for device, path in sorted(newest.items()):
        with contextlib.suppress(RecordError):
            name, last = device_table.read_head(device / "table.md")
            if run_record.id_of(path) <= last:
                # A record that is cut short or is not JSON.
                broken += read_each(run_record.list_runs(folder, device.name), read_json)[1]
                found[name] = [*device_table.read_csv(device / "table.csv").values()]
                continue
        runs, lines = load_runs(folder, device.name)
        broken += lines
        if runs:
            found[runs[-1].device] = [*device_table.merged({}, runs).values()]
    return found, broken


def load_runs(folder: Path, device: str = "*") -> tuple[list[RunRecord], list[str]]:
    """Readable runs of a device's folder (or all), oldest first; a line for each unreadable one."""
    return read_each(run_record.list_runs(folder, device), run_record.read_run)


@dataclass(frozen=True)
class Converted:
    """A record that was rewritten: its file, and the bytes of it before and after."""

    path: Path
    before: int
    after: int


def convert_records(results: Path) -> Iterator[Converted]:
    """Rewrite every record of a results folder that is plain JSON or of an older schema.

    A record is replaced only after what was written has been read again and holds every figure
    that it held, bit for bit. What is converted already is passed over, so that this can be
    stopped and called again.

    Raises:
        RecordError: At the first record that cannot be read, or is there twice with different
            contents; nothing of it is touched.
        EnvironmentProblem: If one cannot be written.
    """
    for old in sorted(results.glob(f"*/runs/*{PLAIN_SUFFIX}")):
        new = old.with_name(f"{run_record.id_of(old)}{RUN_SUFFIX}")
        before = read_json(old)
        record = run_record.parse_run(before, str(old))
        if not new.is_file():
            run_record.write_run(new, record)
        missing = _lost(before, read_json(new))
        if missing:
            raise RecordError(
                f"{old} and {new} are one run but differ at {missing}", "remove the wrong one"
            )
        converted = Converted(new, old.stat().st_size, new.stat().st_size)
        old.unlink()
        yield converted
    for path in sorted(results.glob(f"*/runs/*{RUN_SUFFIX}")):
        if path.name.endswith(f".samples{RUN_SUFFIX}"):
            continue
        value = read_json(path)
        record = run_record.parse_run(value, str(path))
        if value["schema"] != run_record.RUN_SCHEMA:
            size = path.stat().st_size
            run_record.write_run(path, record)
            yield Converted(path, size, path.stat().st_size)


def _lost(old: Any, new: Any, path: str = "record") -> str:
    """Where ``new`` does not hold what ``old`` does; empty if nowhere. The schema may differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if (path, key) == ("record", "schema"):
                continue
            where = f"{path}.{key}"
            found = where if key not in new else _lost(value, new[key], where)
            if found:
                return found
        return ""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        places = (_lost(a, b, f"{path}[{i}]") for i, (a, b) in pairs)
        return next((place for place in places if place), "")
    # An integer where a float belongs (12 for 12.0) is the same figure.
    number = isinstance(old, (int, float)) and isinstance(new, (int, float))
    same = type(old) is type(new) or (number and bool not in (type(old), type(new)))
    return "" if same and old == new else path
