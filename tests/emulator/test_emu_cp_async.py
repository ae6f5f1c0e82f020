"""cp.async in the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tma_model import (
    EARLY_READ,
    NO_WAIT,
    RIGHT,
    Kernels,
    aligned,
)


@pytest.fixture
def kernels(emulated: Callable[..., Any]) -> Callable[..., Kernels]:
    return lambda **options: Kernels(emulated("tma_kernels.cu", **options))


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("by_barrier", [0, 1], ids=["group", "mbarrier"])
@pytest.mark.parametrize("size", [16, 5, 0])
def test_cp_async(kernels: Callable[..., Kernels], size: int, by_barrier: int, check: bool) -> None:
    data = aligned(2048)
    data[:] = np.random.default_rng(8).integers(1, 255, data.size, np.uint8)
    for seed in range(4 if check else 1):
        run = kernels(check=check, seed=seed)
        out = aligned(2048, 0xEE)
        run.emulation.register(data, "in")
        run.emulation.register(out, "out", writable=True)
        run.call("run_cp_async", data, out, size, by_barrier, RIGHT)
        wide, narrow = out[:512].reshape(32, 16), out[1024:1152].reshape(32, 4)
        assert np.array_equal(wide[:, :size], data[:512].reshape(32, 16)[:, :size])
        assert not wide[:, size:].any()
        part = min(size, 4)
        assert np.array_equal(narrow[:, :part], data[1024:1152].reshape(32, 4)[:, :part])
        assert not narrow[:, part:].any()
        assert run.classes() == []


@pytest.mark.parametrize("fault", [NO_WAIT, EARLY_READ])
def test_cp_async_without_order(kernels: Callable[..., Kernels], fault: int) -> None:
    data, out = aligned(2048), aligned(2048)
    run = kernels(check=True)
    run.emulation.register(data, "in")
    run.emulation.register(out, "out", writable=True)
    run.call("run_cp_async", data, out, 16, 0, fault)
    assert "cp.async" in run.one("early-read")["text"]
