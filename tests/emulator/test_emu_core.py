"""The emulator's core: right kernels give no finding, each faulty one gives its own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

FILE = "core_kernels.cu"
FAULTS = (
    "right",
    "no arrival",
    "no wait",
    "wrong parity",
    "two arrivals",
    "recursion",
    "wild store",
    "uninitialized",
    "init race",
    "reinit",
    "past the end",
    "divergent",
    "missing warp",
    "other count",
    "division",
    "read past the end",
    "same bytes",
    "too few expected",
    "no store",
    "misaligned",
    "vector beyond",
    "own array",
    "own array, too",
    "starts over",
)
Emulated = Callable[..., Any]


def ring(of: Any, fault: str, ctas: int = 3, count: int = 20) -> tuple[int, str, np.ndarray]:
    """Run the two-warp ring; status, message and the CTAs' sums."""
    out = np.zeros(ctas, np.uint32)
    of.register(out, "out", writable=True)
    message = ctypes.create_string_buffer(256)
    status = of.lib.run_ring(
        ctas, count, FAULTS.index(fault), ctypes.c_void_p(out.ctypes.data), message
    )
    return status, message.value.decode(), out


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_a_right_ring_sums_and_has_no_finding(emulated: Emulated, check: bool) -> None:
    of = emulated(FILE, check=check)
    status, message, sums = ring(of, "right")
    assert (status, message) == (0, "")
    assert sums.tolist() == [190] * 3
    assert of.findings() == []


def test_every_schedule_of_a_right_ring_is_clean(emulated: Emulated) -> None:
    for seed in range(60):
        of = emulated(FILE, check=True, seed=seed, sms=1 + seed % 4)
        _, message, sums = ring(of, "right")
        assert message == "" and sums.tolist() == [190] * 3, seed
        assert of.findings() == [], seed


def test_a_seed_gives_one_schedule_and_seeds_differ(emulated: Emulated) -> None:
    switches = []
    for seed in (1, 1, 2, 3, 4):
        of = emulated(FILE, check=True, seed=seed, os_threads=1)
        ring(of, "right")
        switches.append(of.report()["switches"])
    assert switches[0] == switches[1]
    assert len(set(switches)) > 1


@pytest.mark.parametrize(
    ("fault", "kind", "ends"),
    [
        ("no arrival", "hang", True),
        ("two arrivals", "arrival-count", True),
        ("recursion", "crash", True),
        ("wild store", "out-of-bounds", True),
        ("uninitialized", "barrier-state", True),
        ("reinit", "barrier-state", False),
        ("past the end", "out-of-bounds", True),
        ("divergent", "divergence", True),
        ("missing warp", "hang", True),
        ("other count", "named-barrier", True),
        ("division", "crash", True),
        ("read past the end", "out-of-bounds", True),
        ("same bytes", "race", False),
        ("too few expected", "arrival-count", True),
        ("no store", "unwritten", False),
        ("misaligned", "alignment", True),
        ("vector beyond", "out-of-bounds", True),
    ],
)
def test_a_fault_has_its_class(emulated: Emulated, fault: str, kind: str, ends: bool) -> None:
    # One schedule: in another the barrier of 32 threads is complete before those of 64 come.
    of = emulated(FILE, check=True, os_threads=1)
    status, message, _ = ring(of, fault)
    found = of.findings()
    assert kind in {each["class"] for each in found}
    assert (status == 2) is ends
    if ends:
        assert message.startswith(f"{kind}: ")


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("no wait", {"race", "phase", "hang"}),  # whoever is held up is lapped
        ("wrong parity", {"race", "phase", "hang"}),
        ("init race", {"barrier-state"}),
    ],
)
def test_a_fault_is_found_on_every_schedule(
    emulated: Emulated, fault: str, kinds: set[str]
) -> None:
    for seed in range(10):
        of = emulated(FILE, check=True, seed=seed)
        ring(of, fault)
        assert kinds & {each["class"] for each in of.findings()}, seed


def test_an_index_beyond_a_threads_own_array_is_found_where_nothing_else_is(
    emulated: Emulated,
) -> None:
    of = emulated(FILE, check=True)
    assert ring(of, "own array")[0] == 0
    (found,) = of.findings()
    assert (found["class"], found["role"]) == ("out-of-bounds", "ring")
    assert "index 4 of an array 'unsigned int [4]'" in found["text"]
    of = emulated(FILE, check=True)
    ring(of, "own array, too")
    assert {each["class"] for each in of.findings()} == {"race"}


def test_a_finding_names_line_role_and_object(emulated: Emulated) -> None:
    of = emulated(FILE, check=True, seed=1)  # which holds up nobody
    ring(of, "no wait")
    race = next(each for each in of.findings() if each["class"] == "race")
    assert {race["role"], race["other_role"]} == {"load_warp", "sum_warp"}
    assert race["shared_name"].startswith("slot")
    source = (of._source).read_text().splitlines()
    assert "slot[stage]" in source[race["line"] - 1]
    assert "slot[stage]" in source[race["other_line"] - 1]


