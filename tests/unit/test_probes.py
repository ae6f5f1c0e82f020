"""The probes where there is no GPU: they compile, their ABI is whole, the arithmetic is right."""

from __future__ import annotations

import numpy as np
import pytest

from kernelbench.build import compiler
from kernelbench.machine import devices
from kernelbench.measure import probes

needs_nvcc = pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc")


def stamps(*rows, slots=8):
    table = np.zeros((slots, 2), dtype=np.int64)
    for slot, cycles, ns in rows:
        table[slot] = (cycles, ns)
    return table


def test_median_clock_over_sms():
    before = stamps((0, 1000, 5_000), (1, 2000, 5_000), (2, 9000, 5_000))
    after = stamps((0, 1000 + 17_550, 15_000), (1, 2000 + 17_550, 15_000), (2, 9100, 15_000))
    assert probes.median_sm_mhz(before, after) == pytest.approx(1755.0)


def test_sms_without_both_stamps_do_not_count():
    before = stamps((0, 1000, 5_000), (1, 500, 5_000))
    after = stamps((0, 1000 + 19_800, 15_000), (2, 7, 15_000))
    assert probes.median_sm_mhz(before, after) == pytest.approx(1980.0)


def test_no_clock_without_time_between():
    same = stamps((0, 1000, 5_000))
    assert probes.median_sm_mhz(same, same) is None
    assert probes.median_sm_mhz(stamps(), stamps()) is None
    assert probes.median_sm_mhz(stamps((0, 5, 9_000)), stamps((0, 9, 8_000))) is None


def test_the_cycle_counter_may_wrap():
    before = stamps((0, -500, 5_000))  # 2**64 - 500 as the GPU counts it
    after = stamps((0, 1_000, 6_000))
    assert probes.median_sm_mhz(before, after) == pytest.approx(1500.0)


def test_no_gpu_is_a_reason_not_a_crash(monkeypatch):

    monkeypatch.setattr(devices, "gpus", list)
    monkeypatch.setattr(devices, "gpu_problem", lambda: "no NVIDIA driver")
    probes.load_probes.cache_clear()
    try:
        assert probes.load_probes(0) == (None, "no NVIDIA driver")
    finally:
        probes.load_probes.cache_clear()


def test_no_compiler_is_a_reason_not_a_crash(monkeypatch, tmp_path):
    from kernelbench.machine import devices

    gpu = devices.GpuInfo(0, "NVIDIA H200", (9, 0), 0, "", "13.0", False)
    monkeypatch.setattr(devices, "gpus", lambda: [gpu])
    monkeypatch.setattr(compiler, "nvcc", lambda: None)
    probes.load_probes.cache_clear()
    try:
        loaded, reason = probes.load_probes(0)
    finally:
        probes.load_probes.cache_clear()
    assert loaded is None
    assert "nvcc" in reason
    assert "\n" not in reason


@needs_nvcc
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
def test_probes_compile_and_have_their_abi(monkeypatch, tmp_path, capability):
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path))
    strict = (*probes._FLAGS, "-Werror", "all-warnings")
    monkeypatch.setattr(probes, "_FLAGS", strict)
    library = probes._open(probes.compile_probes(capability))
    assert library.kb_probe_stamp_slots() >= 160
    assert library.kb_probe_error() == b""


@pytest.mark.parametrize(("data", "nbytes"), [(8, 16), (16, 8), (16, -16)])
def test_read_refuses_what_the_kernel_cannot_do(data, nbytes):
    unused = probes.Probes(0, 132, True, 512, library=None)
    with pytest.raises(ValueError, match="multiples of 16"):
        unused.read_stream(data, nbytes, 0, 0)
