"""Floors: by hand, against published figures, and never above what was really measured."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from kernelbench.base import json_file
from kernelbench.base.errors import RecordError, UnknownNameError
from kernelbench.measure import speed_of_light
from kernelbench.measure.speed_of_light import Ceilings, Reading
from kernelbench.problems.group_gemm import PROBLEM as GROUP_GEMM
from kernelbench.project.problem import Work

SHEETS = [
    speed_of_light.known_device(n) for n in ("b200", "h200", "h100", "h100-pcie", "h800-pcie")
]
H200, B200 = speed_of_light.known_device("h200"), speed_of_light.known_device("b200")
SIMPLE = Ceilings(
    device="NVIDIA Simple",
    source="datasheet",
    dram_bytes_per_s=1e12,
    l2_bytes=10_000_000,
    flops={"fp8": 2e15, "fp16": 1e15},
    flops_headroom=1.25,
    dram_headroom=1.1,
)


def test_memory_bound_by_hand():
    work = Work(flops=1e9, bytes_read=40e6, bytes_written=8e6, precision="fp16")
    cold = speed_of_light.speed_of_light(work, SIMPLE, "cold")
    assert (cold.us, cold.bound) == (pytest.approx(48.0), "memory")
    assert cold.compute_us == pytest.approx(1.0)
    # Read 40 MB; the 8 MB written fit in the L2.
    assert cold.impossible_us == pytest.approx(40 / 1.1)
    warm = speed_of_light.speed_of_light(work, SIMPLE, "warm")
    assert warm.us == pytest.approx(38.0)
    assert warm.impossible_us == pytest.approx(38 / 1.1)


def test_writes_beyond_the_l2_must_leave_it():
    work = Work(flops=0, bytes_read=1e6, bytes_written=60e6, precision="fp16")
    cold = speed_of_light.speed_of_light(work, SIMPLE, "cold")
    assert cold.us == pytest.approx(61.0)
    assert cold.impossible_us == pytest.approx(51 / 1.1)


def test_compute_bound_by_hand():
    work = Work(flops=1e11, bytes_read=1e6, bytes_written=1e6, precision="fp8")
    floor = speed_of_light.speed_of_light(work, SIMPLE, "cold")
    assert (floor.us, floor.bound, floor.precision) == (pytest.approx(50.0), "compute", "fp8")
    assert floor.impossible_us == pytest.approx(40.0)


def test_warm_work_that_fits_costs_no_dram_but_l2_bandwidth():
    work = Work(flops=0, bytes_read=4e6, bytes_written=4e6, precision="fp16")
    assert speed_of_light.speed_of_light(work, SIMPLE, "warm").us == 0.0
    known = dataclasses.replace(SIMPLE, l2_bytes_per_s=4e12)
    assert speed_of_light.speed_of_light(work, known, "warm").us == pytest.approx(2.0)


def test_missing_format_takes_the_fastest_wider_one():
    assert speed_of_light.rate_for("fp4", H200.flops) == ("fp8", pytest.approx(1978.8e12))
    assert speed_of_light.rate_for("fp4", B200.flops) == ("fp4", 9.0e15)
    assert speed_of_light.rate_for("fp8", B200.flops) == ("fp8", 4.5e15)
    assert speed_of_light.rate_for("bf16", {"fp8": 5.0, "bf16": 2.0, "tf32": 1.0}) == ("bf16", 2.0)
    assert speed_of_light.rate_for("fp4", {"fp16": 1.0, "tf32": 3.0}) == ("tf32", 3.0)
    assert speed_of_light.rate_for("fp64", {"fp16": 1.0}) is None
    with pytest.raises(ValueError, match="unknown precision"):
        speed_of_light.rate_for("int4", {})


def test_unknown_rate_leaves_the_memory_floor():
    work = Work(flops=1e15, bytes_read=1e6, bytes_written=0, precision="fp64")
    floor = speed_of_light.speed_of_light(work, SIMPLE, "cold")
    assert (floor.us, floor.bound, floor.compute_us) == (pytest.approx(1.0), "memory", 0.0)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.device)
def test_the_impossible_bound_is_never_above_the_speed_of_light(sheet):
    sizes = (0.0, 1e5, 3e7, 1e8, 1e10)
    for flops, read, written in itertools.product((0.0, 1e9, 1e12), sizes, sizes):
        for mode in ("cold", "warm"):
            work = Work(flops, read, written, "fp8")
            floor = speed_of_light.speed_of_light(work, sheet, mode)
            assert 0 <= floor.impossible_us <= floor.us
            assert floor.us == max(floor.compute_us, floor.memory_us)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.device)
def test_datasheets_hang_together(sheet):
    assert sheet.flops["fp8"] == pytest.approx(2 * sheet.flops["fp16"])
    assert sheet.flops["fp16"] == sheet.flops["bf16"]
    assert sheet.flops["tf32"] == pytest.approx(sheet.flops["fp16"] / 2, rel=0.03)
    assert 1 <= sheet.flops_headroom < 1.1
    assert 1 <= sheet.dram_headroom < 1.03
    assert any("datasheet" in note for note in sheet.notes)


def test_rates_follow_from_the_chip():
    """SMs × FLOP per clock × clock, as published for the architecture."""
    assert H200.flops["fp16"] == pytest.approx(132 * 4096 * 1830e6, rel=1e-3)
    pcie = speed_of_light.known_device("h100-pcie")
    assert pcie.flops["fp16"] == pytest.approx(114 * 4096 * 1620e6, rel=1e-3)
    assert pcie.dram_bytes_per_s == pytest.approx(5120 / 8 * 2 * 1593e6, rel=1e-3)
    assert B200.flops["fp4"] == pytest.approx(148 * 32768 * 1856e6, rel=1e-3)


def test_published_group_gemm_floors_agree():
    """The task's speeds of light assume 7.7 TB/s; ours take 8. A, B, C, D are memory-bound."""
    operands = {"A": 144.81e6, "B": 82.00e6, "C": 18.51e6, "D": 11.71e6}
    published = GROUP_GEMM.published.us
    for shape, nbytes in operands.items():
        work = Work(flops=0, bytes_read=nbytes, bytes_written=0, precision="fp4")
        ours = speed_of_light.speed_of_light(work, B200, "cold").us
        assert ours * 8 / 7.7 == pytest.approx(published[shape], abs=0.06)


