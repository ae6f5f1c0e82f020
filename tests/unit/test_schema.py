"""Dataclasses to JSON and back, strictly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from kernelbench.base import schema
from kernelbench.base.schema import SchemaError


@dataclass(frozen=True)
class Inner:
    n: int
    ratio: float | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    kind: Literal["a", "b"]
    inner: Inner
    items: tuple[Inner, ...] = ()
    pair: tuple[float, float] | None = None
    flags: dict[str, bool] = field(default_factory=dict)
    anything: Any = None
    texts: list[str] = field(default_factory=list)


FULL = Outer(
    "x", "b", Inner(3, 0.5), (Inner(1), Inner(2)), (1.0, 2.0), {"t": True}, {"q": [1]}, ["s"]
)


def test_round_trip() -> None:
    assert schema.decode(Outer, schema.encode(FULL)) == FULL
    assert schema.decode(Outer, {"name": "x", "kind": "a", "inner": {"n": 1}}) == Outer(
        "x", "a", Inner(1)
    )


def test_an_integer_is_a_float_but_not_the_reverse() -> None:
    assert schema.decode(Inner, {"n": 1, "ratio": 2}) == Inner(1, 2.0)
    with pytest.raises(SchemaError, match=r"record\.n: expected int, found float"):
        schema.decode(Inner, {"n": 1.0})


def test_non_finite_floats_become_null() -> None:
    assert schema.encode(Inner(1, float("nan"))) == {"n": 1, "ratio": None}
    assert schema.encode((float("inf"), -0.0)) == [None, -0.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"extra": 1}, "record: unknown field 'extra'"),
        ({"name": 3}, "record.name: expected str, found int"),
        ({"name": None}, "record.name: expected str, found NoneType"),
        ({"kind": "c"}, "record.kind: 'c' is not one of ['a', 'b']"),
        ({"inner": []}, "record.inner: expected an object, found list"),
        ({"inner": {}}, "record.inner: missing field 'n'"),
        ({"inner": {"n": True}}, "record.inner.n: expected int, found bool"),
        ({"inner": {"n": 1, "ratio": "2"}}, "record.inner.ratio: expected float, found str"),
        ({"items": {}}, "record.items: expected a list, found dict"),
        ({"items": [{"n": 1}, {"n": "2"}]}, "record.items[1].n: expected int, found str"),
        ({"pair": [1.0]}, "record.pair: expected 2 items, found 1"),
        ({"pair": [1.0, "2"]}, "record.pair[1]: expected float, found str"),
        ({"flags": {"t": 1}}, "record.flags.t: expected bool, found int"),
        ({"flags": []}, "record.flags: expected an object, found list"),
        ({"texts": [1]}, "record.texts[0]: expected str, found int"),
        ({"pair": [1.0, math.nan]}, "record.pair[1]: expected a finite number, found nan"),
        (
            {"inner": {"n": 1, "ratio": math.inf}},
            "record.inner.ratio: expected a finite number, found inf",
        ),
    ],
)
def test_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        schema.decode(Outer, schema.encode(FULL) | change)
    assert str(caught.value) == said


@pytest.mark.parametrize("value", [None, 3, "text", [], [{}]])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError, match="record: expected an object"):
        schema.decode(Inner, value)


def test_a_missing_field_is_named() -> None:
    value = schema.encode(FULL)
    del value["kind"]
    with pytest.raises(SchemaError, match="record: missing field 'kind'"):
        schema.decode(Outer, value)


def test_an_unhashable_value_for_a_literal_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"record\.kind"):
        schema.decode(Outer, schema.encode(FULL) | {"kind": ["a"]})
