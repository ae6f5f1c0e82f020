"""Dependent launches: what a grid may read before, and after, ``griddepcontrol.wait``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

FILE = "grid_kernels.cu"
Emulated = Callable[..., Any]
TRIGGERS = ("none", "first", "last")
WAITS = ("nobody", "everybody", "one thread", "too late")
READS = ("load", "bulk copy", "thread copy")
WORDS = 128


def words(of: Any, *names: str) -> list[np.ndarray]:
    """Buffers for both CTAs, the first an input."""
    arrays = [np.zeros(WORDS, np.uint32) for _ in names]
    arrays[0][:] = np.arange(WORDS)
    for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
        of.register(array, name, writable=i > 0)
    return arrays


def call(of: Any, name: str, arrays: list[np.ndarray], *arguments: int) -> None:
    message = ctypes.create_string_buffer(256)
    places = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    assert getattr(of.lib, name)(*places, *arguments, message) == 0, message.value


def two(
    of: Any,
    trigger: str = "first",
    waits: str = "everybody",
    reads: str = "load",
    adds: bool = False,
    memset: bool = False,
) -> list[dict[str, Any]]:
    arrays = words(of, "in", "first", "out")
    place = (TRIGGERS.index(trigger), WAITS.index(waits), READS.index(reads))
    call(of, "run_two", arrays, *place, adds, memset)
    assert (arrays[2] == np.arange(WORDS) + 2).all()
    found: list[dict[str, Any]] = of.findings()
    return found


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("waits", ["everybody", "one thread"])
def test_a_grid_that_waits_is_clean(
    emulated: Emulated, waits: str, reads: str, check: bool
) -> None:
    for trigger in TRIGGERS:
        for seed in range(5):
            assert two(emulated(FILE, check=check, seed=seed), trigger, waits, reads) == []


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("waits", ["nobody", "too late"])
@pytest.mark.parametrize("trigger", ["first", "last"])
def test_a_read_before_the_wait_is_found(
    emulated: Emulated, trigger: str, waits: str, reads: str
) -> None:
    for seed in range(5):
        found = two(emulated(FILE, check=True, seed=seed), trigger, waits, reads)
        assert [each["class"] for each in found] == ["race"]
        assert "reads first that an earlier grid of the stream writes" in found[0]["text"]
        assert found[0]["function"] == "read_words"


def test_what_atomics_have_written_counts(emulated: Emulated) -> None:
    assert two(emulated(FILE, check=True), adds=True) == []
    assert two(emulated(FILE, check=True), waits="nobody", adds=True) != []


def test_without_a_trigger_grids_do_not_overlap(emulated: Emulated) -> None:
    assert two(emulated(FILE, check=True), trigger="none", waits="nobody") == []


def test_what_is_no_kernel_stands_between(emulated: Emulated) -> None:
    assert two(emulated(FILE, check=True), waits="nobody", memset=True) == []


def test_a_wait_reaches_as_far_as_the_grid_before_has_waited(emulated: Emulated) -> None:
    for second_waits in (True, False):
        of = emulated(FILE, check=True)
        call(of, "run_three", words(of, "in", "first", "second", "out"), second_waits)
        found = of.findings()
        assert bool(found) is not second_waits
        assert all("does not wait for" in each["text"] for each in found)


def test_a_write_before_the_wait_may_meet_a_reader(emulated: Emulated) -> None:
    for waits in (True, False):
        of = emulated(FILE, check=True)
        call(of, "run_writer_behind", words(of, "in", "first", "out"), waits)
        found = of.findings()
        assert bool(found) is not waits
        assert all("an earlier grid of the stream reads" in each["text"] for each in found)


@pytest.mark.parametrize("back", [False, True], ids=["reads", "writes"])
def test_nothing_orders_two_streams(emulated: Emulated, back: bool) -> None:
    for same, waits in ((False, False), (True, False), (False, True)):
        of = emulated(FILE, check=True)
        arrays = [np.zeros(WORDS, np.uint32) for _ in range(3)]
        for array, name in zip(arrays, ("in", "first", "out"), strict=True):
            of.register(array, name, writable=True)
        call(of, "run_on_streams", arrays, same, waits, back)
        found = of.findings()
        assert bool(found) is not (same or waits)
        what = "writes in that" if back else "reads first that"
        assert all(f"{what} a grid on another stream" in each["text"] for each in found)
        assert all(each["class"] == "race" for each in found)
