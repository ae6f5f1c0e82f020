"""CUDA steps on the emulator: run, checked, compared and copied like the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Outcome

from kernelbench.machine import toolchain

PROJECT = ROOT / "tests" / "kinds"
CHECK = ("--shape", "small", "--schedules", 1, "--sms", "2", "--jobs", 1, "--no-save")

Bench = Callable[..., Outcome]

pytestmark = [
    pytest.mark.usefixtures("emulator_runtime"),
    pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the project that a test may change."""
    shutil.copytree(PROJECT, tmp_path / "kinds")
    return tmp_path / "kinds"


def in_file(root: Path, name: str, *replaced: tuple[str, str], step: str = "r-cuda") -> None:
    """Replace texts in a file of a step."""
    path = root / "rmsnorm" / step / name
    text = path.read_text()
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)


def test_a_cuda_step_is_run_and_checked(bench: Bench, root: Path) -> None:
    outcome = bench("run", "r-cuda", "--shape", "small", "--no-save", root=root)
    assert outcome.code == 0 and "PASS" in outcome.out and "executor emulator" in outcome.out
    outcome = bench("check", "r-cuda", *CHECK, root=root)
    assert outcome.code == 0, outcome.out
    assert "calls in sequence" in outcome.out


SUMS = "if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;\n  __syncthreads();"
#: Every thread of a warp writes what is the same in all.
EQUAL = "sums[threadIdx.x / 32] = sum;\n  __syncthreads();"
LAUNCH = "<<<rows, kThreads, 0, stream>>>"


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("rows.cuh", "sum;\n  __syncthreads();", "sum;", "rows.cuh:"),
        ("rows.cuh", "  sum = 0;\n",
         "  while (*(volatile float*)out != -1) {\n  }\n  sum = 0;\n", "hang"),
        ("rows.cuh", "i < columns; i += kThreads) out", "i <= columns; i += kThreads) out",
         "no buffer owns"),
        ("rmsnorm.cu", LAUNCH, "<<<rows, kThreads>>>",
         "normalize_rows: on a stream that the stream of the call does not wait for"),
        ("rmsnorm.cu", LAUNCH, "<<<rows, 2048, 0, stream>>>", "returned 9 invalid configuration"),
        ("rmsnorm.cu", "rows, kThreads, 0, stream>>>(x, w, out, columns",
         "rows, kThreads, 0, stream>>>(x, w, out, columns / 2", "wrong"),
    ],
)  # fmt: skip
@pytest.mark.long
def test_what_is_wrong_with_a_cuda_step_is_found(
    bench: Bench, root: Path, file: str, old: str, new: str, found: str
) -> None:
    in_file(root, file, (old, new))
    outcome = bench("check", "r-cuda", *CHECK, "--timeout", "5", root=root)
    assert outcome.code == 3 and found in outcome.out, outcome.out


STORES = "  for (int i = threadIdx.x; i < columns; i += kThreads) out[i] = x[i] * scale * w[i];\n"
#: The row is put together in shared memory, and written by one bulk copy.
FENCE = '  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n'
BULK = """  __shared__ alignas(16) float row[1024];
  for (int i = threadIdx.x; i < columns; i += kThreads) row[i] = x[i] * scale * w[i];
FENCE  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\\n"
        "cp.async.bulk.commit_group;\\n"
        "cp.async.bulk.wait_group 0;" ::"l"(out),
        "r"(unsigned(__cvta_generic_to_shared(row))), "r"(columns * 4)
        : "memory");
  }
"""


@pytest.mark.long
@pytest.mark.parametrize(("fence", "code"), [(FENCE, 0), ("", 3)])
def test_a_missing_fence_is_found(bench: Bench, root: Path, fence: str, code: int) -> None:
    in_file(root, "rows.cuh", (STORES, BULK.replace("FENCE", fence)))
    outcome = bench("check", "r-cuda", *CHECK, "--no-sequence", root=root)
    assert outcome.code == code, outcome.out
    assert ("proxy-fence" in outcome.out and "rows.cuh:" in outcome.out) is (code == 3)


@pytest.mark.long
def test_a_torch_extension_is_run_and_checked(bench: Bench, root: Path) -> None:
    """Of torch's headers nvcc makes nothing new for the second command."""
    outcome = bench("run", "r-extension", "--shape", "small", "--no-save", root=root)
    assert outcome.code == 0 and "PASS" in outcome.out, outcome.out
    outcome = bench("check", "r-extension", *CHECK, root=root)
    assert outcome.code == 0, outcome.out


