"""What is ordered before what: by phases, within scopes, by whichever lane is elected."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

FILE = "order_kernels.cu"
Emulated = Callable[..., Any]
WAITERS = ("elected waits", "lanes in turn", "out of step")
SEEDS = range(20)


def call(of: Any, name: str, out: np.ndarray, *arguments: Any) -> tuple[int, str]:
    """Run one of the file's kernels; status and message."""
    of.register(out, "out", writable=True)
    message = ctypes.create_string_buffer(256)
    status = getattr(of.lib, name)(*arguments, ctypes.c_void_p(out.ctypes.data), message)
    return status, message.value.decode()


def kinds(of: Any) -> set[str]:
    return {each["class"] for each in of.findings()}


@pytest.mark.parametrize("waiters", ["elected waits", "lanes in turn"])
def test_a_phase_is_meant_by_what_a_thread_knows(emulated: Emulated, waiters: str) -> None:
    """A lane's own waits do not say which phase it means."""
    for count in (2, 7, 12):
        for seed in SEEDS:
            of = emulated(FILE, check=True, seed=seed)
            out = np.zeros(1, np.uint32)
            assert call(of, "run_hand_backs", out, count, WAITERS.index(waiters)) == (0, "")
            assert out[0] == count * (count - 1) // 2
            assert of.findings() == [], (count, seed)


def test_a_lane_that_is_not_in_step_is_lapped(emulated: Emulated) -> None:
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        call(of, "run_hand_backs", np.zeros(1, np.uint32), 12, WAITERS.index("out of step"))
        assert kinds(of) & {"race", "phase", "hang"}, seed


def exchange_in_pair(of: Any, fault: int) -> None:
    out = np.zeros(4, np.uint32)
    assert call(of, "run_exchange_in_pair", out, fault) == (0, "")
    assert out.tolist() == [2, 1] * 2


@pytest.mark.parametrize(
    ("right", "fault", "kind"), [(0, 1, "race"), (3, 4, "early-read")], ids=["arrival", "st.async"]
)
def test_an_acquire_reaches_as_far_as_its_scope(
    emulated: Emulated, right: int, fault: int, kind: str
) -> None:
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        exchange_in_pair(of, right)
        assert of.findings() == [], seed
        of.configure(seed=seed)
        exchange_in_pair(of, fault)
        (found,) = of.findings()
        assert (found["class"], found["shared_name"]) == (kind, "value"), seed
        assert "acquires at scope cta" in found["text"]


def test_ctas_that_count_are_interleaved(emulated: Emulated) -> None:
    """In half of the schedules, though the launch is not cooperative."""
    seen = []
    for seed in range(4 * len(SEEDS)):
        of = emulated(FILE, check=True, seed=seed)
        words = np.zeros(9, np.uint32)
        assert call(of, "run_look_back", words) == (0, ""), seed
        assert of.findings() == [], seed
        assert words[:4].tolist() == [2] * 4 and set(words[6:]) <= {1, 2}
        seen.append(1 in words[6:])
    assert 0 < sum(seen) < len(seen)


def test_a_cta_may_wait_for_one_of_lower_index(emulated: Emulated) -> None:
    hangs = 0
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        words = np.zeros(8, np.uint32)
        assert call(of, "run_in_turn", words, 4, 32, 0) == (0, ""), seed
        assert (of.findings(), words[4:].tolist()) == ([], [1, 2, 3, 4]), seed
        of.configure(seed=seed)
        call(of, "run_in_turn", np.zeros(8, np.uint32), 4, 32, 1)
        hangs += kinds(of) == {"hang"}
    assert hangs > len(SEEDS) / 2


def test_ctas_that_wait_may_have_more_threads_than_a_process_has_mappings(
    emulated: Emulated,
) -> None:
    """Each stack with a guard page is two, of 65530; the first that starts waits for all below."""
    words = np.zeros(80, np.uint32)
    of = emulated(FILE, check=True, seed=2, sms=40, os_threads=1)
    assert call(of, "run_in_turn", words, 40, 1024, 0) == (0, "")
    assert words[40:].tolist() == list(range(1, 41))


def test_a_thread_that_has_exited_stands_for_no_other(emulated: Emulated) -> None:
    """Its arrival on the cluster's barrier counts while it runs."""
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        out = np.zeros(32, np.uint32)
        assert call(of, "run_arrive_and_exit", out) == (0, "")
        assert (of.findings(), out.tolist()) == ([], [7] * 32), seed


