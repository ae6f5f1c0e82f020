"""Shared GPU memory with a stand-in for the driver: what is given back, what a refusal says."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.isolation import device_memory
from kernelbench.isolation.device_memory import DeviceRegion

DEVICE = torch.device("cuda:0")
GRANULARITY = 1 << 21


class Driver:
    """Counts what is made and given back, and refuses what it is told to."""

    def __init__(self, **refused: int) -> None:
        self.refused = refused
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == "cuMemGetAllocationGranularity":
                arguments[0]._obj.value = GRANULARITY
            if name == "cuMemExportToShareableHandle":
                arguments[0]._obj.value = 0
            if name == "cuGetErrorString":
                arguments[1]._obj.value = b"operation not supported"
            return self.refused.get(name, 0)

        return call

    def count(self, name: str) -> int:
        """How often it was called."""
        return self.calls.count(name)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Driver]:
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr("os.set_inheritable", lambda *_: None)

    def make(**refused: int) -> Driver:
        found = Driver(**refused)
        monkeypatch.setattr(device_memory, "_driver", lambda: found)
        return found

    return make


def test_a_region_is_whole_pages_and_goes_with_its_last_user(
    driver: Callable[..., Driver],
) -> None:
    found = driver()
    region, size, _ = DeviceRegion.create(DEVICE, GRANULARITY + 1)
    assert size == 2 * GRANULARITY
    assert found.count("cuMemRelease") == found.count("cuMemCreate") == 1
    assert not found.count("cuMemUnmap")
    del region
    assert found.count("cuMemUnmap") == found.count("cuMemAddressFree") == 1


@pytest.mark.parametrize(
    "name", ["cuMemCreate", "cuMemExportToShareableHandle", "cuMemMap", "cuMemSetAccess"]
)
def test_a_refusal_is_a_line_and_leaves_nothing(name: str, driver: Callable[..., Driver]) -> None:
    found = driver(**{name: 801})
    with pytest.raises(EnvironmentProblem) as error:
        DeviceRegion.create(DEVICE, 100)
    text = f"GPU memory cannot be shared between processes: {name}: operation not supported"
    assert error.value.message == text
    assert "\n" not in str(error.value)
    del error
    gc.collect()
    made = name != "cuMemCreate"
    assert found.count("cuMemRelease") == made
    assert found.count("cuMemUnmap") == (name == "cuMemSetAccess")


def test_no_memory_is_no_refusal(driver: Callable[..., Driver]) -> None:
    driver(cuMemCreate=2)
    with pytest.raises(torch.OutOfMemoryError, match="cuMemCreate"):
        DeviceRegion.create(DEVICE, 100)


def test_what_cannot_be_opened_is_said(driver: Callable[..., Driver]) -> None:
    driver(cuMemImportFromShareableHandle=999)
    with pytest.raises(EnvironmentProblem, match="cuMemImportFromShareableHandle"):
        DeviceRegion.opened(DEVICE, 3, GRANULARITY)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", none)
    with pytest.raises(EnvironmentProblem, match=r"libcuda.so.1: cannot open"):
        device_memory._driver.__wrapped__()
