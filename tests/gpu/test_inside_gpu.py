"""Time of a step inside a graph, on a real GPU."""

from __future__ import annotations

import pytest

import kernelbench

pytestmark = pytest.mark.gpu


def test_a_step_has_a_time_between_other_kernels() -> None:
    record = kernelbench.run(
        "m05", "qwen35", inputs="random", metrics=("device", "inside"), reps=50, seed=1
    )
    (row,) = record.results
    assert row.status == "pass", row.reason
    inside, device = row.metrics["inside"], row.metrics["device"]
    assert inside.method == "graph" and inside.reps == 50
    # Behind other kernels, whose ends and begins hide some of what a graph of its own shows.
    assert 0.2 * device.median < inside.median < 2 * device.median
    assert any("inside a graph" in note for note in row.notes)
