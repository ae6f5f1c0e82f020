"""Rows of saved runs: the newest of each kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernelbench.records.run_record import Result, RunRecord


@dataclass(frozen=True)
class Saved:
    """One row of a saved run, with where it came from."""

    run: RunRecord
    result: Result


def latest(runs: Iterable[RunRecord]) -> list[Saved]:
    """The newest row per step, shape, input class, executor and L2 mode, in order of appearance."""
    newest: dict[tuple[str, ...], Saved] = {}
    for run in runs:
        for result in run.results:
            key = (
                result.step,
                result.shape,
                result.inputs,
                result.executor,
                run.protocol.l2,
                run.protocol.call,
            )
            newest[key] = Saved(run, result)
    return [newest[key] for key in sorted(newest, key=natural)]


def natural(key: tuple[str, ...]) -> tuple[Any, ...]:
    """A sort key that puts ``v2`` before ``v10``."""
    return tuple(
        tuple((0, int(p)) if p.isdigit() else (1, p) for p in re.findall(r"\d+|\D+", part))
        for part in key
    )