LAST_FAULTS = ("fenced", "cta fence", "no fence", "no fence after")


def last_cta(of: Any, fault: str, clears: bool = False) -> list[dict[str, Any]]:
    """The findings of a launch whose last CTA does something for all; words: 4, a counter, out."""
    words = np.zeros(9, np.uint32)
    if clears:
        words[0] = 7
    assert call(of, "run_last", words, clears, LAST_FAULTS.index(fault)) == (0, "")
    if clears:
        assert words.tolist() == [0, 0, 0, 0, 4] + [7] * 4
    else:
        assert words[5] == 10
    found: list[dict[str, Any]] = of.findings()
    return found


def test_the_last_cta_is_ordered_behind_fences_at_gpu_scope(emulated: Emulated) -> None:
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        assert last_cta(of, "fenced") == []
        assert of.report()["assumptions"] == []
    assert last_cta(emulated(FILE), "fenced") == []


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("cta fence", "scope that does not reach this one"),
        ("no fence", "without order"),
        ("no fence after", "no fence follows the atomic"),
    ],
)
def test_a_fence_that_does_not_reach_other_ctas_is_found(
    emulated: Emulated, fault: str, why: str
) -> None:
    for seed in SEEDS:
        (found,) = last_cta(emulated(FILE, check=True, seed=seed), fault)
        assert found["class"] == "race" and found["function"] == "sum_by_last"
        assert why in found["text"]


def test_the_last_cta_may_clear_what_all_have_read(emulated: Emulated) -> None:
    """The store needs no fence behind the atomic: it depends on it, which is an assumption."""
    of = emulated(FILE, check=True)
    assert last_cta(of, "fenced", clears=True) == []
    assert of.report()["assumptions"] == ["dependent-stores"]
    for fault in ("cta fence", "no fence"):
        (found,) = last_cta(emulated(FILE, check=True), fault, clears=True)
        assert "writes out that another CTA reads" in found["text"]


def test_the_lane_that_is_elected_has_to_acquire(emulated: Emulated) -> None:
    """With lane 0 alone the fault cannot be seen: half of the schedules elect another."""
    found = 0
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        exchange_in_pair(of, 2)
        found += bool(kinds(of) & {"race", "unwritten"})
    assert len(SEEDS) / 4 < found < len(SEEDS)


REFILL_FAULTS = ("reader fences", "nobody fences", "no order")


@pytest.mark.parametrize(
    ("fault", "found", "assumed"),
    [
        ("reader fences", False, []),
        ("nobody fences", False, ["reads-before-async"]),
        ("no order", True, []),
    ],
)
def test_a_read_before_an_async_write(
    emulated: Emulated, fault: str, found: bool, assumed: list[str]
) -> None:
    """By the letter a fence stands between: the order alone is an assumption."""
    seeds_with = 0
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        words = np.arange(64, dtype=np.uint32)
        of.register(words, "in")
        out = np.zeros(64, np.uint32)
        place = ctypes.c_void_p(words.ctypes.data)
        status = call(of, "run_refill", out, place, REFILL_FAULTS.index(fault))
        if not found:
            assert status == (0, ""), seed
            assert (out == words).all(), seed
            assert of.report()["assumptions"] == assumed, seed
        # A reader that is lapped waits for ever; one that reads before the copy sees nothing.
        seeds_with += bool(kinds(of) & {"overwrite", "hang"})
    assert seeds_with > len(SEEDS) / 4 if found else seeds_with == 0


def test_an_election_is_the_same_for_a_mask(emulated: Emulated) -> None:
    elected = set()
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        out = np.zeros(3, np.uint32)
        assert call(of, "run_elect_three", out) == (0, "")
        assert out[0] == out[2] < 32 and 8 <= out[1] < 16
        elected.add(tuple(out.tolist()))
    assert (0, 8, 0) in elected and len(elected) > 3
    of = emulated(FILE)
    call(of, "run_elect_three", out)
    assert out.tolist() == [0, 8, 0]  # as on an H200


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_host_code_may_have_local_statics(emulated: Emulated, check: bool) -> None:
    of = emulated(FILE, check=check)
    out = np.full(1, 40, np.uint32)
    call(of, "run_local_static", out)
    first = int(out[0])
    assert call(of, "run_local_static", out) == (0, "")
    assert (out[0], kinds(of)) == (first + 1, set())