def test_what_was_measured_on_an_h200_is_possible():
    """Reads of 264 MB took 63.1 µs cold and 61.1 back to back; 8192³ FP8 ran at 1343 TFLOP/s."""
    read = Work(flops=0, bytes_read=264e6, bytes_written=0, precision="fp8")
    cold = speed_of_light.speed_of_light(read, H200, "cold")
    assert cold.us == pytest.approx(55.0)
    assert not speed_of_light.below_floor(63.1, cold)
    assert not speed_of_light.below_floor(61.1, speed_of_light.speed_of_light(read, H200, "warm"))
    product = Work(flops=2 * 8192**3, bytes_read=1, bytes_written=1, precision="fp8")
    floor = speed_of_light.speed_of_light(product, H200, "warm")
    assert not speed_of_light.below_floor(2 * 8192**3 / 1343e12 * 1e6, floor)
    assert speed_of_light.below_floor(2 * 8192**3 / 2200e12 * 1e6, floor)
    assert speed_of_light.below_floor(50.0, cold)


def test_measured_ceilings_prove_nothing_impossible():
    measured = dataclasses.replace(SIMPLE, source="measured")
    work = Work(flops=1e12, bytes_read=1e9, bytes_written=0, precision="fp8")
    floor = speed_of_light.speed_of_light(work, measured, "cold")
    assert floor.us > 0
    assert not speed_of_light.below_floor(1e-6, floor)


def test_devices_are_found_by_exact_name_only():
    assert speed_of_light.datasheet("NVIDIA H200") is H200
    for other in ("NVIDIA H200 NVL", "NVIDIA H200 MIG 1g.18gb", "h200", ""):
        assert speed_of_light.datasheet(other) is None
    assert speed_of_light.known_device("NVIDIA h200") is H200
    with pytest.raises(UnknownNameError, match="did you mean 'h800-pcie'"):
        speed_of_light.known_device("h800pcie")


def measured_example():
    return Ceilings(
        device="NVIDIA H200",
        source="measured",
        dram_bytes_per_s=4.6e12,
        l2_bytes=60 << 20,
        flops={"fp16": 7.0e14},
        l2_bytes_per_s=8.0e12,
        notes=("a note",),
        measured="2026-11-20T00:00:00+00:00",
        command="kernelbench roofline --measure --device 0",
        empty_graph_us=2.5,
        readings=(Reading("read", 1 << 32, 933.7, 930.1, 15),),
    )


def test_measured_ceilings_are_kept(tmp_path):
    assert speed_of_light.load_measured("NVIDIA H200", tmp_path) is None
    path = speed_of_light.save_measured(measured_example(), tmp_path)
    assert path == tmp_path / "nvidia-h200" / "ceilings.json"
    assert speed_of_light.load_measured("NVIDIA H200", tmp_path) == measured_example()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "kernelbench.ceilings/0"}, "of this version"),
        ({"flops": "many"}, "record.flops"),
        ({"surprise": 1}, "unknown field 'surprise'"),
        ({"device": "NVIDIA B200"}, "NVIDIA B200"),
    ],
)
def test_foreign_ceilings_are_refused(tmp_path, change, said):
    path = speed_of_light.save_measured(measured_example(), tmp_path)
    json_file.write_json(path, {**json_file.read_json(path), **change})
    with pytest.raises(RecordError, match=said) as caught:
        speed_of_light.load_measured("NVIDIA H200", tmp_path)
    assert "\n" not in str(caught.value)


def test_truncated_ceilings_are_refused(tmp_path):
    path = speed_of_light.save_measured(measured_example(), tmp_path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(RecordError, match="not valid JSON"):
        speed_of_light.load_measured("NVIDIA H200", tmp_path)
