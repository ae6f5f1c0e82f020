"""Mutants that no execution can tell from their step, shown after they had not been found."""

from __future__ import annotations

import tomllib
from pathlib import Path

SAME_AT_EQUALITY = "It chooses the smaller or the larger of two: where they are equal, they are."
#: Why, by operator, file, line and code.
BY_HAND = {
    (operator, file, line, code): str(each["reason"])
    for each in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["equivalent"]
    for operator, file, lines, code in each["places"]
    for line in lines
}
#: All reasons.
LATE = {SAME_AT_EQUALITY, *BY_HAND.values()}
