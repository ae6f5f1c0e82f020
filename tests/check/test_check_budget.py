"""How a step's budget of time is divided, and on how many SMs the calls in sequence are made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelbench.checks import checker
from kernelbench.checks.checker import _Allotment, sequence_sms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(checker.time, "monotonic", lambda: now.s)
    return now


def test_what_a_case_leaves_or_overdraws_is_divided_over_the_others(clock: Any) -> None:
    allotment = _Allotment(60.0, cases=6, at_once=2)
    assert [allotment.take(1), allotment.take(1)] == [20.0, pytest.approx(24.0)]
    clock.s += 30  # both overdrew
    assert allotment.take(1) == pytest.approx(30 * 2 / 4)
    clock.s += 3
    assert allotment.take(1) == pytest.approx(27 * 2 / 3)
    clock.s += 20
    assert allotment.take(1) == pytest.approx(7.0)
    assert allotment.take(1) == pytest.approx(7.0)


def test_a_budget_that_is_over_leaves_one_round(clock: Any) -> None:
    allotment = _Allotment(1.0, cases=2, at_once=1)
    clock.s += 5
    assert 0 < allotment.take(1) < 0.01


def test_no_budget_is_no_limit(clock: Any) -> None:
    assert _Allotment(0.0, cases=2, at_once=1).take(1) == 0.0


@pytest.mark.parametrize(
    ("sms", "first", "second"),
    [((1, 2, 3, 4, 10, 148), 10, 4), ((2,), 2, 2), ((4, 1), 1, 1), ((1, 3, 8), 3, 3)],
)
def test_the_sequence_takes_many_sms_and_few_by_turns(
    sms: tuple[int, ...], first: int, second: int
) -> None:
    shapes = [SimpleNamespace(name=name) for name in ("u1", "skipped", "u2", "u3")]
    run: Any = SimpleNamespace(shapes=shapes, skip={"skipped": "too small"})
    found = [sequence_sms(run, shape, sms) for shape in shapes if shape.name != "skipped"]
    assert found == [first, second, first]
