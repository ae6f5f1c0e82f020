"""Dataclasses to and from JSON, validated on reading.

A record is a frozen dataclass whose fields are str, int, float, bool, None, tuples, dicts with str
keys, other dataclasses, or unions of these. :func:`decode` refuses unknown and missing fields and
wrong types, and says which one and where, so that a foreign or truncated file is never half-read.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

#: Key of a field's metadata, whose value is its :class:`Columns`.
COLUMNS = "columns"


@dataclasses.dataclass(frozen=True)
class Columns:
    """How a field that is a map is written: each entry is a field of the object in JSON."""

    names: Mapping[str, str]  #: From key to the name in JSON; a map has no other keys.
    #: Keys whose name is always there, with null where the map has no such entry.
    required: Collection[str]

    def encoded(self, items: Mapping[str, Any]) -> dict[str, Any]:
        """The fields in JSON of a map."""
        shown = (key for key in self.names if key in items or key in self.required)
        return {self.names[key]: items.get(key) for key in shown}


class SchemaError(ValueError):
    """A value does not fit the schema; the message starts with the path of the field."""


def encode(value: Any) -> Any:
    """The JSON value (dict, list, str, number, bool, None) of a record.

    Non-finite floats become None: JSON has none, and a reader must not take them for numbers.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            columns, item = field.metadata.get(COLUMNS), encode(getattr(value, field.name))
            found |= {field.name: item} if columns is None else columns.encoded(item)
        return found
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def decode(cls: type[T], value: Any, path: str = "", *, every_field: bool = False) -> T:
    """Build ``cls`` from a JSON value.

    Args:
        cls: A dataclass.
        value: What JSON gave.
        path: What the message calls the value; ``record`` if empty.
        every_field: Whether a field with a default must be there too.

    Raises:
        SchemaError: With the path of the first field that is unknown, missing or of a wrong type.
    """
    return typing.cast(T, _load(cls, value, path or "record", every_field))


def _load(kind: Any, value: Any, path: str, full: bool) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        if value is None and type(None) in options:
            return None
        errors = []
        for option in options:
            if option is type(None):
                continue
            try:
                return _load(option, value, path, full)
            except SchemaError as error:
                errors.append(str(error))
        raise SchemaError(errors[0])
    if origin is typing.Literal:
        if value not in typing.get_args(kind):
            raise SchemaError(f"{path}: {value!r} is not one of {list(typing.get_args(kind))}")
        return value
    if dataclasses.is_dataclass(kind):
        return _load_dataclass(kind, value, path, full)
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise SchemaError(f"{path}: expected a list, found {type(value).__name__}")
        args = typing.get_args(kind)
        if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
            if len(args) != len(value):
                raise SchemaError(f"{path}: expected {len(args)} items, found {len(value)}")
            return tuple(
                _load(arg, item, f"{path}[{i}]", full)
                for i, (arg, item) in enumerate(zip(args, value, strict=True))
            )
        items = [_load(args[0], item, f"{path}[{i}]", full) for i, item in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if origin is dict:
        if not isinstance(value, dict):
            raise SchemaError(f"{path}: expected an object, found {type(value).__name__}")
        item_kind = typing.get_args(kind)[1]
        return {k: _load(item_kind, v, f"{path}.{k}", full) for k, v in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise SchemaError(f"{path}: expected {kind.__name__}, found {type(value).__name__}")
    if kind is float and not math.isfinite(value):
        # Python's JSON reads NaN and Infinity; no comparison with a limit would ever fail on NaN.
        raise SchemaError(f"{path}: expected a finite number, found {value}")
    return value


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """A class's resolved annotations, once: a results folder has thousands of its instances."""
    return typing.get_type_hints(kind)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _load_dataclass(kind: Any, value: Any, path: str, full: bool) -> Any:
    if not isinstance(value, dict):
        raise SchemaError(f"{path}: expected an object, found {type(value).__name__}")
    hints = _hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    maps = {f.name: f.metadata[COLUMNS] for f in fields.values() if COLUMNS in f.metadata}
    known = {*fields, *(name for columns in maps.values() for name in columns.names.values())}
    unknown = sorted(set(value) - (known - set(maps)))
    if unknown:
        raise SchemaError(f"{path}: unknown field {unknown[0]!r}")
    arguments: dict[str, Any] = {}
    for name, field in fields.items():
        if name in maps:
            arguments[name] = _load_columns(maps[name], hints[name], value, path, full)
        elif name in value:
            arguments[name] = _load(hints[name], value[name], f"{path}.{name}", full)
        elif full or _is_required(field):
            raise SchemaError(f"{path}: missing field {name!r}")
    return kind(**arguments)


def _load_columns(columns: Columns, kind: Any, value: Any, path: str, full: bool) -> dict[str, Any]:
    """The map whose entries are fields of ``value``."""
    found: dict[str, Any] = {}
    for key, name in columns.names.items():
        if name not in value:
            if full and key in columns.required:
                raise SchemaError(f"{path}: missing field {name!r}")
        elif value[name] is not None:
            found[key] = _load(typing.get_args(kind)[1], value[name], f"{path}.{name}", full)
    return found
