"""JSON files: written whole or not at all, read with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernelbench.base import schema
from kernelbench.base.errors import RecordError
from kernelbench.base.files import atomic_write


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` (a record or JSON value) atomically as indented JSON."""
    text = json.dumps(schema.encode(value), indent=1, allow_nan=False)
    with atomic_write(path) as stream:
        stream.write(text.encode() + b"\n")


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        RecordError: If the file is absent or is not JSON, with its position.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(f"{path} is not valid JSON: {error}") from error
