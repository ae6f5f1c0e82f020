"""Triton and CUDA steps where there is no GPU: listed, refused, built for any arch, inspected."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Outcome, read_document

from kernelbench.base import schema
from kernelbench.base.errors import ExitCode
from kernelbench.inspection.resources import InspectRecord
from kernelbench.machine import toolchain

PROJECT = ROOT / "tests" / "kinds"
needs_nvcc = pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")

Bench = Callable[..., Outcome]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the project that a test may change."""
    shutil.copytree(PROJECT, tmp_path / "kinds")
    return tmp_path / "kinds"


def change(root: Path, step: str, old: str, new: str, file: str = "step.toml") -> None:
    """Put ``new`` in the place of ``old`` in a file of a step."""
    path = root / "rmsnorm" / step / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_kinds_are_listed_with_what_runs_them(bench: Bench) -> None:
    outcome = bench("list", root=PROJECT)
    rows = {row.split()[0]: row.split() for row in outcome.out.splitlines() if row[:2] == "r-"}
    assert rows["r-triton"][-3:-1] == ["triton", "any"]
    assert rows["r-ptx"][-3:] == ["ptx", "any", "emulator"]
    runs = "emulator" if toolchain.nvcc() is not None else "no"
    assert rows["r-cuda"][-3:] == ["cuda", "any", runs]
    assert "GPU only" not in outcome.out
    listed = read_document(bench("list", "--json", "-", root=PROJECT).out)["steps"]
    assert {step["name"]: step["kind"] for step in listed}["r-extension"] == "cuda"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "r-triton", "--executor", "gpu"], 5, "'gpu' cannot run r-triton: "),
        (["run", "r-ptx", "--executor", "gpu"], 5, "r-ptx is a PTX step, which the emulator runs"),
        (["run", "r-cuda", "--executor", "gpu"], 5, "'gpu' cannot run r-cuda: "),
        (
            ["run", "r-triton", "--executor", "torch"], 5,
            "r-triton is a Triton step; this executor runs Python steps",
        ),
        (
            ["run", "r-torch", "--executor", "emulator"], 5,
            "r-torch is a Python step; this executor runs compiled, PTX, Triton and CUDA steps",
        ),
        (
            ["check", "r-torch"], 2,
            "r-torch is a Python step: check emulates compiled, PTX, Triton and CUDA steps",
        ),
        (["export", "r-cuda", "-o", "r.py"], 2, "r-cuda is a CUDA step, which cannot be exported"),
        pytest.param(
            ["sanitize", "r-cuda"], 5, "this needs r-cuda on a GPU, not on emulator: ",
            marks=needs_nvcc,
        ),
        (["inspect", "r-torch"], 2, "r-torch is a Python step: there is no code of its own"),
        (["inspect", "r-triton", "--shape", "none"], 2, "unknown shape 'none'"),
    ],
)  # fmt: skip
def test_refusals(bench: Bench, arguments: list[str], code: int, message: str) -> None:
    outcome = bench(*arguments, root=PROJECT)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.error


def test_what_a_triton_step_needs(bench: Bench, root: Path) -> None:
    change(root, "r-triton", 'kind = "triton"', 'kind = "triton"\nneeds = ["cutlass"]')
    assert "cutlass not installed" in bench("run", "r-triton", root=root).error


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a"])
def test_it_is_built_for_any_arch_that_nvcc_knows(bench: Bench, arch: str) -> None:
    outcome = bench("inspect", "r-cuda", "--arch", arch, "--json", "-", root=PROJECT)
    assert outcome.code == ExitCode.PASS, outcome.err
    (found,) = schema.decode(InspectRecord, read_document(outcome.out)).steps
    (build,) = found.builds
    (kernel,) = build.code
    assert (found.kind, build.arch, build.warnings) == ("cuda", arch, ())
    assert (kernel.kernel, kernel.static_shared_bytes) == ("normalize_rows", 32)
    assert kernel.threads == 256  # its __launch_bounds__
    assert kernel.registers > 0
    assert kernel.code_bytes > 0


