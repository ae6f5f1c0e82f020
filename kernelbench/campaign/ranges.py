"""Values and ranges of a campaign file: ``1..4096 by 2x``, ``1..9 by 2``, ``uniform``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_RANGE = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)(?:\s+by\s+(\d+)(x?))?\s*")


def values_of(entry: Any) -> list[Sequence[Any]]:
    """What a field of a shape goes through, in order, as parts that are not written out.

    Args:
        entry: A value, a range in words, or a list of both. A list in that list is one value, such
            as the rows of each group.

    Raises:
        ValueError: If there is no value, or a range is malformed or empty.
    """
    entries = entry if isinstance(entry, list) else [entry]
    if not entries:
        raise ValueError("an empty list")
    return [_part(each) for each in entries]


def _part(entry: Any) -> Sequence[Any]:
    if isinstance(entry, dict) or entry is None:
        raise ValueError(f"{entry!r} is no value; expected a number, a word or 1..4096 by 2x")
    if not (isinstance(entry, str) and ".." in entry):
        return (entry,)
    match = _RANGE.fullmatch(entry)
    if match is None:
        raise ValueError(f"{entry!r} is no range; expected 1..9, 1..9 by 2 or 1..4096 by 2x")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if first > last:
        raise ValueError(f"{entry!r} is empty: it goes from the smaller number to the larger")
    if not match[4]:
        if step < 1:
            raise ValueError(f"{entry!r} does not go on: expected a step of 1 or more")
        return range(first, last + 1, step)
    if step < 2 or first < 1:
        raise ValueError(f"{entry!r} does not grow: expected a factor from 2 and a start from 1")
    found = [first]
    while found[-1] * step <= last:
        found.append(found[-1] * step)
    return found
