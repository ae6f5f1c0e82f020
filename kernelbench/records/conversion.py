"""Saved records in the form of an older version, rewritten in today's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.base import json_file
from kernelbench.base.errors import RecordError
from kernelbench.records import run_record
from kernelbench.records.run_record import PLAIN_SUFFIX, RUN_SUFFIX


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
        before = json_file.read_json(old)
        record = run_record.parse_run(before, str(old))
        if not new.is_file():
            run_record.write_run(new, record)
        missing = _lost(before, json_file.read_json(new))
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
        value = json_file.read_json(path)
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
