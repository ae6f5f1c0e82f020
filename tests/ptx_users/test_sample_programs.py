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
REFUSED = {"curand_pi"}
#: What ``check`` needs of a sample that has this text.
OPTIONS = {"A kernel launches a kernel": ("--nvcc=-rdc=true",), "// Two GPUs": ("--gpus", 2)}

#: Beside others that are like them.
LONG = {
    "driver_streams", "fft_many", "gpu_symbols", "gpu_threads", "nested_sort", "nvrtc_templates",
    "peer_events", "peer_flag", "peer_halo", "peer_kernel", "peer_pool", "tail_launch",
}  # fmt: skip
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

    def check(
        name: str, *replaced: tuple[str, str], options: tuple[object, ...] | None = None
    ) -> Outcome:
        text = (SAMPLES / name).read_text()
        needs = [each for has, options in OPTIONS.items() if has in text for each in options]
        return check_program(
            bench, tmp_path, name, *replaced, arch=90, programs=SAMPLES,
            options=tuple(needs) if options is None else options,
        )  # fmt: skip

    return check


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in MISTAKES],
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


def test_text_that_a_program_compiles_is_quoted(checked: Checked) -> None:
    outcome = checked("nvrtc_templates.cu", ("1, 1, 1, 32, 1", "1, 1, 1, 64, 1"))
    assert outcome.code == 3 and "error[out-of-bounds]" in outcome.out, outcome.out
    assert re.search(r"--> scale\.cu:4 .*\n 4 \| data\[threadIdx\.x\] = ", outcome.out), outcome.out


