"""Delta debugging of decisions, on lists of which it is known what matters."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kernelbench.emulator.decisions import Decision, OutOfTime, fewest, in_words


def decisions(count: int) -> list[Decision]:
    return [(0, 0, number % 5 - 1, number, 1) for number in range(count)]


@pytest.mark.parametrize("needed", [(), (0,), (999,), (3, 500, 501), (10, 11, 12, 900)])
def test_what_is_needed_is_left(needed: tuple[int, ...]) -> None:
    every = decisions(1000)
    wanted = {every[i] for i in needed}
    trials = 0

    def shows(some: Sequence[Decision]) -> bool:
        nonlocal trials
        trials += 1
        return wanted <= set(some)

    assert fewest(every, shows) == [every[i] for i in needed]
    assert trials < 150


def test_none_can_be_left_out_of_what_is_found() -> None:
    """Also where it is not monotonic: an odd number of some, and one of two others."""
    every = decisions(200)
    some = set(random.Random(3).sample(every, 40))

    def shows(tried: Sequence[Decision]) -> bool:
        odd = len(some & set(tried)) % 2 == len(some) % 2
        return odd and (every[7] in tried or every[90] in tried)

    assert shows(every)
    found = fewest(every, shows)
    assert shows(found)
    for each in found:
        assert not shows([other for other in found if other != each])


def test_the_best_so_far_is_left_when_time_is_over() -> None:
    every = decisions(1000)
    left = 4

    def shows(tried: Sequence[Decision]) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise OutOfTime
        return every[20] in tried

    found = fewest(every, shows)
    assert every[20] in found
    assert len(found) < 300


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ((0, 3, -1, 0, 0), "launch 0, cluster 3: what is asynchronous completes late"),
        ((0, 3, -1, 0, 2), "launch 0, cluster 3: what is asynchronous completes now and then"),
        ((1, 0, -1, 1, 4), "launch 1, cluster 0: warp 4 is held up until no other can run"),
        ((1, 0, -1, 9, 4), "launch 1, cluster 0: the scheduler's decision 9 is 4"),
        ((0, 0, 64, 2, 1), "launch 0, cluster 0: thread 64 gives way before its primitive 2"),
        ((2, 0, -2, 5, 1), "launch 2: place 5 of the clusters' order is changed with 1"),
        ((0, 0, -3, 255, 2), "of the lanes 0xff the one after 2 others is elected"),
    ],
)
def test_a_decision_is_said_in_words(decision: Decision, words: str) -> None:
    assert in_words(decision) == words
