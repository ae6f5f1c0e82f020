"""Cases that hang, fail or were not run are told apart, and a hang has a bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelbench.bringup.parity_runner import (
    MAX_TIMEOUTS,
    POISON,
    ParityCase,
    Ran,
    difference,
    run,
    written,
)

WORKS = {name: ParityCase("case", b"\0\0\0\0", 4) for name in ("a", "b", "c", "d")}


def test_processes_that_do_not_end_are_ended_and_the_rest_is_given_up(tmp_path: Path) -> None:
    # No Python starts within a millisecond.
    ran = run(tmp_path / "none.so", WORKS, limit_s=0.001)
    assert [found.timed_out for found in ran.values()] == [True] * MAX_TIMEOUTS + [False] * 2
    assert [found.started for found in ran.values()] == [True] * MAX_TIMEOUTS + [False] * 2
    assert ran["a"].error == "did not end within 0.001 s"
    assert ran["d"].error.startswith("not run: ")


def test_a_process_that_fails_costs_one_case(tmp_path: Path) -> None:
    ran = run(tmp_path / "none.so", {"a": WORKS["a"]})
    assert not ran["a"].timed_out
    assert "none.so" in ran["a"].error


@pytest.mark.parametrize(
    ("out", "found"),
    [
        ([1, 2], ""),
        ([1, 3], "1 of 2 words: [1] 0x00000003, not 0x00000002"),
        ([1], "1 words, not 2"),
    ],
)
def test_the_first_difference_is_shown(out: list[int], found: str) -> None:
    wanted = np.array([1, 2], np.uint32)
    assert difference(Ran(np.array(out, np.uint32), ""), wanted) == found


def test_nans_are_one_only_where_asked() -> None:
    seen, wanted = np.array([0x7FC00000], np.uint32), np.array([0x7FFFFFFF], np.uint32)
    assert difference(Ran(seen, ""), wanted)
    assert not difference(Ran(seen, ""), wanted, any_nan=True)
    # A number is never a NaN.
    assert difference(Ran(np.array([0], np.uint32), ""), wanted, any_nan=True)


def test_an_output_that_nothing_wrote_is_known() -> None:
    assert not written(np.full(4, POISON))
    assert written(np.array([POISON, 0], np.uint32))
