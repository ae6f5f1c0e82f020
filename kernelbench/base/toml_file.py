"""TOML files that a user writes, read field by field with errors that name file, line and field."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.base.files import user_text

_AT_LINE = re.compile(r"^(?P<what>.*?) \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class TomlTable:
    """One table of a TOML file; every field is taken once, and :meth:`done` refuses the rest.

    Args:
        file: The file, for messages.
        values: The table's content.
        prefix: Dotted path of the table inside the file, e.g. ``reported.``; empty for the root.
    """

    def __init__(self, file: Path, values: dict[str, Any], prefix: str = "") -> None:
        self.file = file
        self._left = dict(values)
        self._fields = ", ".join(values) or "no field"
        self._known: list[str] = []
        self._prefix = prefix

    @classmethod
    def read(cls, file: Path) -> TomlTable:
        """Parse a file; UsageError, with its line, if it is absent or no TOML."""
        text = user_text(file)
        try:
            return cls(file, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            match = _AT_LINE.match(str(error))
            what = match["what"] if match else str(error)
            line = match["line"] if match and match["line"] else str(text.count("\n") + 1)
            raise UsageError(f"{file}:{line}: not valid TOML: {what}") from error

    def fail(self, name: str, expectation: str, hint: str | None = None) -> UsageError:
        """The error for a field that is missing or not as expected.

        Args:
            name: The field.
            expectation: What is wrong with it, or what it should be.
            hint: What to do about it, where the expectation does not say it.
        """
        return UsageError(f"{self.file}: field '{self._prefix}{name}': {expectation}", hint)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, expectation: str, required: bool = False) -> Any:
        """The raw value, or None where the field is absent and not required.

        Args:
            name: The field.
            expectation: What it should be, for the error.
            required: Whether it must be there.
        """
        self._known.append(name)
        if name not in self._left:
            if required:
                there = f"the fields there: {self._fields}"
                raise self.fail(name, f"missing, expected {expectation}", there)
            return None
        return self._left.pop(name)

    def string(
        self, name: str, default: str | None = None, choices: Collection[str] | None = None
    ) -> str:
        """A string without surrounding white space; required where there is no default.

        Args:
            name: The field.
            default: What stands for an absent field; None makes it required.
            choices: The strings that it may be; any if None.
        """
        expectation = f"one of {', '.join(choices)}" if choices else "a non-empty string"
        value = self.take(name, expectation, required=default is None)
        if value is None:
            return default or ""
        if not isinstance(value, str) or not value.strip() or (choices and value not in choices):
            raise self.fail(name, f"expected {expectation}, found {value!r}")
        return value.strip()

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of non-empty strings; empty where the field is absent."""
        value = self.take(name, "a list, each a non-empty string")
        if value is None:
            return ()
        good = isinstance(value, list) and all(
            isinstance(item, str) and item.strip() for item in value
        )
        if not good:
            raise self.fail(name, f"expected a list, each a non-empty string, found {value!r}")
        return tuple(value)

    def table(self, name: str) -> TomlTable | None:
        """A sub-table, or None where it is absent."""
        value = self.take(name, "a table")
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fail(name, f"expected a table, found {value!r}")
        return TomlTable(self.file, value, f"{self._prefix}{name}.")

    def tables(self, name: str) -> list[TomlTable]:
        """An array of tables; empty where the field is absent."""
        value = self.take(name, "an array of tables")
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.fail(name, f"expected an array of tables, found {value!r}")
        return [
            TomlTable(self.file, item, f"{self._prefix}{name}[{i}].")
            for i, item in enumerate(value)
        ]

    def settings(self, name: str) -> dict[str, Any]:
        """A free-form table of strings, numbers, booleans and flat lists of them."""
        table = self.table(name)
        if table is None:
            return {}
        for key, value in table._left.items():
            items = value if isinstance(value, list) else [value]
            if not all(isinstance(item, (str, int, float, bool)) for item in items):
                raise table.fail(key, f"expected a scalar or a list of scalars, found {value!r}")
        return dict(table._left)

    def numbers(self, name: str) -> dict[str, float]:
        """A table of positive finite numbers; empty where it is absent."""
        table = self.table(name)
        if table is None:
            return {}
        for key, value in table._left.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < float("inf"):
                raise table.fail(key, f"expected a positive number, found {value!r}")
        return {key: float(value) for key, value in table._left.items()}

    def done(self) -> None:
        """Refuse fields that nobody took: UsageError, with the nearest known field."""
        for name in self._left:
            close = difflib.get_close_matches(name, self._known, n=1)
            known = ", ".join(self._known)
            hint = f"did you mean '{close[0]}'?" if close else f"known fields: {known}"
            raise UsageError(f"{self.file}: unknown field '{self._prefix}{name}'", hint)


def toml_table(values: Mapping[str, Any]) -> str:
    """The lines of a table of strings, numbers, booleans and flat lists."""
    return "".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in values.items())


def toml_key(key: str) -> str:
    """A key, quoted if it has to be."""
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    """A value; JSON's are TOML's but for one character. A string is also one of YAML and Python."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