@needs_nvcc
def test_an_arch_that_nvcc_does_not_know(bench: Bench, root: Path) -> None:
    outcome = bench("inspect", "r-cuda", "--arch", "sm_999", root=PROJECT)
    assert outcome.code == ExitCode.USAGE
    assert "does not build for sm_999, but for " in outcome.error
    assert "sm_90a" in outcome.error
    change(root, "r-cuda", 'kind = "cuda"', 'kind = "cuda"\narch = "sm_999"')
    outcome = bench("inspect", "r-cuda", root=root)
    assert outcome.code == ExitCode.ENVIRONMENT
    assert "r-cuda: nvcc " in outcome.error
    assert "does not build for sm_999, but for " in outcome.error


@needs_nvcc
def test_code_for_one_arch_is_not_built_for_another(bench: Bench, root: Path) -> None:
    change(root, "r-cuda", 'kind = "cuda"', 'kind = "cuda"\narch = "sm_80"')
    assert "sm_80" in bench("inspect", "r-cuda", root=root).out
    outcome = bench("inspect", "r-cuda", "--arch", "sm_89", root=root)
    assert "r-cuda: not built for sm_89" in outcome.error


@needs_nvcc
@pytest.mark.parametrize(
    ("old", "new", "file", "message"),
    [
        ('"rmsnorm"', '"rms_norm"', "step.toml", "field 'function': rmsnorm.cu has no 'rms_norm'"),
        (
            '"rmsnorm"', '"normalize_rows"', "step.toml",
            "normalize_rows is a __global__ kernel; name the host function that launches it",
        ),
        ("x[i] * scale", "y[i] * scale", "rows.cuh", 'rows.cuh(19): error: identifier "y"'),
    ],
)  # fmt: skip
def test_sources_that_cannot_be_built(
    bench: Bench, root: Path, old: str, new: str, file: str, message: str
) -> None:
    change(root, "r-cuda", old, new, file)
    outcome = bench("inspect", "r-cuda", root=root)
    assert outcome.code == ExitCode.ENVIRONMENT
    assert message in outcome.error


def test_what_triton_compiles_is_shown_without_a_gpu(bench: Bench) -> None:
    pytest.importorskip("triton")
    outcome = bench(
        "inspect", "r-triton", "--arch", "sm_80", "--shape", "small", "--ptx", "--json", "-",
        root=PROJECT,
    )  # fmt: skip
    assert outcome.code == ExitCode.PASS, outcome.err
    (found,) = schema.decode(InspectRecord, read_document(outcome.out)).steps
    (build,) = found.builds
    (kernel,) = build.code
    assert found.compiled_by.endswith(", for small (normal)")
    assert (kernel.kernel, kernel.threads, kernel.stages) == ("rms_norm", 256, 3)
    assert kernel.registers > 0
    assert kernel.ctas_per_sm
    assert ".target sm_80" in (build.ptx or "")


def test_configurations_of_an_autotuner_are_shown_apart(bench: Bench, root: Path) -> None:
    pytest.importorskip("triton")
    tuned = (
        "@triton.autotune([triton.Config({'BLOCK': b}, num_warps=4) for b in (1024, 2048)], "
        "key=['columns'])\n@triton.jit"
    )
    change(root, "r-triton", "@triton.jit", tuned, "submission.py")
    launched = ", BLOCK=triton.next_power_of_2(columns), num_warps=8"
    change(root, "r-triton", launched, "", "submission.py")
    outcome = bench("inspect", "r-triton", "--shape", "small", root=root)
    assert outcome.code == ExitCode.PASS, outcome.err
    assert "rms_norm[BLOCK=1024]" in outcome.out
    assert "rms_norm[BLOCK=2048]" in outcome.out


def test_a_call_that_needs_the_gpu_is_said(bench: Bench, root: Path) -> None:
    pytest.importorskip("triton")
    change(
        root, "r-triton", "    rows, ", "    torch.cuda.mem_get_info()\n    rows, ", "submission.py"
    )
    outcome = bench("inspect", "r-triton", "--shape", "small", root=root)
    assert outcome.code == ExitCode.ENVIRONMENT
    assert "r-triton: no kernels seen for small (normal): " in outcome.error


def test_the_difference_of_two_kinds_is_shown(bench: Bench) -> None:
    outcome = bench("diff", "r-triton", "r-cuda", root=PROJECT)
    assert outcome.code == ExitCode.PASS, outcome.err
    assert "-@triton.jit" in outcome.out
    assert '+extern "C" cudaError_t rmsnorm(' in outcome.out
    assert "r-triton is a Triton step: `kernelbench inspect r-triton`" in outcome.out
