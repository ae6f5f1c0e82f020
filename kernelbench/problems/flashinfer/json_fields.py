"""JSON files of other people, read field by field with errors that name file, line and pointer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.base.files import user_text


class JsonFields:
    """One object of a JSON file; a pointer (RFC 6901) says where it is.

    Args:
        where: The file, with a line number for a line of JSONL.
        value: What the file has there.
        pointer: From the file's root; empty for the root itself.

    Raises:
        UsageError: If the value is no object.
    """

    def __init__(self, where: str, value: Any, pointer: str = "") -> None:
        self.where = where
        self.pointer = pointer
        if not isinstance(value, dict):
            raise UsageError(f"{where}: {pointer or '/'}: expected an object, found {_kind(value)}")
        self.values: dict[str, Any] = value

    def fail(self, name: str, reason: str) -> UsageError:
        """The error for a field."""
        return UsageError(f"{self.where}: {self.pointer}/{_escaped(name)}: {reason}")

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self.values.get(name) is not None

    def string(self, name: str, default: str | None = None) -> str:
        """A non-empty string; required where there is no default."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value.strip():
            raise self.fail(name, f"expected a non-empty string, found {_kind(value)}")
        return value

    def text(self, name: str) -> str:
        """A string that may be empty, and is where the field is absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise self.fail(name, f"expected a string, found {_kind(value)}")
        return value or ""

    def boolean(self, name: str) -> bool | None:
        """True or false; None where the field is absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.fail(name, f"expected true or false, found {_kind(value)}")
        return value

    def integer(self, name: str) -> int:
        """A whole number of 0 or more."""
        value = self.values.get(name)
        if type(value) is not int or value < 0:
            raise self.fail(name, f"expected an integer of 0 or more, found {_kind(value)}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number of 0 or more; required where there is no default."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
            return float(value)
        raise self.fail(name, f"expected a number of 0 or more, found {_kind(value)}")

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty where the field is absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(name, f"expected a list of strings, found {_kind(value)}")
        return tuple(value)

    def object(self, name: str) -> JsonFields:
        """The object that a field holds; required."""
        if name not in self.values:
            raise self.fail(name, "missing, expected an object")
        return JsonFields(self.where, self.values[name], f"{self.pointer}/{_escaped(name)}")

    def objects(self, name: str) -> Iterator[tuple[str, JsonFields]]:
        """The objects that an object holds, by name."""
        inner = self.object(name)
        for key, value in inner.values.items():
            yield key, JsonFields(self.where, value, f"{inner.pointer}/{_escaped(key)}")

    def listed(self, name: str) -> list[JsonFields]:
        """The objects of a list that is not empty."""
        value = self.values.get(name)
        if not isinstance(value, list) or not value:
            raise self.fail(name, f"expected a list of objects, found {_kind(value)}")
        pointer = f"{self.pointer}/{_escaped(name)}"
        return [JsonFields(self.where, item, f"{pointer}/{i}") for i, item in enumerate(value)]


def read_object(path: Path) -> JsonFields:
    """The object that a JSON file is; UsageError, with the line, if it is not one whole object."""
    return JsonFields(str(path), _parsed(path, user_text(path), 1))


def read_lines(path: Path) -> list[JsonFields]:
    """The objects of a JSONL file, empty lines passed over; UsageError if one is none."""
    found = []
    for number, line in enumerate(user_text(path).splitlines(), 1):
        if line.strip():
            found.append(JsonFields(f"{path}:{number}", _parsed(path, line, number)))
    return found


def _parsed(path: Path, text: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        rest = text[error.pos :].strip()
        reason = error.msg if rest else "it ends too early"
        raise UsageError(f"{path}:{line}: not valid JSON: {reason}") from None


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
