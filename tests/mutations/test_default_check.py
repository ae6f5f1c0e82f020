"""The sample of mutants that the default check is tried on, and what counts as found."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import default_check
import pytest
from equivalents import LATE
from planted_check import Cores, first_findings


def row(status: str, kind: str = "", reason: str = "") -> dict[str, Any]:
    finding = {"kind": kind, "text": "so", "object": "full"}
    seen = [{"finding": finding, "calls": ""}] if kind else []
    return {"shape": "u1", "status": status, "reason": reason, "seen": seen}


@pytest.mark.long
def test_each_step_has_as_many_in_the_sample() -> None:
    drawn = default_check.draw(62, seed=1)
    assert set(Counter(each.step for each in drawn).values()) == {2}
    assert [each.id for each in drawn] == [each.id for each in default_check.draw(62, seed=1)]
    assert not any(each.gap or each.proof not in {"", *LATE} for each in drawn)


def test_the_class_is_that_of_the_first_finding() -> None:
    mutant = next(each for each in default_check.mutants(default_check.ROOT / "kernels/v01")
                  if each.operator == "init-count-plus")  # fmt: skip
    assert "hang" in mutant.expect.kinds
    assert default_check.class_right(mutant, row("hang", "hang"))
    assert not default_check.class_right(mutant, row("finding", "race"))
    assert not default_check.class_right(mutant, row("wrong"))


def test_clean_and_skipped_shapes_have_no_finding() -> None:
    rows = [row("clean"), row("skipped", reason="too small"), row("finding", "race", "a race")]
    assert first_findings({"steps": [{"rows": rows}]}) == ["u1: a race · race · so · full"]


def test_cores_are_handed_out_once() -> None:
    cores = Cores(1, 1)
    with cores.taken() as own:
        assert len(own) == 1 and own <= os.sched_getaffinity(0)
    with pytest.raises(SystemExit, match="take fewer"):
        Cores(1000, 1)
