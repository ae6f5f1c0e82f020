"""Loops of a step's own that poll: what is asynchronous completes, and a hang is known as one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated_kernels import COMMON

from kernelbench.emulator.runtime import runtime_library

FILE = "polling_kernels.cu"
RIGHT, TOO_MANY_BYTES, BOTH_GO_ON = range(3)
Emulated = Callable[..., Any]


def add_two(of: Any, fault: int) -> tuple[int, str, bool]:
    """Status, message, and whether the sums are right."""
    given, out = np.arange(64, dtype=np.uint32), np.zeros(32, np.uint32)
    of.register(given, "in")
    of.register(out, "out", writable=True)
    message = ctypes.create_string_buffer(256)
    places = (ctypes.c_void_p(each.ctypes.data) for each in (given, out))
    status = of.lib.run_add_two(*places, fault, message)
    return status, message.value.decode(), bool((out == given[:32] + given[32:]).all())


def test_two_barriers_polled_in_one_loop_are_clean_in_every_schedule(emulated: Emulated) -> None:
    for seed in range(100):
        of = emulated(FILE, check=True, seed=seed)
        assert add_two(of, RIGHT) == (0, "", True), seed
        assert not of.findings()


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_a_loop_that_nothing_ends_names_its_barrier(emulated: Emulated, check: bool) -> None:
    """Known without a limit of time: nothing is pending, and none is set."""
    of = emulated(FILE, check=check)
    status, message, _ = add_two(of, TOO_MANY_BYTES)
    assert status == 2 and "nothing can run and nothing is pending: 32 threads wait" in message
    waits = of.report()["waits"]
    assert {each["kind"] for each in waits} == {"mbarrier"}
    assert {(each["object"], each["tx"], each["pending"]) for each in waits} == {(264, 16, 0)}
    assert [each["lanes"] for each in waits] == [0xFFFFFFFF]


def test_a_loop_that_changes_what_nobody_waits_for_ends_at_its_limit(emulated: Emulated) -> None:
    of = emulated(FILE, check=True, limit_s=0.3)
    status, message, _ = add_two(of, BOTH_GO_ON)
    assert status == 2 and "the kernel has not ended after 0.3 s" in message


def test_time_without_a_core_is_not_counted(emulated: Emulated) -> None:
    """As if the machine had given no core again and again."""
    of = emulated(FILE, check=True, limit_s=0.3)
    asked: list[int] = []

    @ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_int)
    def queued_ns(thread: int) -> int:
        asked.append(thread)
        return min(len(asked), 20) * 100_000_000

    library = ctypes.CDLL(str(runtime_library(COMMON)))  # loaded before: the same one
    source = ctypes.c_void_p.in_dll(library, "kb_emu_queued_ns")
    before = source.value
    source.value = ctypes.cast(queued_ns, ctypes.c_void_p).value
    try:
        status, message, _ = add_two(of, BOTH_GO_ON)
    finally:
        source.value = before
    assert status == 2 and "the kernel has not ended after 0.3 s" in message
    assert len(asked) > 20