def test_a_hang_says_who_waits_for_what(emulated: Emulated) -> None:
    of = emulated(FILE)
    status, message, _ = ring(of, "no arrival", ctas=1)
    assert status == 2 and "nothing can run" in message
    waits = of.report()["waits"]
    by_warp = {each["warp"]: each for each in waits}
    assert by_warp[0]["kind"] == "mbarrier"
    assert (by_warp[0]["object"], by_warp[0]["parity"]) == (16, 0)  # empty[0]
    assert (by_warp[0]["phase"], by_warp[0]["pending"], by_warp[0]["expected"]) == (0, 1, 1)
    assert by_warp[0]["lanes"] == 0xFFFFFFFF


def test_a_hang_says_who_has_skipped_a_phase(emulated: Emulated) -> None:
    of = emulated(FILE, check=True)
    assert ring(of, "starts over", ctas=1)[0] == 2
    waits = {each["warp"]: each for each in of.report()["waits"]}
    assert (waits[1]["object"], waits[1]["parity"], waits[1]["phase"]) == (0, 0, 2)  # full[0]
    assert (waits[0]["skips"], waits[1]["skips"]) == (False, True)


def test_a_hang_at_a_named_barrier_counts_who_came(emulated: Emulated) -> None:
    of = emulated(FILE)
    assert ring(of, "missing warp", ctas=1)[0] == 2
    wait = next(each for each in of.report()["waits"] if each["kind"] == "named-barrier")
    assert (wait["object"], wait["expected"], wait["pending"]) == (3, 64, 32)
    assert wait["before"] == 0


def test_a_launch_after_a_hang_runs(emulated: Emulated) -> None:
    of = emulated(FILE)
    assert ring(of, "no arrival")[0] == 2
    of.configure()
    assert ring(of, "right")[2].tolist() == [190] * 3


def exchange(of: Any, fenced: bool = True, meets: bool = True) -> tuple[int, list[int]]:
    out = np.zeros(6, np.uint32)
    of.register(out, "out", writable=True)
    message = ctypes.create_string_buffer(256)
    status = of.lib.run_exchange(6, fenced, meets, ctypes.c_void_p(out.ctypes.data), message)
    return status, out.tolist()


def test_a_cluster_exchanges_values(emulated: Emulated) -> None:
    for seed in range(20):
        of = emulated(FILE, check=True, seed=seed)
        assert exchange(of) == (0, [2, 1] * 3)
        assert of.findings() == []


def test_a_remote_barrier_needs_its_fence(emulated: Emulated) -> None:
    of = emulated(FILE, check=True)
    exchange(of, fenced=False)
    assert {each["class"] for each in of.findings()} == {"barrier-state"}


def test_a_peer_that_exits_too_early_is_found(emulated: Emulated) -> None:
    kinds = set()
    for seed in range(20):
        of = emulated(FILE, check=True, seed=seed)
        exchange(of, meets=False)
        kinds |= {each["class"] for each in of.findings()}
    assert kinds == {"exit"}


def meet(of: Any, ctas: int, cooperative: bool) -> tuple[int, str]:
    counter = np.zeros(1, np.uint32)
    of.register(counter, "counter", writable=True)
    message = ctypes.create_string_buffer(256)
    place = ctypes.c_void_p(counter.ctypes.data)
    return of.lib.run_meet(ctas, cooperative, place, message), message.value.decode()


def test_a_cooperative_grid_is_resident(emulated: Emulated) -> None:
    assert meet(emulated(FILE, sms=40), 40, True) == (0, "")


def test_a_grid_barrier_without_residency_hangs(emulated: Emulated) -> None:
    status, message = meet(emulated(FILE, os_threads=1), 40, False)
    assert status == 2 and message.startswith("hang: ")


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_grid_barrier_that_turns(emulated: Emulated, cooperative: bool) -> None:
    """Three launches on one word, which each leaves with its bit turned and the others zero."""
    of = emulated(FILE, sms=40, os_threads=1)
    word = np.zeros(1, np.uint32)
    of.register(word, "word", writable=True)
    message = ctypes.create_string_buffer(256)
    place = ctypes.c_void_p(word.ctypes.data)
    found = [
        (of.lib.run_meet_in_turn(40, cooperative, place, message), int(word[0])) for _ in range(3)
    ]
    if cooperative:
        assert found == [(0, 1 << 31), (0, 0), (0, 1 << 31)], message.value
    else:
        assert found[0][0] == 2 and message.value.startswith(b"hang: ")


def test_a_cooperative_grid_must_fit(emulated: Emulated) -> None:
    status, message = meet(emulated(FILE, sms=3), 4, True)
    assert status == 2 and "does not fit on 3 SMs" in message


def test_collectives(emulated: Emulated) -> None:
    of = emulated(FILE)
    out = np.zeros((32, 8), np.uint32)
    of.register(out, "out", writable=True)
    message = ctypes.create_string_buffer(256)
    assert of.lib.run_collectives(ctypes.c_void_p(out.ctypes.data), message) == 0, message.value
    lanes = np.arange(32)
    assert (out[:, 0] == (lanes ^ 5) * 10).all()
    assert (out[:, 1] == 70).all()
    assert (out[:, 2] == np.where(lanes >= 3, lanes - 3, lanes) * 10).all()
    assert (out[:, 3] == sum(1 << i for i in range(0, 32, 3))).all()
    assert (out[:, 4] == max(i ^ 21 for i in range(32))).all()
    assert (out[:, 5] == 496).all()
    assert out[:, 6].sum() == 1
    assert out[8:16, 7].tolist() == [8] * 8 and out[:8, 7].sum() + out[16:, 7].sum() == 0
