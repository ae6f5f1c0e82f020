"""Small programs of the kinds in NVIDIA's cuda-samples (``samples``), right and with mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Outcome
from cuda_programs import check_program

from kernelbench.build import compiler

pytestmark = pytest.mark.skipif(
    compiler.nvcc() is None or compiler.host_compiler() is None, reason="needs nvcc"
)

Checked = Callable[..., Outcome]
SAMPLES = ROOT / "tests" / "ptx_users" / "samples"
#: What the CUDA runtime here has not, as docs/ptx.md says, or this machine.
REFUSED = {"curand_pi", "peer_copy"}
NESTED = "A kernel launches a kernel"

#: What is replaced in a sample, and the finding.
MISTAKES = {
    "dynamic_parallelism": [
        # What a kernel launches is not done before its end.
        (("child<<<1, 32>>>(data);", "child<<<1, 32>>>(data), data[0] += data[31];"), "race"),
        # Of other threads it sees what they have done before a barrier.
        (("  if (threadIdx.x", "  data[threadIdx.x] = 1;\n  if (threadIdx.x"), "race"),
        (("(threadIdx.x == 0) child<<<1, 32>>>(data)",
          "(int here; threadIdx.x == 0) child<<<1, 32>>>(&here)"), "out-of-bounds"),
    ],
    "nested_sort": [(("0, second>>>(data, left,", "0, second>>>(data, low,"), "race")],
    "tail_launch": [(("cudaStreamTailLaunch", "cudaStreamFireAndForget"), "race")],
    "mipmap_levels": [(("CHECK(cudaDeviceSynchronize());\n  bool", "bool"), "race")],
    "driver_streams": [
        (("OK(cuStreamWaitEvent(second, filled, 0));", ""), "race"),
        ((("OK(cuEventSynchronize(done));\n  float passed_ms;\n"
          "  OK(cuEventElapsedTime(&passed_ms, filled, done));"), "float passed_ms = 1;"), "race"),
    ],
    "fft_many": [
        (("CHECK(cudaStreamSynchronize(stream));", ""), "race"),
        ((" || cufftSetStream(back, stream)", ""), "race"),
    ],
    "nvrtc_templates": [(("CHECK(cudaDeviceSynchronize());", ""), "race")],
    "per_thread_streams": [(("CHECK(cudaStreamSynchronize(nullptr));", ""), "race")],
}  # fmt: skip


@pytest.fixture
def checked(bench: Checked, tmp_path: Path) -> Checked:
    """Checks a sample with some of its text replaced."""

    def check(name: str, *replaced: tuple[str, str]) -> Outcome:
        nested = NESTED in (SAMPLES / name).read_text()
        options = ("--nvcc=-rdc=true",) if nested else ()
        return check_program(
            bench, tmp_path, name, *replaced, arch=90, programs=SAMPLES, options=options
        )

    return check


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name == "fft_many" else ()) for name in MISTAKES],
)
def test_a_sample_is_right_and_clean_and_its_mistakes_are_found(
    checked: Checked, name: str
) -> None:
    outcome = checked(f"{name}.cu")
    assert outcome.code == 0 and re.search(r"→ (\d) clean of \1$", outcome.out, re.M), outcome.out
    for replaced, found in MISTAKES[name]:
        outcome = checked(f"{name}.cu", replaced)
        assert outcome.code == 3 and f"error[{found}]" in outcome.out, outcome.out
        assert re.search(rf"(-->|:::) \S*{name}\.cu:\d+", outcome.out), outcome.out


def test_a_program_without_kernels_is_checked_by_its_calls(checked: Checked) -> None:
    outcome = checked("device_query.cu")
    assert outcome.code == 0 and "1 clean of 1" in outcome.out, outcome.out
    # Of one that has a kernel and launches none, nothing would be known.
    outcome = checked("peer_copy.cu")
    assert outcome.code == 2 and "it launched no kernel" in outcome.error, outcome.out
    assert "a program's arguments go after `--`" in outcome.error
    outcome = checked("peer_copy.cu", ("return verdict(true);", "return 2;"))
    assert outcome.code == 3, outcome.out
    assert "main returned 2; it launched no kernel; a program's arguments go" in outcome.out


@pytest.mark.long
@pytest.mark.parametrize("file", sorted(SAMPLES.glob("*.cu")), ids=lambda file: file.stem)
def test_every_sample_is_right_and_clean(checked: Checked, file: Path) -> None:
    outcome = checked(file.name)
    assert outcome.code == (2 if file.stem in REFUSED else 0), outcome.out
