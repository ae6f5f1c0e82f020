"""Run records of older schemas, brought up to date one version at a time.

A change of the schema adds one function here: it takes the JSON value of its version and gives that
of the next, with every figure as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_PREFIX = "kernelbench.run/"

#: Fields that records of schema 1 got in the course of time, with what their absence meant.
_LATER_ROW_FIELDS: dict[str, Any] = {
    "notes": [], "sol_us": None, "sm_mhz": None, "source_sha": "", "binary_sha": None,
    "rel_rms_err": None, "floor": None,
}  # fmt: skip
_LATER_FIELDS: dict[str, Any] = {"complete": True, "samples_file": None, "extra": {}}
_LATER_ENVIRONMENT: dict[str, Any] = {"gpu_processes": 0, "mig": False}
_LATER_PROTOCOL: dict[str, Any] = {"time_budget_s": None}


def _from_1(value: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 has every field in every record: what schema 1 left out is said."""
    filled = {**_LATER_FIELDS, **value, "schema": f"{_PREFIX}2"}
    for name, later in (("environment", _LATER_ENVIRONMENT), ("protocol", _LATER_PROTOCOL)):
        if isinstance(value.get(name), dict):
            filled[name] = {**later, **value[name]}
    rows = value.get("results")
    if isinstance(rows, list):
        filled["results"] = [
            {**_LATER_ROW_FIELDS, **row} if isinstance(row, dict) else row for row in rows
        ]
    return filled


def _from_2(value: dict[str, Any]) -> dict[str, Any]:
    """Schema 3 has four more statuses, of rows whose step was not judged; the others stay."""
    return {**value, "schema": f"{_PREFIX}3"}


#: By the version that it reads; each gives the next.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1, 2: _from_2}


def upgraded(value: dict[str, Any]) -> dict[str, Any]:
    """The value in the newest schema; as it is where its schema is unknown."""
    while (version := _version(value)) in UPGRADES:
        value = UPGRADES[version](value)
    return value


def _version(value: dict[str, Any]) -> int:
    found = re.fullmatch(re.escape(_PREFIX) + r"(\d+)", str(value.get("schema")))
    return int(found[1]) if found else 0
