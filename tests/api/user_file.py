"""A user's file, as ``mypy --strict`` reads it in ``make check``; nothing here is run.

Each ``type: ignore`` stands for a mistake that the types refuse: strict mypy wants none in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, assert_type

import kernelbench


class Watching(kernelbench.Observer):
    """Told of rows."""

    def row(self, row: kernelbench.Result) -> None:
        """One row."""
        judged = Literal["pass", "wrong", "hang", "fault", "skipped"]
        assert_type(row.status, judged | Literal["problem", "reference", "machine", "harness"])
        assert_type(row.max_abs_err, float | None)


def test_speed() -> None:
    """As a user's pytest would be."""
    record = kernelbench.run("v22", "A", reps=100, seed=3, observer=Watching())
    assert_type(record, kernelbench.RunRecord)
    assert_type(record.failures, tuple[kernelbench.Result, ...])
    assert_type(record.rows(), list[dict[str, Any]])
    assert not record.failures
    try:
        comparison = kernelbench.ab("v21", Path("mine.py"), ["A", "B"], metric="call", margin=0.01)
    except kernelbench.NotTimed as error:
        assert_type(error.partial, kernelbench.Comparison)
        raise
    assert "SLOWER" not in comparison.verdicts.values()
    report = kernelbench.check(["v21", "v22"], schedules=20, sms=(1, 148), mma_rounding="hardware")
    assert_type(report, kernelbench.CheckReport)
    assert_type(kernelbench.load("v00"), Callable[[Any], Any])


def test_mistakes() -> None:
    """What the types refuse."""
    kernelbench.run(22)  # type: ignore[arg-type]
    kernelbench.run("v22", call="twice")  # type: ignore[arg-type]
    kernelbench.run("v22", l2="hot")  # type: ignore[arg-type]
    kernelbench.run("v22", repetitions=3)  # type: ignore[call-arg]
    kernelbench.ab("v21")  # type: ignore[call-arg]
    kernelbench.check("v22", observer=print)  # type: ignore[arg-type]
    kernelbench.walk("v22")  # type: ignore[attr-defined]
