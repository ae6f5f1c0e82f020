"""Cluster Launch Control in the emulator: every tile once, and what is found wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensor_model import call, kinds, pointer

FILE = "numerics_kernels.cu"
Emulated = Callable[..., Any]

CLAIM_FAULTS = ("right", "early", "twice", "in flight", "index of none")


def claim(
    of: Any, grid: tuple[int, int, int], *, cluster: int = 1, fault: str = "right"
) -> tuple[str, np.ndarray]:
    """Message, and how often each CTA's tile was worked on."""
    worked = np.zeros(grid[::-1], np.uint32)
    of.register(worked, "worked", writable=True)
    shape = (ctypes.c_uint32 * 3)(*grid)
    arguments = (shape, ctypes.c_uint32(cluster), int(cluster > 1), pointer(worked))
    return call(of, "run_claim", *arguments, CLAIM_FAULTS.index(fault)), worked


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("grid", [(2, 1, 1), (14, 1, 1), (4, 3, 2)])
def test_every_tile_is_worked_on_once(
    emulated: Emulated, check: bool, cluster: int, grid: tuple[int, int, int]
) -> None:
    for seed in range(5 if check else 1):
        of = emulated(FILE, check=check, seed=seed, sms=2)
        message, worked = claim(of, grid, cluster=cluster)
        assert message == "" and of.findings() == []
        assert (worked == 1).all()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("early", "early-read"),
        ("twice", "order"),
        ("in flight", "exit"),
        ("index of none", "order"),
    ],
)
def test_faults_of_launch_control_are_found(emulated: Emulated, fault: str, kind: str) -> None:
    for seed in range(6):
        of = emulated(FILE, check=True, seed=seed, sms=1)
        claim(of, (3, 1, 1), fault=fault)
        assert kind in kinds(of), (seed, of.findings())
        assert all(each["line"] for each in of.findings() if each["class"] == kind)
