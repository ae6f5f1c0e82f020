"""Which step of the lineage ``layer`` computes a call: the only place that says so.

The build exports every step that is named here, so that a faster one is another row.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Calls of up to ``tokens`` tokens, and beyond the row before, run ``step``."""

    tokens: int
    step: str


class Limits(NamedTuple):
    """The largest sizes that a step takes; ``routes`` are tokens times top-k."""

    tokens: int
    routes: int
    hidden: int
    intermediate: int
    experts: int
    topk: int


#: In ascending order. ``layer/README.md`` has the steps' times.
TABLE = (Row(4096, "l28"),)

_SIZES = Limits(4096, 32768, 16384, 16384, 512, 8)
LIMITS = {"l28": _SIZES}

#: Computes CPU tensors, in torch: for tests.
CPU_STEP = "l00"

#: Of hidden and intermediate sizes: weights have one scale for each BLOCK x BLOCK.
BLOCK = 128


def most_tokens(step: str) -> int:
    """Of the calls that a step of the table computes."""
    return max(row.tokens for row in TABLE if row.step == step)


def step_for(tokens: int) -> str:
    """The step for a call of so many tokens; empty beyond the table."""
    return next((row.step for row in TABLE if tokens <= row.tokens), "")