@pytest.mark.long
def test_a_formal_finding_is_shown_as_allowed(bench: Bench, root: Path) -> None:
    in_file(root, "rows.cuh", (SUMS, EQUAL))
    outcome = bench("check", "r-cuda", *CHECK, root=root)
    assert outcome.code == 0, outcome.out
    assert "= allowed: formal" in outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("rmsnorm.cu", "return cudaGetLastError();", "return cudaGetLastErro();",
         'identifier "cudaGetLastErro" is undefined'),
        ("rmsnorm.cu", "return cudaGetLastError();",
         "return cudaDeviceFlushGPUDirectRDMAWrites({}, {});",
         "calls cudaDeviceFlushGPUDirectRDMAWrites, which the CUDA runtime here does not have"),
        ("step.toml", 'status = "works"', 'status = "works"\ngpu_flags = ["-lcublas"]',
         "gpu_flags: -lcublas: a library for GPUs, which the emulator lacks"),
    ],
)  # fmt: skip
def test_what_does_not_build_is_one_line(
    bench: Bench, root: Path, file: str, old: str, new: str, message: str
) -> None:
    in_file(root, file, (old, new))
    outcome = bench("run", "r-cuda", "--shape", "small", "--no-save", root=root)
    assert outcome.code == 3 and "Traceback" not in outcome.out + outcome.err
    assert any(message in " ".join(line.split()) for line in outcome.out.splitlines()), outcome.out


@pytest.mark.long
def test_instructions_that_are_not_supported_are_named(bench: Bench, root: Path) -> None:
    video = '  asm volatile("{ .reg .b32 t; vadd.u32.u32.u32 t, 1, 2; }");\n'
    in_file(root, "rows.cuh", ("  sum = 0;\n", f"{video}  sum = 0;\n"))
    outcome = bench("check", "r-cuda", *CHECK, root=root)
    assert outcome.code == 2 and "unsupported PTX: vadd.u32.u32.u32 at rows.cuh:" in outcome.error


def test_an_arch_that_the_emulator_lacks(bench: Bench, root: Path) -> None:
    in_file(root, "step.toml", ('kind = "cuda"', 'kind = "cuda"\narch = "sm_75"'))
    outcome = bench("run", "r-cuda", "--executor", "emulator", "--no-save", root=root)
    assert outcome.code == 5 and "the emulator stands for sm_80, sm_86" in outcome.error


@pytest.mark.long
def test_a_cuda_step_is_copied_and_compared(bench: Bench, root: Path) -> None:
    assert bench("new", "r-two", "--from", "r-cuda", root=root).code == 0
    in_file(root, "rows.cuh", ("kThreads = 256", "kThreads = 128"), step="r-two")
    run = bench("run", "r-two", "--shape", "small", "--no-save", root=root)
    assert run.code == 0 and "PASS" in run.out
    outcome = bench("diff", "r-two", root=root)
    assert outcome.code == 0 and "+constexpr int kThreads = 128;" in outcome.out


COUNTS = """__device__ int calls;
__global__ void count(float* out, int expected) {
  if (calls++ != expected) out[0] = 7;
}
"""
COUNTED = "  static int made = 0;\n  count<<<1, 1, 0, stream>>>(out, made++);\n"


@pytest.mark.long
def test_each_number_of_sms_has_variables_of_its_own(bench: Bench, root: Path) -> None:
    """A kernel that counts its calls in a variable, and a host path that counts them, too."""
    in_file(
        root, "rmsnorm.cu",
        ('extern "C"', COUNTS + 'extern "C"'), ("columns, eps);\n", "columns, eps);\n" + COUNTED),
    )  # fmt: skip
    check = [each if each != "2" else "1,2" for each in CHECK]
    outcome = bench("check", "r-cuda", *check, root=root)
    assert outcome.code == 0, outcome.out


@pytest.mark.long
def test_schedules_of_a_cuda_step_are_shortened_replayed_and_traced(
    bench: Bench, root: Path, tmp_path: Path
) -> None:
    in_file(root, "rows.cuh", ("sum;\n  __syncthreads();", "sum;"))
    files, trace = tmp_path / "shortest", tmp_path / "trace.json"
    check = ("check", "r-cuda", *CHECK, "--no-sequence", "--max-findings", 1)
    outcome = bench(*check, "--minimize", files, "--trace", trace, "--at", root=root)
    assert outcome.code == 3
    # The last operations of a warp: a line of the step, not of CUDA's header that has the shuffle.
    assert "__shfl_xor_sync(~0u" in outcome.out and "intrinsics.hpp" not in outcome.out
    file = min(files.rglob("*.json"))
    replayed = bench("replay", file, "--times", 2, root=root)
    assert replayed.code == 3 and "rows.cuh:" in replayed.out
    assert "traceEvents" in trace.read_text()
