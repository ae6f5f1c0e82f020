"""Global memory: order between CTAs, what nobody has written, what a call leaves for the next."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

FILE = "global_kernels.cu"
Emulated = Callable[..., Any]
SEEDS = range(5)
MEETINGS = ("meets", "reads too soon", "threads too late", "writes too soon")
HANDS = ("hands on", "waits for read", "takes unasked", "load in flight")
CONTENTS = ("nothing", "memset", "copied", "written", "half written", "graph")
COUNTS = ("resets", "memsets", "never reset")


def call(of: Any, name: str, out: np.ndarray, *arguments: int, fresh: bool = False) -> None:
    of.register(out, "out", writable=True, fresh=fresh)
    message = ctypes.create_string_buffer(256)
    status = getattr(of.lib, name)(*arguments, ctypes.c_void_p(out.ctypes.data), message)
    assert status == 0, message.value


def exchanged(of: Any, fault: str) -> list[dict[str, Any]]:
    out = np.zeros(256, np.uint32)
    call(of, "run_exchange", out, MEETINGS.index(fault))
    if fault == "meets":
        assert out.reshape(4, 64)[:, 0].tolist() == [3, 5, 7, 1]
    found: list[dict[str, Any]] = of.findings()
    return found


def test_a_grid_barrier_orders(emulated: Emulated) -> None:
    for seed in SEEDS:
        of = emulated(FILE, check=True, seed=seed)
        assert exchanged(of, "meets") == []
        assert of.report()["assumptions"] == ["plain-meeting-loads"]


@pytest.mark.parametrize("fault", MEETINGS[1:])
def test_ctas_that_meet_may_race(emulated: Emulated, fault: str) -> None:
    for seed in SEEDS:
        found = exchanged(emulated(FILE, check=True, seed=seed), fault)
        assert {each["class"] for each in found} == {"race"}
        assert all("device_malloc that another CTA" in each["text"] for each in found)
        for each in found:
            assert each["function"] == each["other_function"] == "exchange"
            assert each["buffer"].startswith("device_malloc of 1028 bytes + ")


def handed(of: Any, fault: str) -> list[dict[str, Any]]:
    call(of, "run_hand_on", np.zeros(1, np.uint32), HANDS.index(fault))
    found: list[dict[str, Any]] = of.findings()
    return found


def test_bulk_copies_hand_on(emulated: Emulated) -> None:
    for seed in SEEDS:
        assert handed(emulated(FILE, check=True, seed=seed), "hands on") == []


@pytest.mark.parametrize("fault", HANDS[1:])
def test_bulk_copies_race_between_ctas(emulated: Emulated, fault: str) -> None:
    for seed in SEEDS:
        found = handed(emulated(FILE, check=True, seed=seed), fault)
        assert {each["class"] for each in found} == {"race"}
        copies = {"waits for read": "bulk load reads", "load in flight": "bulk store writes"}
        assert any(copies.get(fault, "bulk") in each["text"] for each in found)


def test_atomics_need_no_order(emulated: Emulated) -> None:
    of = emulated(FILE, check=True)
    out = np.zeros(4, np.uint32)
    call(of, "run_count", out)
    assert (of.findings(), out.tolist()) == ([], [64] * 4)


def used(of: Any, content: str, by_tile: bool) -> list[dict[str, Any]]:
    call(of, "run_workspace", np.zeros(256, np.uint32), CONTENTS.index(content), by_tile)
    found: list[dict[str, Any]] = of.findings()
    return found


@pytest.mark.parametrize("by_tile", [False, True], ids=["load", "bulk copy"])
def test_what_nobody_has_written(emulated: Emulated, by_tile: bool) -> None:
    (found,) = used(emulated(FILE, check=True), "nothing", by_tile)
    assert found["class"] == "unwritten"
    assert found["text"].endswith("reads device_malloc that nothing has written")
    assert found["buffer"].startswith("device_malloc of 1024 bytes + ")


@pytest.mark.parametrize("content", ["memset", "copied", "written", "graph"])
def test_what_the_stream_has_written(emulated: Emulated, content: str) -> None:
    for by_tile in (False, True):
        assert used(emulated(FILE, check=True), content, by_tile) == []


def test_a_tile_may_be_empty_in_part(emulated: Emulated) -> None:
    assert used(emulated(FILE, check=True), "half written", by_tile=True) == []
    assert used(emulated(FILE, check=True), "half written", by_tile=False) != []


def test_an_output_holds_nothing(emulated: Emulated) -> None:
    """The values that it happens to hold are those of the poison."""
    of = emulated(FILE, check=True)
    call(of, "run_add", np.zeros(64, np.float32), False, fresh=True)
    (found,) = of.findings()
    assert found["text"] == "red.add adds to out that nothing has written in this call"
    for arguments in ({"fresh": True}, {}):
        of.configure()
        call(of, "run_add", np.zeros(64, np.float32), bool(arguments), **arguments)
        assert of.findings() == []


def calls(of: Any, fault: str) -> dict[str, Any]:
    """Two calls of a step; the report of the second."""
    for _ in range(2):
        of.configure()
        call(of, "run_sum", np.zeros(1, np.uint32), COUNTS.index(fault))
        assert of.findings() == []
    report: dict[str, Any] = of.report()
    return report


def test_a_counter_that_is_not_reset_is_a_cause(emulated: Emulated) -> None:
    (cause,) = calls(emulated(FILE, check=True), "never reset")["causes"]
    assert cause["class"] == "not-reset"
    assert cause["buffer"] == "device_malloc of 20 bytes + 16"
    assert "what an earlier call has left" in cause["text"]
    assert cause["other_pc"] is not None


@pytest.mark.parametrize("fault", ["resets", "memsets"])
def test_a_counter_that_is_reset(emulated: Emulated, fault: str) -> None:
    assert calls(emulated(FILE, check=True), fault)["causes"] == []


def test_a_barrier_that_turns_has_not_to_be_reset(emulated: Emulated) -> None:
    of = emulated(FILE, check=True)
    for _ in range(2):
        of.configure()
        exchanged(of, "meets")
    assert of.report()["causes"] == []
