"""Decisions of a schedule: kept ones repeat it, and fewer of them show the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from test_emu_core import FILE, ring

from kernelbench.emulator.decisions import Decision, fewest

Emulated = Callable[..., Any]


def outcome(of: Any, fault: str) -> Any:
    """Everything that a launch leaves but its time."""
    status, message, sums = ring(of, fault, ctas=2)
    report = {key: value for key, value in of.report().items() if key != "seconds"}
    return status, message, sums.tolist(), report


@pytest.mark.parametrize("fault", ["right", "no wait", "init race"])
def test_kept_decisions_repeat_a_schedule(
    emulated: Emulated, emulator_runtime: Any, fault: str
) -> None:
    kept_any = 0
    for seed in range(8):
        plain = outcome(emulated(FILE, check=True, seed=seed, os_threads=1), fault)
        of = emulated(FILE, check=True, seed=seed, os_threads=1)
        emulator_runtime.decide(None)
        assert outcome(of, fault) == plain, "keeping changes nothing"
        kept, made = emulator_runtime.decisions()
        assert len(kept) <= made
        kept_any += len(kept)
        # Another seed: what is not in the list must not come from it.
        of = emulated(FILE, check=True, seed=seed + 1000, os_threads=1)
        emulator_runtime.decide(kept)
        assert outcome(of, fault) == plain
    assert kept_any


def test_a_schedule_without_decisions_is_the_same_for_every_seed(
    emulated: Emulated, emulator_runtime: Any
) -> None:
    found = []
    for seed in range(3):
        of = emulated(FILE, check=True, seed=seed, os_threads=1)
        emulator_runtime.decide(())
        found.append(outcome(of, "right"))
    assert found[0] == found[1] == found[2]
    assert found[0][:2] == (0, "")


def test_few_decisions_make_a_lapped_waiter_hang(emulated: Emulated, emulator_runtime: Any) -> None:
    """Only a schedule that holds the summing warp up does: the usual one has no hang."""

    def hangs(decisions: Sequence[Decision] | None, seed: int = 0) -> bool:
        of = emulated(FILE, check=True, seed=seed, os_threads=1)
        emulator_runtime.decide(decisions)
        ring(of, "no wait", ctas=1)
        return any(each["class"] == "hang" for each in of.findings())

    seed = next(seed for seed in range(40) if hangs(None, seed))
    assert hangs(None, seed)
    kept, _ = emulator_runtime.decisions()
    assert not hangs(())
    found = fewest(kept, hangs)
    assert hangs(found)
    assert 0 < len(found) < len(kept) / 4
    for one in found:
        assert not hangs([each for each in found if each != one])
