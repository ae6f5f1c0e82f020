"""JSON files: written whole or not at all, read with errors that name the file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from kernelbench.base import schema
from kernelbench.base.errors import RecordError
from kernelbench.base.files import atomic_write

_GZIP_MAGIC = b"\x1f\x8b"

T = TypeVar("T")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` (a record or JSON value) atomically as indented JSON."""
    text = json.dumps(schema.encode(value), indent=1, allow_nan=False)
    with atomic_write(path) as stream:
        stream.write(text.encode() + b"\n")


def row_lines(value: dict[str, Any], rows: str) -> bytes:
    """A JSON document with a line for each item of the list ``value[rows]``, one for the rest."""
    lines = ",\n".join(_compact(item) for item in value[rows])
    rest = _compact({key: item for key, item in value.items() if key != rows})[1:-1]
    text = f'{{{rest}{"," if rest else ""}"{rows}":[\n{lines}\n]}}\n'
    return text.encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def write_gzip(path: Path, data: bytes) -> None:
    """Write ``data`` atomically, gzip-compressed; equal data makes equal files."""
    with atomic_write(path) as stream:
        stream.write(gzip.compress(data, mtime=0))


def read_json(path: Path) -> Any:
    """Read JSON, plain or gzip-compressed, by its content; RecordError with what is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        if data.startswith(_GZIP_MAGIC):
            data = gzip.decompress(data)
        return json.loads(data.decode())
    except (EOFError, OSError, zlib.error) as error:
        raise RecordError(f"{path} is not a whole gzip file: {error}") from error
    except ValueError as error:
        raise RecordError(f"{path} is not valid JSON: {error}") from error


def read_document(
    path: Path, kind: type[T], wanted: str, called: str, hint: str | None = None
) -> T:
    """A value of a dataclass from a JSON file that names its schema.

    Args:
        path: The file, plain or gzip-compressed.
        kind: The dataclass.
        wanted: The schema.
        called: What such a file is, for the error.
        hint: What to do about it.

    Raises:
        RecordError: If the file is absent, of another schema, or lacks a field.
    """
    value = read_json(path)
    found = value.get("schema") if isinstance(value, dict) else None
    if found != wanted:
        what = f"of this version (schema {found!r}, expected {wanted!r})"
        raise RecordError(f"{path} is not a {called} {what}", hint)
    try:
        return schema.decode(kind, value)
    except schema.SchemaError as error:
        raise RecordError(f"{path} is not a valid {called}: {error}", hint) from error


def read_each(paths: Iterable[Path], read: Callable[[Path], T]) -> tuple[list[T], list[str]]:
    """What can be read of these files, in their order, and a line for each that cannot."""
    found: list[T] = []
    broken: list[str] = []
    for path in paths:
        try:
            found.append(read(path))
        except RecordError as error:
            broken.append(str(error))
    return found, broken
