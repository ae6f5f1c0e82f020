"""Shapes from a dataclass: its fields and their types say what ``shapes.yaml`` may hold."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Literal

from kernelbench.base.errors import UsageError
from kernelbench.project.shapes import ShapeFieldError, check_fields

_KNOWN = "int, float, bool, str, Literal[...], tuple[int, ...]"
_SEQUENCES = (tuple, list)


@dataclass(frozen=True)
class TensorShape:
    """One shape of a problem: its name, and the author's object with the fields."""

    name: str
    #: An object of the problem's ``Shape``; what its hooks are given.
    dims: Any = dataclass_field(hash=False)

    def describe(self) -> str:
        """Every field, e.g. ``rows=4096 columns=1024``."""
        return " ".join(
            f"{field.name}={_text(getattr(self.dims, field.name))}"
            for field in dataclasses.fields(self.dims)
        )


def as_dataclass(kind: Any) -> Any:
    """A class of fields as a frozen dataclass; TypeError for what is none, or a field's type."""
    if not isinstance(kind, type):
        raise TypeError(f"expected a class with fields, found {kind!r}")
    if not dataclasses.is_dataclass(kind):
        kind = dataclass(frozen=True)(kind)
    hints = typing.get_type_hints(kind)
    if not dataclasses.fields(kind):
        raise TypeError("has no fields: write their names and types, such as 'rows: int'")
    for field in dataclasses.fields(kind):
        if not _is_known(hints[field.name]):
            raise TypeError(f"field {field.name!r} has type {field.type}: expected {_KNOWN}")
    return kind


def parse_dims(kind: Any, fields: Mapping[str, Any]) -> Any:
    """An object of the dataclass ``kind`` from the fields of a ``shapes.yaml`` entry.

    Integers are positive; ``field(metadata={"minimum": 0})`` sets another bound. A tuple also takes
    one value. A field with a default may be left out.

    Raises:
        ShapeFieldError: With the field that is unknown, missing or of the wrong type.
        ValueError: What ``__post_init__`` of the dataclass raises.
    """
    own = [field for field in dataclasses.fields(kind) if field.init]
    required = [field.name for field in own if not _has_default(field)]
    check_fields(fields, required, [field.name for field in own if _has_default(field)])
    hints = typing.get_type_hints(kind)
    by_name = {field.name: field for field in own}
    return kind(
        **{
            name: _value(name, value, hints[name], by_name[name].metadata.get("minimum", 1))
            for name, value in fields.items()
        }
    )


def broken_dims_limit(problem: str, dims: Any, limits: Mapping[str, Any]) -> str:
    """Which of a step's ``[limits]`` a shape breaks, in one line; empty if none.

    ``max_FIELD``, ``min_FIELD`` and ``FIELD_multiple`` bound a field, or each value of a tuple.

    Raises:
        UsageError: For any other limit, so that none is passed over.
    """
    names = [field.name for field in dataclasses.fields(dims)]
    broken = ""
    for limit, bound in limits.items():
        kind, field = _limit_of(limit, names)
        if not kind or not isinstance(bound, int | float) or (kind == "multiple" and bound <= 0):
            known = ", ".join(f"max_{one}, min_{one}, {one}_multiple" for one in names)
            raise UsageError(
                f"limits.{limit} = {bound!r} in a step of {problem}",
                f"expected a number for {known}",
            )
        value = getattr(dims, field)
        values = value if isinstance(value, _SEQUENCES) else (value,)
        if kind == "max" and any(one > bound for one in values):
            broken = broken or f"takes {field} up to {bound} (limits.{limit})"
        elif kind == "min" and any(one < bound for one in values):
            broken = broken or f"takes {field} of at least {bound} (limits.{limit})"
        elif kind == "multiple" and any(one % bound for one in values):
            broken = broken or f"needs {field} to be a multiple of {bound} (limits.{limit})"
    return broken


def _limit_of(limit: str, names: list[str]) -> tuple[str, str]:
    for name in names:
        for kind, spelled in (
            ("max", f"max_{name}"), ("min", f"min_{name}"), ("multiple", f"{name}_multiple"),
        ):  # fmt: skip
            if limit == spelled:
                return kind, name
    return "", ""


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _is_known(hint: Any) -> bool:
    if hint in (int, float, bool, str) or typing.get_origin(hint) is Literal:
        return True
    item = _item_of(hint)
    return item is not None and item in (int, float, bool, str)


def _item_of(hint: Any) -> Any:
    """The type of a tuple's values, or None if ``hint`` is no tuple or list of one type."""
    if typing.get_origin(hint) not in _SEQUENCES:
        return None
    items = [one for one in typing.get_args(hint) if one is not Ellipsis]
    return items[0] if len(items) == 1 else None


def _value(field: str, value: Any, hint: Any, minimum: Any) -> Any:
    item = _item_of(hint)
    if item is not None:
        values = value if isinstance(value, _SEQUENCES) else [value]
        if not values:
            raise ShapeFieldError(field, f"{field} is empty: expected at least one value")
        return tuple(_value(field, one, item, minimum) for one in values)
    if typing.get_origin(hint) is Literal:
        known = typing.get_args(hint)
        if value not in known:
            words = ", ".join(map(str, known))
            raise ShapeFieldError(field, f"{field} is {value!r}: expected one of {words}")
        return value
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        expected = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
        raise ShapeFieldError(field, f"{field} must be {expected[hint]}, found {value!r}")
    if hint is int and value < minimum:
        raise ShapeFieldError(field, f"{field} must be {minimum} or more, found {value!r}")
    if hint is float and not abs(value) < float("inf"):
        raise ShapeFieldError(field, f"{field} must be finite, found {value!r}")
    return value


def _text(value: Any) -> str:
    if isinstance(value, types.NoneType):
        return "none"
    return ",".join(map(_text, value)) if isinstance(value, _SEQUENCES) else str(value)
