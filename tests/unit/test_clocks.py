"""Reading NVML: CUDA ordinals, unsupported queries, processes of other namespaces, threads.

NVML itself is stood in for; what is tested is what is made of its answers.
"""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import pytest

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.machine import clocks, environment


class FakeNvml:
    """As much of pynvml as is asked; a query named in ``broken`` is not supported."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, uuids=("GPU-aaaa", "GPU-abbb", "GPU-cccc"), broken=(), pids=()):
        self.uuids, self.broken, self.pids = list(uuids), set(broken), pids
        self.open = 1
        self.reasons = 0x4 | 0x20 | 0x1000

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "broken"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle):
        return self.uuids[handle]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "MIG-1":
            raise self.NVMLError("not found")
        return "mig"

    def nvmlDeviceGetClockInfo(self, handle, kind):
        if self.open < 1:
            raise AssertionError("NVML used after it was shut down")
        return 1755 if kind == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetTemperature(self, handle, kind):
        return 41

    def nvmlDeviceGetPowerUsage(self, handle):
        return 123_400

    def nvmlDeviceGetPerformanceState(self, handle):
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def use(monkeypatch):
    def install(**options):
        fake = FakeNvml(**options)
        monkeypatch.setattr(clocks, "_open_nvml", lambda: fake)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return fake

    return install


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("0,7,1", [0]),
        ("0,-1,1", [0]),
        ("GPU-cccc", [2]),
        ("GPU-ab,0", [1, 0]),
        ("GPU-a", []),
        ("MIG-1", ["mig"]),
        ("MIG-2,0", []),
        ("all", []),
    ],
)
def test_cuda_visible_devices(use, monkeypatch, visible, expected):
    fake = use()
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert clocks.visible_handles(fake) == expected


def test_reading(use):
    use()
    with clocks.ClockSampler(1) as sampler:
        reading = sampler.read()
    assert reading == clocks.ClockReading(
        1755.0,
        3201.0,
        41.0,
        123.4,
        ("software power cap", "software thermal slowdown", "unknown reason 0x1000"),
        0,
    )
    assert reading.slowed == ("software power cap", "software thermal slowdown")


def test_unsupported_queries_give_none(use):
    use(
        broken=(
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetPerformanceState",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        )
    )
    with clocks.ClockSampler() as sampler:
        assert sampler.read() == clocks.ClockReading(None, None, None, None, (), None)


def test_an_idle_gpu_is_not_slowed():
    idle = clocks.ClockReading(345.0, None, None, None, clocks.reason_names(0x1 | 0x2), 8)
    assert idle.throttle_reasons == ("gpu idle", "application clocks setting")
    assert idle.slowed == ()


def test_no_such_gpu_closes_nvml(use):
    fake = use()
    with pytest.raises(EnvironmentProblem, match="no GPU 3: this process sees 3"):
        clocks.ClockSampler(3)
    assert fake.open == 0


def test_closed_sampler_refuses_and_closes_once(use):
    fake = use()
    sampler = clocks.ClockSampler(0)
    sampler.close()
    sampler.close()
    assert fake.open == 0
    with pytest.raises(EnvironmentProblem, match="closed"):
        sampler.read()


def test_other_processes(use):
    use(pids=(os.getpid(), 1))
    assert clocks.other_processes(0, {os.getpid()}) == 1
    assert clocks.other_processes(0) == 2
    assert clocks.other_processes(9) is None


def test_process_ids_of_another_namespace(use):
    absent = 2**22 + 5  # above the kernel's largest process id
    use(pids=(absent, absent + 1))
    assert clocks.other_processes(0, {os.getpid()}) == 1
    assert clocks.other_processes(0) == 2


def test_processes_unknown_where_nvml_hides_them(use):
    use(broken=("nvmlDeviceGetComputeRunningProcesses",))
    assert clocks.other_processes(0) is None


def test_without_a_driver_there_is_a_reason(monkeypatch):
    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr(clocks.ctypes, "CDLL", no_library)
    assert clocks.other_processes(0) is None
    with pytest.raises(clocks.NvmlUnavailable, match="no NVIDIA driver"), clocks.nvml():
        pass


def test_a_process_of_ones_own_is_no_stranger() -> None:
    """Nor is one of those, of this process or of its parent's others."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert {os.getpid(), child.pid} <= environment._siblings()
        assert os.getppid() not in environment._siblings()
    finally:
        child.kill()
        child.wait()
