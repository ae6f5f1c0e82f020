"""Accesses of less than a word: the checker keeps the halves of a word apart."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

FILE = "partial_words_kernels.cu"
FAULTS = ("right", "same half", "no barrier", "no low fence", "no high fence", "whole too soon")
Emulated = Callable[..., Any]


def run(of: Any, fault: str) -> tuple[np.ndarray, np.ndarray]:
    """The 64 halves as a bulk store wrote them, and what each thread has read."""
    out = np.zeros(64, np.uint16)
    sums = np.zeros(64, np.uint32)
    of.register(out, "out", writable=True)
    of.register(sums, "sums", writable=True)
    message = ctypes.create_string_buffer(256)
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (out, sums))
    assert of.lib.run_halves(*pointers, FAULTS.index(fault), message) == 0, message.value
    return out, sums


@pytest.mark.parametrize("seed", range(8))
def test_neighbours_in_a_word_do_not_race(emulated: Emulated, seed: int) -> None:
    of = emulated(FILE, check=True, seed=seed)
    out, sums = run(of, "right")
    assert of.findings() == []
    assert out.tolist() == list(range(64))
    assert sums.tolist() == [i + (i ^ 1) for i in range(64)]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("same half", "race"),
        ("no barrier", "race"),
        ("no low fence", "proxy-fence"),
        ("no high fence", "proxy-fence"),
        ("whole too soon", "race"),
    ],
)
def test_each_half_is_checked(emulated: Emulated, fault: str, kind: str) -> None:
    for seed in range(8):
        of = emulated(FILE, check=True, seed=seed)
        run(of, fault)
        assert kind in {each["class"] for each in of.findings()}, seed
