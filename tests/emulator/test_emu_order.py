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


def call(of: Any, name: str, out: np.ndarray, *arguments: int) -> tuple[int, str]:
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


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_host_code_may_have_local_statics(emulated: Emulated, check: bool) -> None:
    of = emulated(FILE, check=check)
    out = np.full(1, 40, np.uint32)
    call(of, "run_local_static", out)
    first = int(out[0])
    assert call(of, "run_local_static", out) == (0, "")
    assert (out[0], kinds(of)) == (first + 1, set())