#: Of samples for two GPUs: what is replaced, and what is said.
GPUS = {
    "two_gpus": [
        # Work of the one GPU, which has what the other has allocated.
        ("add<<<2, 64, 0, stream>>>", "CHECK(cudaSetDevice(0)), add<<<2, 64>>>",
         "of GPU 1, which GPU 0 cannot access: cudaDeviceEnablePeerAccess(1, 0) was not called"),
        ("    CHECK(cudaSetDevice(gpu));\n    CHECK(cudaDeviceSynchronize());",
         "    CHECK(cudaSetDevice(0));\n    CHECK(cudaDeviceSynchronize());",
         "that the host reads: nothing has made the host wait"),
    ],
    "peer_kernel": [
        ("  CHECK(cudaDeviceEnablePeerAccess(1, 0));\n", "",
         "cudaDeviceEnablePeerAccess(1, 0) was not called while GPU 0 was current"),
        ("  CHECK(cudaDeviceSynchronize());  // forth\n", "",
         "on the default stream of GPU 0 writes: nothing orders the two"),
        ("  CHECK(cudaDeviceSynchronize());  // forth\n  CHECK(cudaSetDevice(0));",
         "  CHECK(cudaSetDevice(0)), CHECK(cudaDeviceSynchronize());",
         "on the default stream of GPU 0 writes: nothing orders the two"),
    ],
    "peer_flag": [
        # At the scope of its own GPU, which does not reach the other.
        ("Flag(*flag).store(",
         "cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*flag).store(",
         "that kernel send on the default stream of GPU 0 writes: nothing orders the two"),
        ("memory_order_release", "memory_order_relaxed", "GPU 0 writes: nothing orders the two"),
    ],
    "gpu_threads": [
        ("      CHECK(cudaSetDevice(gpu));  // of the thread\n", "",
         "of GPU 1, which GPU 0 cannot access"),
        ("there[gpu], gpu + 2", "there[1 - gpu], gpu + 2", "0) was not called while GPU"),
    ],
    "gpu_symbols": [
        ("    CHECK(cudaMemcpyToSymbol", "    if (gpu == 0) CHECK(cudaMemcpyToSymbol",
         "main returned 1"),
    ],
    "peer_pool": [
        ("  CHECK(cudaMemPoolSetAccess(pool, &let, 1));",
         "  cudaSetDevice(1), CHECK(cudaDeviceEnablePeerAccess(0, 0)), cudaSetDevice(0);",
         "cannot access: cudaMemPoolSetAccess has not let it into the pool"),
        ("  CHECK(cudaStreamWaitEvent(second, counted));\n", "", "nothing orders the two"),
        ("  CHECK(cudaStreamWaitEvent(first, added));\n", "",
         "cudaFreeAsync on stream 1 of GPU 0 frees"),
    ],
    "peer_events": [
        ("    CHECK(cudaStreamWaitEvent(second, filled, 0));\n", "",
         "of GPU 1 reads: nothing orders the two"),
        ("    if (turn > 1) CHECK(cudaStreamWaitEvent(first, used, 0));\n", "",
         "of GPU 1 reads: nothing orders the two"),
        ("CHECK(cudaEventRecord(filled, first));", "CHECK(cudaEventRecord(used, first));",
         "returned cudaErrorInvalidResourceHandle: an event of GPU 1 in a stream of GPU 0"),
    ],
    "peer_halo": [
        ("of[1 - gpu].sent, 0));", "of[gpu].sent, 0));", "cudaMemcpyPeerAsync on stream"),
        ("++gpu) CHECK(cudaSetDevice(gpu)), CHECK(cudaDev", "++gpu) CHECK(cudaDev",
         "nothing orders the two"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in GPUS],
)
def test_a_sample_for_two_gpus_is_right_and_its_mistakes_are_found(
    checked: Checked, name: str
) -> None:
    outcome = checked(f"{name}.cu")
    assert outcome.code == 0 and re.search(r"→ (\d) clean of \1$", outcome.out, re.M), outcome.out
    for old, new, found in GPUS[name]:
        outcome = checked(f"{name}.cu", (old, new))
        assert outcome.code == 3 and found in " ".join(outcome.out.split()), outcome.out


def test_kernels_that_answer_each_other_are_refused(checked: Checked) -> None:
    answer = "  if (threadIdx.x == 0) {\n    Flag(flag[1]).store(1, cuda::memory_order_release);\n"
    outcome = checked(
        "peer_flag.cu",
        ("  if (threadIdx.x == 0) {\n", answer),
        ("Flag(*flag).store(1", "while (Flag(flag[1]).load() == 0);\n  Flag(*flag).store(1"),
        ("  if (threadIdx.x == 0) while", "  if (threadIdx.x == 0) {\n  while"),
        ("release);\n}\n__global__ void receive", "release);\n  }\n}\n__global__ void receive"),
        ("&flag, sizeof(unsigned)", "&flag, 2 * sizeof(unsigned)"),
        ("flag, 0, sizeof(unsigned)", "flag, 0, 2 * sizeof(unsigned)"),
    )
    assert outcome.code == 2, outcome.out
    assert "send and receive each wait for a word" in outcome.error.replace(
        "receive and send", "send and receive"
    )


def test_a_program_that_needs_two_gpus_is_told_how_it_gets_them(checked: Checked) -> None:
    outcome = checked("two_gpus.cu", options=())
    assert outcome.code == 3, outcome.out
    assert "main returned 2; it asks how many GPUs there are: --gpus 2" in outcome.out
    outcome = checked("two_gpus.cu", ("  need_two_gpus();", ""), options=())
    assert outcome.code == 3, outcome.out
    assert "cudaSetDevice returned cudaErrorInvalidDevice" in outcome.out
    outcome = checked("vector_add.cu", options=("--gpus", 65))
    assert outcome.code == 2 and "--gpus" in outcome.error


def test_a_program_without_kernels_is_checked_by_its_calls(checked: Checked) -> None:
    outcome = checked("device_query.cu")
    assert outcome.code == 0 and "1 clean of 1" in outcome.out, outcome.out
    # Of one that has a kernel and launches none, nothing would be known.
    outcome = checked("peer_copy.cu", options=())
    assert outcome.code == 2 and "it launched no kernel" in outcome.error, outcome.out
    assert "a program's arguments go after `--`" in outcome.error
    outcome = checked("vector_add.cu", ("int main() {", "int main() {\n  return 2;"))
    assert outcome.code == 3, outcome.out
    assert "main returned 2; it launched no kernel; a program's arguments go" in outcome.out


def test_a_program_that_needs_more_sms_is_told_of_a_gpus(checked: Checked) -> None:
    asks = (
        "int main() {\n  int sms;\n"
        "  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));\n"
        "  if (sms < 100) return 3;"
    )
    outcome = checked("vector_add.cu", ("int main() {", asks))
    assert outcome.code == 0 and "assumed  all-sms" in outcome.out, outcome.out
    # Not where it is asked for.
    outcome = checked("vector_add.cu", ("int main() {", asks), options=("--sms", 8))
    assert outcome.code == 3 and "main returned 3" in outcome.out, outcome.out


@pytest.mark.long
@pytest.mark.parametrize("file", sorted(SAMPLES.glob("*.cu")), ids=lambda file: file.stem)
def test_every_sample_is_right_and_clean(checked: Checked, file: Path) -> None:
    outcome = checked(file.name)
    assert outcome.code == (2 if file.stem in REFUSED else 0), outcome.out
