"""compute-sanitizer and Nsight Compute themselves, around a step of this repository on a GPU."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Outcome, read_document

from kernelbench.base import schema
from kernelbench.base.errors import ExitCode
from kernelbench.inspection import gpu_tool
from kernelbench.inspection.profile import ProfileRecord
from kernelbench.inspection.sanitize import SanitizeRecord, ToolResult
from kernelbench.machine import devices

STEP, SHAPE, ARCH = "m02", "qwen35-m1", (9, 0)
KERNELS = {"route_tokens", "count_routes", "lay_out_experts", "prepare_rows", "multiply_experts"}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not any(gpu.capability == ARCH for gpu in devices.gpus()), reason="no Hopper GPU here"
    ),
]
needs_sanitizer = pytest.mark.skipif(
    gpu_tool.find("compute-sanitizer") is None, reason="no compute-sanitizer"
)
needs_ncu = pytest.mark.skipif(gpu_tool.find("ncu") is None, reason="no ncu")

Bench = Callable[..., Outcome]


def sanitize(bench: Bench, tool: str, **more: Any) -> tuple[int, SanitizeRecord, ToolResult]:
    """One tool on the step."""
    outcome = bench(
        "sanitize", STEP, "--shape", SHAPE, "--tool", tool, "--seed", 7, "--timeout", 240,
        "--json", "-", gpu=True, timeout=290, **more,
    )  # fmt: skip
    record = schema.decode(SanitizeRecord, read_document(outcome.out))
    (result,) = record.results
    return outcome.code, record, result


@pytest.fixture
def plant(tmp_path: Path) -> Callable[[str, str, str], Path]:
    """A project with the lineage's steps, one line of the step's changed."""

    def change(file: str, old: str, new: str) -> Path:
        (tmp_path / "pyproject.toml").write_text(
            '[tool.kernelbench]\nlineages = ["kernels", "moe"]\n'
        )
        shutil.copy(ROOT / "shapes.yaml", tmp_path)
        shutil.copytree(ROOT / "moe", tmp_path / "moe")
        (tmp_path / "kernels").symlink_to(ROOT / "kernels")
        source = tmp_path / "moe" / STEP / file
        text = source.read_text()
        assert old in text
        source.write_text(text.replace(old, new, 1))
        return tmp_path

    return change


@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_a_step_is_clean(bench: Bench, tool: str) -> None:
    code, record, result = sanitize(bench, tool)
    assert (code, result.reason) == (ExitCode.PASS, "")
    assert {kernel.rpartition("::")[2] for kernel in record.kernels} == KERNELS
    if result.status != "clean":
        assert result.status == "explained"
        assert all(finding.explanation for finding in result.findings)


@needs_sanitizer
def test_an_address_out_of_bounds_is_found_and_placed(
    bench: Bench, plant: Callable[[str, str, str], Path]
) -> None:
    root = plant("count.cuh", "args.ids[route]]", "args.ids[route] + (uint64_t{1} << 40)]")
    code, _, result = sanitize(bench, "memcheck", root=root)
    assert (code, result.status) == (ExitCode.INCORRECT, "findings")
    first = result.findings[0]
    assert first.text.startswith("Invalid __global__")
    assert first.kernel.endswith("count_routes")
    assert any(frame.file == "count.cuh" for frame in first.frames)


@needs_sanitizer
def test_a_barrier_taken_out_is_found_and_not_explained(
    bench: Bench, plant: Callable[[str, str, str], Path]
) -> None:
    root = plant("quantize_sort_gather.cuh", "    ptx::bar_sync();\n", "")
    code, _, result = sanitize(bench, "racecheck", root=root)
    assert (code, result.status) == (ExitCode.INCORRECT, "findings")
    places = {frame.file for finding in result.findings for frame in finding.frames}
    assert "quantize_sort_gather.cuh" in places


@needs_ncu
def test_counters(bench: Bench) -> None:
    outcome = bench(
        "profile", STEP, "--shape", SHAPE, "--json", "-", "--timeout", 240, gpu=True, timeout=290
    )
    record = schema.decode(ProfileRecord, read_document(outcome.out))
    if not record.counters:
        assert outcome.code == ExitCode.ENVIRONMENT
        assert record.why_not in outcome.error
        pytest.skip(record.why_not)
    assert outcome.code == ExitCode.PASS
    assert {launch.kernel for launch in record.launches} >= KERNELS
    assert record.missing == ()
    for launch in record.launches:
        assert launch.duration_us is not None
        assert launch.duration_us > 0
        for share in (launch.dram_pct, launch.tensor_pct, launch.occupancy_pct):
            assert share is not None
            assert 0 <= share <= 105  # multi-pass: numerator and denominator of different runs
    by_name = {launch.kernel: launch for launch in record.launches}
    tensor = by_name["multiply_experts"].tensor_pct
    assert tensor is not None
    assert tensor > 0  # wgmma counts as the tensor pipe
    assert by_name["count_routes"].tensor_pct == 0


def test_without_counters(bench: Bench) -> None:
    outcome = bench(
        "profile", STEP, "--shape", SHAPE, "--no-counters", "--json", "-", gpu=True, timeout=290
    )
    assert outcome.code == ExitCode.PASS
    record = schema.decode(ProfileRecord, read_document(outcome.out))
    assert not record.counters
    compiled = [launch for launch in record.launches if launch.registers is not None]
    assert {launch.kernel for launch in compiled} == KERNELS
    assert record.total is not None
    assert record.total.busy_us == pytest.approx(
        sum(launch.duration_us or 0.0 for launch in record.launches)
    )
    assert re.search(r"without hardware counters \(--no-counters\)", outcome.err)
