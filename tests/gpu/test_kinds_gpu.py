"""Triton steps, CUDA steps and torch extensions on a GPU: run, compared, inspected, sanitized."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Outcome, read_document

from kernelbench.base import schema
from kernelbench.base.errors import ExitCode
from kernelbench.inspection import gpu_tool
from kernelbench.inspection.profile import ProfileRecord
from kernelbench.inspection.resources import InspectRecord
from kernelbench.inspection.sanitize import SanitizeRecord
from kernelbench.machine import devices, toolchain
from kernelbench.records import ledger, run_record

PROJECT = ROOT / "tests" / "kinds"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not devices.gpus(), reason="no NVIDIA GPU here"),
    pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc"),
]

Bench = Callable[..., Outcome]
QUICK = ("--reps", 20, "--no-save", "--seed", 3)


@pytest.mark.parametrize("step", ["r-triton", "r-cuda", "r-extension"])
def test_it_is_right_and_timed_on_both_shapes(bench: Bench, step: str) -> None:
    outcome = bench(
        "run", step, "--shape", "small", "--shape", "large", *QUICK, "--json", "-",
        root=PROJECT, gpu=True, timeout=290,
    )  # fmt: skip
    assert outcome.code == ExitCode.PASS, outcome.err
    record = run_record.parse_run(read_document(outcome.out), "run")
    assert [row.status for row in record.results] == ["pass", "pass"]
    assert all({*row.metrics} == {"device", "call"} for row in record.results)
    assert record.extra["kinds"] == {step: "triton" if step == "r-triton" else "cuda"}


def test_they_are_compared(bench: Bench, tmp_path: Path) -> None:
    outcome = bench(
        "ab", "r-torch", "r-cuda", "--shape", "large", "--sessions", 2, "--reps", 40,
        "--results", tmp_path / "results", root=PROJECT, gpu=True, timeout=290,
    )  # fmt: skip
    assert outcome.code == ExitCode.PASS, outcome.err
    # Several passes over memory against one.
    assert {entry.verdict for entry in ledger.read_ledger(tmp_path / "results")} == {"FASTER"}


def test_what_triton_compiled_where_it_ran(bench: Bench) -> None:
    outcome = bench("inspect", "r-triton", "r-cuda", "--json", "-", root=PROJECT, gpu=True)
    assert outcome.code == ExitCode.PASS, outcome.err
    record = schema.decode(InspectRecord, read_document(outcome.out))
    triton, cuda = (found.builds[0] for found in record.steps)
    assert triton.arch == cuda.arch == toolchain.own_arch(devices.gpus()[0].capability)
    assert (triton.code[0].kernel, triton.code[0].threads) == ("rms_norm", 256)
    assert triton.code[0].registers > 0
    assert cuda.code[0].threads == 256


@pytest.mark.skipif(gpu_tool.find("compute-sanitizer") is None, reason="no compute-sanitizer")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_a_cuda_step_is_sanitized(bench: Bench, tool: str) -> None:
    outcome = bench(
        "sanitize", "r-cuda", "--shape", "small", "--tool", tool, "--json", "-",
        root=PROJECT, gpu=True, timeout=290,
    )  # fmt: skip
    record = schema.decode(SanitizeRecord, read_document(outcome.out))
    assert record.kernels == ("normalize_rows",)
    assert [result.status for result in record.results] == ["clean"]


def test_a_cuda_step_is_profiled(bench: Bench) -> None:
    outcome = bench(
        "profile", "r-cuda", "--shape", "large", "--no-counters", "--json", "-",
        root=PROJECT, gpu=True, timeout=290,
    )  # fmt: skip
    assert outcome.code == ExitCode.PASS, outcome.err
    record = schema.decode(ProfileRecord, read_document(outcome.out))
    (launch,) = record.launches
    assert launch.kernel == "normalize_rows"
    assert launch.registers


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows, kThreads, 0", "rows, 2048, 0", "rmsnorm returned 1 invalid argument"),
        ("  return cudaGetLastError();\n", "  return cudaErrorNotSupported;\n", "rmsnorm returned"),
        ("cudaError_t rmsnorm", "void rmsnorm", "error: return value type does not match"),
    ],
)
def test_what_goes_wrong_is_a_row(
    bench: Bench, tmp_path: Path, old: str, new: str, message: str
) -> None:
    root = tmp_path / "kinds"
    shutil.copytree(PROJECT, root)
    file = root / "rmsnorm" / "r-cuda" / "rmsnorm.cu"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    outcome = bench("run", "r-cuda", "--shape", "small", *QUICK, "--json", "-", root=root, gpu=True)
    assert outcome.code == ExitCode.INCORRECT
    record = run_record.parse_run(read_document(outcome.out), "run")
    assert record.results[0].status == "fault"
    assert message in record.results[0].reason


def test_a_launch_that_nobody_asked_about_is_reported(bench: Bench, tmp_path: Path) -> None:
    root = tmp_path / "kinds"
    shutil.copytree(PROJECT, root)
    file = root / "rmsnorm" / "r-cuda" / "rmsnorm.cu"
    text = file.read_text().replace("cudaError_t rmsnorm", "void rmsnorm")
    text = text.replace("  return cudaGetLastError();\n", "").replace(
        "rows, kThreads", "rows, 2048"
    )
    file.write_text(text)
    outcome = bench("run", "r-cuda", "--shape", "small", *QUICK, root=root, gpu=True)
    assert outcome.code == ExitCode.INCORRECT
    assert "rmsnorm left a CUDA error: cudaErrorInvalidValue" in outcome.out + outcome.err


def test_code_for_another_gpu_is_refused(bench: Bench, tmp_path: Path) -> None:
    root = tmp_path / "kinds"
    shutil.copytree(PROJECT, root)
    file = root / "rmsnorm" / "r-cuda" / "step.toml"
    file.write_text(file.read_text() + 'arch = "sm_121a"\n')
    outcome = bench("run", "r-cuda", "--shape", "small", *QUICK, root=root, gpu=True)
    assert outcome.code == ExitCode.ENVIRONMENT
    assert "r-cuda is built for sm_121a; this is " in outcome.error
