"""``kernelbench check kernel.cu``: programs with a main, whose kernels run on the emulator."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Outcome
from cuda_programs import check_program

from kernelbench.machine import toolchain
from kernelbench.ptx.hosts.cuda_build import ProgramSources, program_library

Bench = Callable[..., Outcome]

pytestmark = [
    pytest.mark.usefixtures("emulator_runtime"),
    pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc"),
]


@pytest.fixture
def checked(bench: Bench, tmp_path: Path) -> Callable[..., Outcome]:
    """Checks a program with some of its text replaced."""

    return functools.partial(check_program, bench, tmp_path)


def test_a_program_is_right_and_clean(checked: Callable[..., Outcome]) -> None:
    outcome = checked("sums.cu")
    assert outcome.code == 0, outcome.out
    assert "sums.cu  add " in outcome.out and "2 clean of 2" in outcome.out
    assert "ctas-together" not in outcome.out


def test_textures_and_surfaces(checked: Callable[..., Outcome]) -> None:
    outcome = checked("textures.cu")
    assert outcome.code == 0, outcome.out + outcome.err
    assert "2 clean of 2" in outcome.out


def test_a_surface_is_written_twice(checked: Callable[..., Outcome]) -> None:
    """Both threads' pixels are one: a race at the line of the store."""
    outcome = checked(
        "textures.cu", ("surf2Dwrite(pixel, image, x *", "surf2Dwrite(pixel, image, x / 2 *")
    )
    assert outcome.code != 0 and "error[race]" in outcome.out, outcome.out


@pytest.mark.parametrize("header", [True, False], ids=["in a header", "in the program"])
def test_lambdas_of_the_device(tmp_path: Path, header: bool) -> None:
    run = "template <class F> __global__ void run(F f, int* x) { f(x); }\n"
    calls = (
        "int* call(int* x) { run<<<1, 1>>>([=] __device__(int* y) { *y = 1; }, x); return x; }\n"
    )
    (tmp_path / "calls.cuh").write_text(run + calls if header else run)
    file = tmp_path / "lambdas.cu"
    file.write_text(f'#include "calls.cuh"\n{"" if header else calls}int main() {{}}\n')
    assert program_library(ProgramSources(file), 90).is_file()


def test_a_kernel_prints_once(bench: Bench, tmp_path: Path) -> None:
    """However many schedules it runs in."""
    (tmp_path / "prints.cu").write_text(
        "#include <cstdio>\n"
        '__global__ void k(int i) { printf("thread %d of launch %d\\n", threadIdx.x, i); }\n'
        "int main() { for (int i = 0; i < 2; ++i) k<<<1, 2>>>(i); return cudaDeviceSynchronize(); }"
    )
    outcome = bench("check", "prints.cu", cwd=tmp_path)
    assert outcome.code == 0, outcome.out
    lines = [f"thread {thread} of launch {launch}" for launch in (0, 1) for thread in (0, 1)]
    assert sorted(line for line in outcome.err.splitlines() if "thread" in line) == sorted(lines)


_ERRORS = r"""
#include <cstdio>
#include <cuda.h>
__global__ void k() {}
int main() {
  k<<<1, 1>>>();
  const char *name, *none;
  cuGetErrorName(CUDA_ERROR_FILE_NOT_FOUND, &name);
  const int status = cuGetErrorName((CUresult)12345, &none);
  std::printf("%s %d %s\n", name, status, none ? none : "-");
  for (int e : {301, 912, 12345}) {
    std::printf("%s: %s\n", cudaGetErrorName((cudaError_t)e), cudaGetErrorString((cudaError_t)e));
  }
  return cudaDeviceSynchronize();
}
"""


def test_names_of_errors(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "errors.cu").write_text(_ERRORS)
    outcome = bench("check", "errors.cu", cwd=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    assert (
        "CUDA_ERROR_FILE_NOT_FOUND 1 -\ncudaErrorFileNotFound: file not found\n"
        "cudaErrorInvalidClusterSize: invalid cluster size\n"
        "unrecognized error code: unrecognized error code\n"
    ) in outcome.err


def test_a_program_that_forks_and_waits_for_all_its_children(bench: Bench, tmp_path: Path) -> None:
    """They end where its own main does, and none of kernelbench's processes is among them."""
    (tmp_path / "forks.cu").write_text(
        "#include <cstdio>\n#include <cstdlib>\n#include <sys/wait.h>\n#include <unistd.h>\n"
        "__global__ void k(int* x) { x[threadIdx.x] = 1; }\n"
        "int main() {\n"
        '  if (fork() == 0) { printf("a child\\n"); return 3; }\n'
        "  if (fork() == 0) exit(4);\n"
        "  int status, sum = 0;\n"
        "  while (wait(&status) > 0) sum += WEXITSTATUS(status);\n"
        "  int* x;\n  cudaMalloc(&x, 128);\n  k<<<1, 32>>>(x);\n"
        "  return cudaDeviceSynchronize() || sum != 7;\n}\n"
    )
    outcome = bench("check", "forks.cu", cwd=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    assert outcome.err.count("a child\n") == 1 and "Traceback" not in outcome.err
    assert "1 clean of 1" in outcome.out


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        (("__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\n"
         "__global__ void k(int* out) { out[threadIdx.x] = f(threadIdx.x); }"), 13),
        (("struct Any { __device__ virtual int of(int x) = 0; };\n"
         "struct More : Any { __device__ int of(int x) { return x + 6; } };\n"
         "struct Twice : Any { __device__ int of(int x) { return 2 * x; } };\n"
         "__global__ void k(int* out) {\n"
         "  More more;\n  Twice twice;\n  Any* any = &twice;\n"
         "  if (threadIdx.x % 2) any = &more;\n  out[threadIdx.x] = any->of(threadIdx.x);\n}"), 13),
        (("__global__ void k(int* out) {\n"
         "  int* const one = static_cast<int*>(malloc(64));\n  one[3] = threadIdx.x;\n"
         "  int* const two = new int[4];\n  two[1] = one[3] + 6;\n  free(one);\n"
         "  out[threadIdx.x] = two[1];\n  delete[] two;\n}"), 13),
    ],
    ids=["recursion", "virtual functions", "malloc"],
)  # fmt: skip
def test_functions_and_memory_of_kernels(
    bench: Bench, tmp_path: Path, kernel: str, wanted: int
) -> None:
    (tmp_path / "own.cu").write_text(
        f"{kernel}\nint main() {{\n  int *there, here[8];\n  cudaMalloc(&there, sizeof here);\n"
        "  for (int i = 0; i < 3; ++i) k<<<1, 8>>>(there);\n"
        "  cudaMemcpy(here, there, sizeof here, cudaMemcpyDeviceToHost);\n"
        f"  return here[7] != {wanted};\n}}\n"
    )
    outcome = bench("check", "own.cu", cwd=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    assert "1 clean of 1" in outcome.out


def test_memory_of_kernels_is_not_for_copies(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(
        "__global__ void k(int** out) { (*out = static_cast<int*>(malloc(4)))[0] = 5; }\n"
        "int main() {\n  int **there, *one, here;\n  cudaMalloc(&there, sizeof *there);\n"
        "  k<<<1, 1>>>(there);\n  cudaMemcpy(&one, there, sizeof one, cudaMemcpyDeviceToHost);\n"
        "  return cudaMemcpy(&here, one, sizeof here, cudaMemcpyDeviceToHost);\n}\n"
    )
    outcome = bench("check", "own.cu", cwd=tmp_path)
    assert outcome.code == 3 and "main returned 1: cudaMemcpy returned cudaError" in outcome.out
    assert "memory that a kernel has from malloc at own.cu:7" in outcome.out, outcome.out


@pytest.mark.parametrize(("who", "said"), [("", ""), ("if (threadIdx.x == 0) ", " since the last")])
def test_whoever_waits_for_a_cluster_has_arrived(
    bench: Bench, tmp_path: Path, who: str, said: str
) -> None:
    """PTX ISA 9.1, 9.7.13: the wait is for all threads, the one that waits among them."""
    arrive, wait = (
        'asm volatile("barrier.cluster.arrive;");',
        'asm volatile("barrier.cluster.wait;");',
    )
    (tmp_path / "own.cu").write_text(
        f"__global__ void __cluster_dims__(2) k() {{\n  {arrive}\n  {wait}\n"
        f"  {who}{arrive}\n  {wait}\n}}\n"
        "int main() {\n  k<<<2, 32>>>();\n  return cudaDeviceSynchronize();\n}\n"
    )
    outcome = bench("check", "own.cu", cwd=tmp_path)
    assert outcome.code == (3 if said else 0), outcome.out + outcome.err
    assert f"barrier.cluster.wait without barrier.cluster.arrive{said}" in outcome.out or not said


def test_an_assertion_of_a_kernel_has_its_error(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "own.cu").write_text(
        "#include <cassert>\n__global__ void k(int n) { assert(threadIdx.x < n); }\n"
        "int main() {\n  k<<<1, 4>>>(2);\n  return cudaDeviceSynchronize() != cudaErrorAssert;\n}\n"
    )
    outcome = bench("check", "own.cu", cwd=tmp_path)
    assert outcome.code == 3, outcome.out
    assert "assertion failed" in outcome.out and "main returned" not in outcome.out
    assert outcome.err.count("assertion `threadIdx.x < n` failed") == 1


RACE = """
#include <cassert>
#include <cstdlib>
#include <stdexcept>
__global__ void k(int* out) {
  __shared__ int row[64];
  row[threadIdx.x] = 0;
  __syncthreads();
  row[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = row[63 - threadIdx.x];
  KERNEL
}
int main() {
  int *there, here[64];
  cudaMalloc(&there, sizeof here);
  k<<<1, 64>>>(there);
  const cudaError_t found = cudaMemcpy(here, there, sizeof here, cudaMemcpyDeviceToHost);
  MAIN
}
"""


@pytest.mark.parametrize(
    ("kernel", "main", "said"),
    [
        ("", "assert(found != cudaSuccess);", "abort ended main"),
        ("", 'throw std::runtime_error("no");', "abort ended main"),
        ("assert(threadIdx.x != 63);", "return found != cudaErrorAssert;", "assertion failed"),
        ("assert(threadIdx.x != 63);", "if (found != cudaSuccess) abort();", "abort ended main"),
    ],
    ids=["assertion", "exception", "kernel's", "both"],
)
def test_what_is_found_before_an_assertion_fails(
    bench: Bench, tmp_path: Path, kernel: str, main: str, said: str
) -> None:
    (tmp_path / "own.cu").write_text(RACE.replace("KERNEL", kernel).replace("MAIN", main))
    outcome = bench("check", "own.cu", "--seed", 1, "--schedules", 8, cwd=tmp_path)
    assert outcome.code == 3 and said in outcome.out, outcome.out
    first = outcome.out.partition("\nerror[")[2]
    assert first.startswith("race]"), outcome.out


LOOK_BACK = """
#include <vector>
__global__ void scan(const unsigned* x, unsigned* y, unsigned long long* status) {
  const int tile = blockIdx.x;
  unsigned before = 0;
  if (tile > 0) {
    atomicExch(&status[tile], 1ull << 32 | x[tile]);  // its own value
    for (int at = tile - 1; at >= 0; --at) {
      unsigned long long word;
      while (((word = *(volatile unsigned long long*)&status[at]) >> 32) == 0) {
      }
      before += (unsigned)word;
      if (word >> 32 == 2) break;
    }
  }
  atomicExch(&status[tile], 2ull << 32 | (before + x[tile]));  // the sum up to it
  y[tile] = before + x[tile];
}
int main() {
  const int n = 6;
  unsigned x[n], y[n], sum = 0, *dx, *dy;
  unsigned long long* status;
  cudaMalloc(&dx, sizeof x), cudaMalloc(&dy, sizeof y), cudaMalloc(&status, 8 * n);
  for (int i = 0; i < n; ++i) x[i] = i + 1;
  cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
  cudaMemset(status, 0, 8 * n);
  scan<<<n, 1>>>(dx, dy, status);
  cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
  for (int i = 0; i < n; ++i) {
    if (y[i] != (sum += x[i])) return 1;
  }
  return 0;
}
"""


@pytest.mark.parametrize("mistake", [False, True])
def test_main_fails_in_other_schedules_only(bench: Bench, tmp_path: Path, mistake: bool) -> None:
    """No race: a block that takes another's value for a sum is right if that one was quick."""
    text = LOOK_BACK.replace(">> 32 == 2) break", ">> 32 >= 1) break") if mistake else LOOK_BACK
    (tmp_path / "scan.cu").write_text(text)
    outcome = bench("check", "scan.cu", "--seed", 1, "--schedules", 1, cwd=tmp_path)
    if not mistake:
        assert outcome.code == 0, outcome.out
        return
    assert outcome.code == 3, outcome.out
    found = re.search(r"main (?:returned 1|fails in other schedules: --seed (\d+))", outcome.out)
    assert found is not None, outcome.out
    if found[1]:
        again = bench("check", "scan.cu", "--seed", found[1], "--schedules", 1, cwd=tmp_path)
        assert again.code == 3 and "main returned 1" in again.out


COUNTS_ITS_RUNS = """
#include <cstdio>
#include <thread>
__global__ void k(int* x) {
  __shared__ int sum, last;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  const int before = atomicAdd(&sum, 1);
  KERNEL
  __syncthreads();
  if (threadIdx.x == 0) x[blockIdx.x] = VALUE;
}
int main() {
  FILE* const runs = fopen("runs", "a");
  fputs("main\\n", runs), fclose(runs);
  int *x, y[4];
  cudaMalloc(&x, sizeof y), cudaMemset(x, 0, sizeof y);
  HOST
  k<<<2, 64>>>(x);
  cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
  return 0;
}
"""


OTHER_STREAM = """
  cudaStream_t other;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  int* z;
  cudaMalloc(&z, 4), cudaMemsetAsync(z, 1, 4, other);
"""


@pytest.mark.parametrize(
    ("kernel", "value", "host", "again"),
    [
        ("", "sum", "", False),
        ("if (before == 63) last = threadIdx.x;", "last", "", True),
        ("if (before == 63) atomicAdd(&x[2], 1);", "sum", "", True),
        ("", "sum + int(clock64() & 0)", "", True),
        ("", "sum", "std::thread([] {}).join();", True),
        ("", "sum", OTHER_STREAM, True),
        ("", "sum", "k<<<2, 64>>>(x);", True),
    ],
    ids=["known", "differs", "clusters meet", "a clock", "a thread", "pending", "few schedules"],
)  # fmt: skip
def test_main_runs_again_unless_what_it_would_do_is_known(
    bench: Bench, tmp_path: Path, kernel: str, value: str, host: str, again: bool
) -> None:
    """A launch whose clusters have nothing to do with each other is decided by its seed."""
    text = COUNTS_ITS_RUNS.replace("KERNEL", kernel).replace("VALUE", value)
    (tmp_path / "runs.cu").write_text(text.replace("HOST", host))
    outcome = bench("check", "runs.cu", "--seed", 1, cwd=tmp_path)
    assert outcome.code == 0, outcome.out
    assert (len((tmp_path / "runs").read_text().splitlines()) > 1) == again


@pytest.mark.parametrize("asks", ["cudaEventQuery(done)", "cudaStreamQuery(stream)"])
def test_a_query_is_no_wait(bench: Bench, tmp_path: Path, asks: str) -> None:
    """CUDA runtime API: cudaErrorNotReady says that it has to be asked again."""
    program = """
__global__ void k(int* x) { *x = 7; }
int main() {
  int *there, *here;
  cudaStream_t stream;
  cudaEvent_t done;
  cudaStreamCreate(&stream), cudaEventCreate(&done);
  cudaMalloc(&there, 4), cudaMallocHost(&here, 4);
  k<<<1, 1, 0, stream>>>(there);
  cudaMemcpyAsync(here, there, 4, cudaMemcpyDeviceToHost, stream);
  cudaEventRecord(done, stream);
  ASKS;
  return *here != 7;
}
"""
    (tmp_path / "right.cu").write_text(
        program.replace("ASKS", f"while ({asks} == cudaErrorNotReady) {{}}")
    )
    (tmp_path / "wrong.cu").write_text(program.replace("ASKS", asks))
    right, wrong = (bench("check", f"{name}.cu", cwd=tmp_path) for name in ("right", "wrong"))
    assert right.code == 0, right.out
    assert wrong.code == 3
    assert "that the host reads: nothing has made the host wait" in wrong.out


def test_a_function_of_the_host_that_nobody_waits_for(bench: Bench, tmp_path: Path) -> None:
    """What it is given may be gone when main has ended: it is not called then."""
    (tmp_path / "late.cu").write_text(
        "__global__ void k(int* x) { *x = 7; }\n"
        "void set(void* x) { *static_cast<int*>(x) = 7; }\n"
        "int main() {\n  int *there, here = 0;\n  cudaMalloc(&there, 4);\n"
        "  k<<<1, 1>>>(there);\n  cudaLaunchHostFunc(0, set, &here);\n  return here != 7;\n}\n"
    )
    outcome = bench("check", "late.cu", cwd=tmp_path)
    assert outcome.code == 3 and "main returned 1" in outcome.out, outcome.out


def test_a_stream_that_does_not_join_the_capture(bench: Bench, tmp_path: Path) -> None:
    """CUDA programming guide, Cross-stream Dependencies and Events: the capture has an error."""
    program = """
__global__ void k(int* x) { *x += 1; }
int main() {
  int* there;
  cudaStream_t one, two;
  cudaEvent_t begun, done;
  cudaGraph_t graph;
  cudaMalloc(&there, 8), cudaMemset(there, 0, 8);
  cudaStreamCreate(&one), cudaStreamCreate(&two), cudaEventCreate(&begun), cudaEventCreate(&done);
  cudaDeviceSynchronize();
  cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal);
  cudaEventRecord(begun, one), cudaStreamWaitEvent(two, begun);
  k<<<1, 1, 0, one>>>(there), k<<<1, 1, 0, two>>>(there + 1);
  cudaEventRecord(done, two);
  JOIN;
  const cudaError_t status = cudaStreamEndCapture(one, &graph);
  k<<<1, 1, 0, one>>>(there);
  return cudaStreamSynchronize(one) != cudaSuccess || status != WANTED;
}
"""
    for join, wanted in (
        ("cudaStreamWaitEvent(one, done)", "cudaSuccess"),
        ("", "cudaErrorStreamCaptureUnjoined"),
    ):
        (tmp_path / "capture.cu").write_text(
            program.replace("JOIN", join).replace("WANTED", wanted)
        )
        outcome = bench("check", "capture.cu", cwd=tmp_path)
        assert outcome.code == 0, outcome.out


@pytest.mark.long
def test_variables_graphs_and_managed_memory(checked: Callable[..., Outcome]) -> None:
    outcome = checked("variables.cu")
    assert outcome.code == 0, outcome.out
    assert "scale<float, 64>" in outcome.out and "1 clean of 1" in outcome.out


@pytest.mark.parametrize(
    "waits",
    [
        "streams[0], done[1]",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("", "streams[1], done[0]")),
    ],
)
def test_dependencies_of_a_graph(checked: Callable[..., Outcome], waits: str) -> None:
    """Either of them that is missing shows in one of the orders of two launches."""
    wait = f"  cudaStreamWaitEvent({waits});\n"
    outcome = checked("graphs.cu", *([(wait, "")] if waits else []))
    assert outcome.code == (3 if waits else 0), outcome.out
    assert ("main returned 1" in outcome.out) == bool(waits)


def test_flags_locks_and_counters(checked: Callable[..., Outcome]) -> None:
    outcome = checked("flags.cu")
    assert outcome.code == 0, outcome.out
    assert "4 clean of 4" in outcome.out
    # By every thread a fence, by one the atomic: PTX wants both of one thread.
    assert re.search(r"::last_block +clean +\d+ +0 \+ 1 allowed", outcome.out), outcome.out
    assert "allowed[race]" in outcome.out and "fences are missing" in outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("fills ? 1 : 0, cuda::memory_order_release", "fills ? 1 : 0, cuda::memory_order_relaxed",
         "race"),
        ("thread_scope_device> flag", "thread_scope_block> flag",
         "what that CTA releases has a scope that does not reach this one"),
        ("flag.store(1, cuda::memory_order_release)", "flag.store(1, cuda::memory_order_relaxed)",
         "race"),
        ("flag.store(1, ", "flag.store(0, ", "hang"),
        ("kWarp + threadIdx.x];\n  __threadfence();\n  __syncthreads();",
         "kWarp + threadIdx.x];\n  __syncthreads();", "race"),
        ("kWarp + threadIdx.x];\n  __threadfence();\n  __syncthreads();",
         "kWarp + threadIdx.x];\n  __threadfence();", "race"),
        ("if (!last) return;\n  __threadfence();", "if (!last) return;", "race"),
        ("atomicAdd(count", "atomicAdd_block(count", "the scope of an atomic"),
        ("  atomicExch(word, 0);\n", "", "hang"),
        ("atomicAdd(count, 1u) == gridDim.x - 1;",
         "atomicAdd(count, 1u) == gridDim.x - 1, parts[blockIdx.x * kWarp] = 1;", "error[race]"),
    ],
)  # fmt: skip
def test_what_flags_locks_and_counters_lack(
    checked: Callable[..., Outcome], old: str, new: str, found: str
) -> None:
    outcome = checked("flags.cu", (old, new), schedules=10)
    assert outcome.code == 3 and found in outcome.out, outcome.out


def test_loops_that_poll_are_clean_in_every_schedule(checked: Callable[..., Outcome]) -> None:
    """Several barriers, a barrier and a flag, a lane, a function, ahead; a queue of CTAs."""
    outcome = checked("polling.cu", schedules=100, arch=90)
    assert outcome.code == 0 and "9 clean of 9" in outcome.out, outcome.out


@pytest.mark.parametrize("looped", [0, 2, 3, 6])
@pytest.mark.long
def test_polling_for_bytes_that_never_come(checked: Callable[..., Outcome], looped: int) -> None:
    """Named by what each barrier lacks, and not by a limit of time."""
    only, bytes_ = ("kOnly = -1", f"kOnly = {looped}"), ('"r"(kBytes)', '"r"(kBytes + 16)')
    outcome = checked("polling.cu", only, bytes_, arch=90)
    assert outcome.code == 3, outcome.out
    assert "error[hang]: deadlock: " in outcome.out
    assert "; 64 threads wait" in outcome.out
    assert "16 bytes outstanding; 16 more bytes would end it" in outcome.out


@pytest.mark.parametrize(
    ("looped", "old", "new", "found"),
    [
        (5, "      atomicExch(flag, 1);\n", "", "flag + 0 holds 0"),
        (8, "at, at + 1) != at", "at, at) != at", "queue + 4 holds 0"),
    ],
)  # fmt: skip
@pytest.mark.long
def test_polling_for_a_flag_that_is_never_set(
    checked: Callable[..., Outcome], looped: int, old: str, new: str, found: str
) -> None:
    outcome = checked("polling.cu", ("kOnly = -1", f"kOnly = {looped}"), (old, new), arch=90)
    assert outcome.code == 3, outcome.out
    assert "error[hang]: deadlock: " in outcome.out
    said = re.sub(r" \(allocated at polling.cu:\d+\)", "", " ".join(outcome.out.split()))
    assert f"waits for a value in global memory: {found}" in said


def test_threads_that_have_exited_are_not_waited_for(checked: Callable[..., Outcome]) -> None:
    outcome = checked("exits.cu", schedules=8)
    assert outcome.code == 0, outcome.out
    assert "allowed[named-barrier]" in outcome.out and "allowed[exit]" in outcome.out, outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("  __syncthreads();\n", "", "race"),
        ("before[0], 0);", "before[0], 31);", "shfl.sync reads lane 31"),
        ("  __syncthreads();  // without them\n", "", "error[race]"),
    ],
)  # fmt: skip
def test_what_is_missed_where_threads_have_exited(
    checked: Callable[..., Outcome], old: str, new: str, found: str
) -> None:
    outcome = checked("exits.cu", (old, new))
    assert outcome.code == 3 and found in outcome.out, outcome.out


@pytest.mark.parametrize(
    "stops", [("", ""), ("if (loads) {\n", 'if (loads) {\n if (!leads) asm volatile("brkpt;");\n')],
    ids=["hangs", "stops"],
)  # fmt: skip
def test_a_hang_where_another_lane_is_elected_is_an_assumption(
    checked: Callable[..., Outcome], stops: tuple[str, str]
) -> None:
    """In the manner of CUTLASS's pipelines; a warp that stores one tile stores it once."""
    outcome = checked("elected.cu", stops, schedules=8, arch=90)
    assert outcome.code == 0, outcome.out
    assert "assumed  elect-lowest" in outcome.out and "error" not in outcome.out


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("if (leads) {\n        asm", "if (leads && at != 3) {\n        asm", "error[hang]"),
        ('"r"(address(tile)), "n"', '"r"(address(tile) + threadIdx.x), "n"', "error[alignment]"),
        ('asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");', "", "error[overwrite]"),
    ],
    ids=["armed by nobody", "each its own", "not waited for"],
)
def test_what_is_wrong_with_any_lane(
    checked: Callable[..., Outcome], old: str, new: str, found: str
) -> None:
    outcome = checked("elected.cu", (old, new), schedules=4, arch=90)
    assert outcome.code == 3 and found in outcome.out, outcome.out
    assert "elect-lowest" not in outcome.out or found != "error[hang]"


@pytest.mark.long
def test_products_by_wmma(checked: Callable[..., Outcome]) -> None:
    outcome = checked("wmma.cu")
    assert outcome.code == 0, outcome.out


def test_streams_that_wait(checked: Callable[..., Outcome]) -> None:
    outcome = checked("streams.cu")
    assert outcome.code == 0, outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("  cudaStreamWaitEvent(second, filled, 0);\n", "", "main returned 1"),
        ("cudaStreamSynchronize(second)", "cudaStreamSynchronize(first)", "main returned 1"),
        ("if (at < kCount) sum[at] = a[at] + b[at];", "sum[at] = a[at] + b[at];",
         " past the end of a (allocated at streams.cu:23)"),
        ("add<<<8, 128, 0, second>>>", "add<<<8, 128, 1 << 20, second>>>",
         "cudaErrorInvalidConfiguration: 1048576 bytes of dynamic shared memory, of at most 49152"),
        ("  cudaFree(sum);\n", "  fill<<<8, 2048>>>(sum, 0);\n  cudaFree(sum);\n",
         "fill, 2048 threads in a block, of at most 1024, was not launched (cudaErrorInvalidC"),
        ("  cudaFree(sum);\n", "  cudaFree(sum);\n  fill<<<8, 128>>>(sum, 0);\n",
         "of sum (allocated at streams.cu:25), which the program has freed"),
    ],
)  # fmt: skip
def test_what_streams_and_launches_lack(
    checked: Callable[..., Outcome], old: str, new: str, found: str
) -> None:
    outcome = checked("streams.cu", (old, new))
    assert outcome.code == 3 and found in outcome.out, outcome.out


_CLUSTERS = """
__global__ void k(int* to) { atomicAdd(to, 1); }
int main() {
  int* to;
  cudaMalloc(&to, 4);
  cudaMemset(to, 0, 4);
  ALLOWED;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 16;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 16;
  config.blockDim = 32;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int count = 0;
  const cudaError_t counted = cudaOccupancyMaxActiveClusters(&count, k, &config);
  if (counted != (count > 0 ? cudaSuccess : cudaErrorInvalidClusterSize)) return 7;
  return cudaLaunchKernelEx(&config, k, to) != cudaSuccess || cudaDeviceSynchronize();
}
"""


@pytest.mark.parametrize("allowed", [False, True])
def test_a_cluster_of_more_than_eight_has_to_be_allowed(
    bench: Bench, tmp_path: Path, allowed: bool
) -> None:
    call = "cudaFuncSetAttribute(k, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)"
    (tmp_path / "c.cu").write_text(_CLUSTERS.replace("ALLOWED", call if allowed else ""))
    outcome = bench("check", "c.cu", "--schedules", 1, cwd=tmp_path)
    assert outcome.code == (0 if allowed else 3), outcome.out
    assert allowed or "cudaErrorInvalidClusterSize: 16 blocks in a cluster" in outcome.out
    assert "main returned 7" not in outcome.out


def test_boxes_of_every_type(checked: Callable[..., Outcome]) -> None:
    """The driver numbers types in another order than PTX does."""
    outcome = checked("map_types.cu")
    assert outcome.code == 0, outcome.out


def test_a_tensor_map_whose_second_word_the_host_changes(checked: Callable[..., Outcome]) -> None:
    """CUTLASS 4.5 clears bit 21 there if the matrix is small."""
    encoded = "kTileColumns) || !encode(&to, out, kTileColumns)) return 1;"
    change = "reinterpret_cast<unsigned long long*>(&from)[1] ^= 1ull << 21;"
    outcome = checked("tensor_map.cu", (encoded, encoded + change), schedules=4, arch=90)
    assert outcome.code == 0, outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        ("tensor_map.cu", 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");', "",
         "proxy-fence"),
        ("cluster.cu", "  cluster.sync();\n  if (cluster", "  if (cluster", "race"),
        ("grid_sync.cu", "    grid.sync();\n    y[i]", "    y[i]", "race"),
        ("grid_sync.cu", " * sms, count", " * sms + 1, count", "returned 2"),
        # An SM holds fewer of those than of what the program has asked for.
        ("grid_sync.cu", "arguments, 0, nullptr", "arguments, 40000, nullptr", "returned 2"),
    ],
)  # fmt: skip
def test_copies_clusters_and_grids_that_synchronize(
    checked: Callable[..., Outcome], name: str, old: str, new: str, found: str
) -> None:
    outcome = checked(name)
    assert outcome.code == 0, outcome.out
    outcome = checked(name, (old, new))
    assert outcome.code == 3 and found in outcome.out


def test_a_mistake_of_ctas_that_few_sms_have_not(checked: Callable[..., Outcome]) -> None:
    """A program that sizes its launches by the GPU has four CTAs on four SMs."""
    late = "{\n  if (blockIdx.x > 8) return;\n  const cg"
    outcome = checked("grid_sync.cu", ("{\n  const cg", late))
    assert outcome.code == 3 and "error[hang]" in outcome.out, outcome.out
    assert "16 SMs" in outcome.out and "--sms 16" in outcome.out, outcome.out


@pytest.mark.long
def test_shared_memory_beyond_48_kib_has_to_be_asked_for(checked: Callable[..., Outcome]) -> None:
    outcome = checked("variables.cu", ("kBlock, 0, stream>", "kBlock, 49153, stream>"))
    assert outcome.code == 3 and "main returned" in outcome.out


@pytest.mark.long
def test_what_it_asks_for_at_run_time_is_named(checked: Callable[..., Outcome]) -> None:
    asks = "int value; cudaDeviceGetAttribute(&value, cudaDevAttrGPUDirectRDMASupported, 0);"
    outcome = checked("variables.cu", ("  float *x, *y;", f"  float *x, *y; {asks}"))
    assert outcome.code == 2
    assert (
        "asks for device attribute 116, which the CUDA runtime here does not have" in outcome.error
    )


@pytest.mark.long
def test_nodes_and_updates_of_a_graph(checked: Callable[..., Outcome]) -> None:
    outcome = checked("graph_nodes.cu")
    assert outcome.code == 0 and "2 clean of 2" in outcome.out, outcome.out
    # What comes behind a child graph comes behind all of its nodes.
    edits = ("&sums, 1, &use", "nullptr, 0, &use"), ("count != 4", "count != 3")
    outcome = checked("graph_nodes.cu", *edits)
    assert outcome.code and re.search(r"race\]: .* of a graph", outcome.out), outcome.out


#: Edits of a graph's conditional nodes, and what is said of them then.
CONDITIONAL = {
    "behind the wrong node": (
        "odd, 2, loop, &bodies", "odd, 2, first, &bodies",
        "that kernel add of a conditional node writes: nothing orders the two",
    ),
    "no launch sets it": (
        "&again, graph, 1, cudaGraphCondAssignDefault", "&again, graph, 1, 0",
        "cudaGraphAddNode (its condition) reads allocation 3",
    ),
    "no end": (
        "  cudaGraphSetConditional(again, most > 10);\n", "",
        "error[hang]: a while node: its condition is not 0 after 4,000 rounds",
    ),
}  # fmt: skip


def test_conditional_nodes_of_a_graph(checked: Callable[..., Outcome]) -> None:
    outcome = checked("conditional.cu")
    assert outcome.code == 0 and "4 clean of 4" in outcome.out, outcome.out


def test_a_while_node_may_take_as_long_as_a_schedule(checked: Callable[..., Outcome]) -> None:
    was, now, said = CONDITIONAL["no end"]
    outcome = checked("conditional.cu", (was, now), options=("--timeout", "3s"))
    said = said.removesuffix("4,000 rounds")
    assert outcome.code == 3 and said in outcome.out, outcome.out
    assert "rounds and the time of a schedule (--timeout)" in outcome.out, outcome.out


@pytest.mark.long
@pytest.mark.parametrize("case", CONDITIONAL)
def test_wrong_conditional_nodes(checked: Callable[..., Outcome], case: str) -> None:
    was, now, said = CONDITIONAL[case]
    outcome = checked("conditional.cu", (was, now))
    assert outcome.code == 3 and said in outcome.out, outcome.out


def test_a_programmatic_edge_of_a_graph(checked: Callable[..., Outcome]) -> None:
    outcome = checked("edges.cu")
    assert outcome.code == 0 and "2 clean of 2" in outcome.out, outcome.out
    outcome = checked("edges.cu", ("cudaGridDependencySynchronize();", ""))
    assert outcome.code == 3 and "before griddepcontrol.wait" in outcome.out, outcome.out


LEGACY = """
__global__ void fill(int* x) { *x = 7; }
int main() {
  int *there, *here;
  cudaStream_t stream;
  cudaEvent_t event;
  cudaStreamCreate(&stream);
  cudaEventCreate(&event);
  cudaMalloc(&there, sizeof(int));
  cudaMallocHost(&here, sizeof(int));
  *here = 0;
  fill<<<1, 1, 0, stream>>>(there);
  fill<<<1, 1>>>(there);
  cudaMemcpyAsync(here, there, sizeof(int), cudaMemcpyDeviceToHost);
  WAIT;
  return *here != 7;
}
"""


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        ("cudaStreamSynchronize(stream)", "that the host reads: nothing has made the host wait"),
        ("cudaEventRecord(event, stream), cudaEventSynchronize(event)", ""),
    ],
)
def test_what_a_blocking_stream_waits_for(
    bench: Bench, tmp_path: Path, wait: str, said: str
) -> None:
    """As on an H200: what came to the legacy stream later is none of its work."""
    (tmp_path / "own.cu").write_text(LEGACY.replace("WAIT", wait))
    outcome = bench("check", "own.cu", "--schedules", 2, cwd=tmp_path)
    assert outcome.code == (3 if said else 0) and said in outcome.out, outcome.out


_SURFACE = "surf1Dwrite<int>(threadIdx.x, image, 4 * threadIdx.x);"
#: What a kernel writes before it reads that by a cache, and what is said of it.
CACHED = {
    "nothing": ("", ""),
    "its memory": ("values[threadIdx.x] = threadIdx.x;", "a load by the read-only cache reads"),
    "its image": (_SURFACE, "a texture fetch reads|a surface load reads"),
}


@pytest.mark.parametrize("what", CACHED)
def test_caches_that_writes_of_a_launch_do_not_reach(
    checked: Callable[..., Outcome], what: str
) -> None:
    before, said = CACHED[what]
    outcome = checked("cached.cu", ("  // here", f"  {before}"))
    assert outcome.code == (3 if said else 0), outcome.out
    for each in filter(None, said.split("|")):
        assert f"{each} " in outcome.out, outcome.out
    assert ("that the same launch has written" in outcome.out) == bool(said)


_LOOP = "    while (set.load(cuda::memory_order_acquire) == 0) continue;\n"
_POLL = "    while (*static_cast<volatile unsigned*>(flag) == 0) continue;\n"
#: Edits of a kernel that waits for the host, and whether it acquires what the host has written.
HOST_FLAGS = {
    "as it is": ("", "", True),
    "scope of the GPU": ("thread_scope_system", "thread_scope_device", False),
    "a fence": (_LOOP, f"{_POLL}    __threadfence_system();\n", True),
    "a fence at the scope of the GPU": (_LOOP, f"{_POLL}    __threadfence();\n", False),
    "no fence": (_LOOP, _POLL, False),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(each, marks=[pytest.mark.long] if each.startswith("a fence") else [])
        for each in HOST_FLAGS
    ],
)
def test_flags_of_the_host(checked: Callable[..., Outcome], case: str) -> None:
    """PTX ISA, 8.6: a scope below the system's does not reach the host."""
    was, now, acquires = HOST_FLAGS[case]
    outcome = checked("host_flag.cu", (was, now))
    said = "the flag is not acquired at the scope of the system" in outcome.out
    assert said != acquires and outcome.code == (0 if acquires else 3), outcome.out


#: Edits of streams that wait for words, and what is said of them then.
WORDS = {
    "begun is not ended": (
        "  CHECK(cudaStreamWaitEvent(second, ended, 0));\n", "",
        "that kernel add on stream 2 reads: nothing orders the two",
    ),
    "without a fence": (
        "filled, round, CU_STREAM_WRITE_VALUE_DEFAULT",
        "filled, round, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER",
        "a load reads values (allocated at ",
    ),
    "a value of the round before": (
        "(second, filled, round,", "(second, filled, 1,",
        "that kernel add on stream 2 reads: nothing orders the two",
    ),
    "nothing writes it": (
        "(second, filled, round,", "(second, filled, round + 1,",
        "error[hang]: a stream waits for a value of a word that nothing writes",
    ),
}  # fmt: skip


def test_streams_that_wait_for_each_other(checked: Callable[..., Outcome]) -> None:
    """The first wait is named, and nothing comes after it."""
    outcome = checked("words.cu", ("added, round - 1,", "added, round,"), options=("-lcuda",))
    assert "error[hang]: a stream waits for a value of a word" in outcome.out
    assert "(first, added, round, CU_STREAM_WAIT_VALUE_GEQ)" in outcome.out
    assert "error[race]" not in outcome.out and outcome.code == 3, outcome.out


def test_streams_wait_for_words(checked: Callable[..., Outcome]) -> None:
    outcome = checked("words.cu", options=("-lcuda",))
    assert outcome.code == 0 and "2 clean of 2" in outcome.out, outcome.out


@pytest.mark.parametrize(
    ("name", "edit", "found"),
    [
        ("kernel_sets.cu", None, ""),
        ("kernel_sets.cu", ("  __threadfence_system();  // before", ""),
         "that kernel fill on stream 1 writes"),
        ("served.cu", None, ""),
        ("served.cu", ("__syncthreads();  // all of the answer", ""),
         "cudaMemcpyAsync on stream 3 reads out"),
        pytest.param(
            "served.cu", ("CHECK(cudaStreamWaitEvent(up, taken[slot]));  // its answer", ""),
            "that cudaMemcpyAsync on stream 3 reads: nothing orders the two",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "served.cu",
            ("rung, job, CU_STREAM_WRITE_VALUE_DEFAULT",
             "rung, job, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER"),
            "that cudaMemcpyAsync on stream 2 writes: nothing orders the two",
            marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_kernels_and_streams_answer_each_other(
    checked: Callable[..., Outcome], name: str, edit: tuple[str, str] | None, found: str
) -> None:
    outcome = checked(name, *([edit] if edit else []), options=("-lcuda",))
    assert outcome.code == (3 if found else 0) and found in outcome.out, outcome.out


#: It waits for one value alone, which the other stream must not replace.
ONE_VALUE = ("(second, filled, round, CU_STREAM_WAIT_VALUE_GEQ)",
             "(second, filled, round, CU_STREAM_WAIT_VALUE_EQ)")  # fmt: skip
UNHINDERED = ("(first, added, round - 1,", "(first, added, 0,")


@pytest.mark.parametrize("edits", [(ONE_VALUE,), (ONE_VALUE, UNHINDERED)], ids=["right", "missed"])
def test_streams_wait_for_one_value(
    checked: Callable[..., Outcome], edits: tuple[tuple[str, str], ...]
) -> None:
    outcome = checked("words.cu", *edits, options=("-lcuda",))
    missed = "a write that nothing orders behind the wait may replace it" in outcome.out
    assert missed == (len(edits) > 1), outcome.out
    assert outcome.code == (3 if missed else 0), outcome.out


@pytest.mark.long
@pytest.mark.parametrize("case", WORDS)
def test_wrong_words(checked: Callable[..., Outcome], case: str) -> None:
    was, now, said = WORDS[case]
    outcome = checked("words.cu", (was, now), options=("-lcuda",))
    assert outcome.code == 3 and said in outcome.out, outcome.out


def test_calls_of_cublas_and_curand(checked: Callable[..., Outcome]) -> None:
    """In the order of their stream, and of what kernels do."""
    options = ("-lcublas", "-lcurand")
    outcome = checked("libraries.cu", options=options)
    assert outcome.code == 0 and "1 clean of 1" in outcome.out, outcome.out
    # Without its stream a product comes before its numbers, or with them; and C ends too early.
    stream = ("OK(cublasSetStream(handle, stream));", "")
    short = ("kRows * kColumns * sizeof(float)", "(kRows - 1) * kColumns * sizeof(float)")
    outcome = checked("libraries.cu", stream, short, options=options)
    assert outcome.code == 3 and "cublasSdot(handle" in outcome.err, outcome.err
    wanted = r"race\]: curandGenerateUniform on stream 1 .* that cublasGemmEx on the default stream"
    assert re.search(wanted, outcome.out), outcome.out
    # What the library here has not is named before anything runs.
    outcome = checked("libraries.cu", ("cublasSscal", "cublasStrsm"), options=options)
    assert outcome.code == 2 and '"cublasStrsm" is undefined' in outcome.err, outcome.err


def test_a_product_with_what_follows_it(checked: Callable[..., Outcome]) -> None:
    outcome = checked("lt.cu", options=("-lcublasLt",))
    assert outcome.code == 0, outcome.out + outcome.err
    other = ("CUBLASLT_EPILOGUE_GELU_BIAS", "CUBLASLT_EPILOGUE_BGRADB")
    outcome = checked("lt.cu", other, options=("-lcublasLt",))
    assert outcome.code == 2 and "cuBLASLt: epilogue 512" in outcome.err, outcome.err


@pytest.mark.long
def test_a_launch_that_is_slow_is_no_hang(checked: Callable[..., Outcome]) -> None:
    slow = (
        "if (i < count) c[i] = a[i] + b[i];",
        "for (long left = 1l << 40; i < count; --left) atomicAdd((int*)c + i, 1);",
    )
    outcome = checked("sums.cu", slow, schedules=9, options=("--timeout", 3))
    assert outcome.code == 3 and "error[timeout]" in outcome.out, outcome.out
    assert re.search(r"timeout +1 ", outcome.out), "the other schedules would take as long"
    assert "the kernel has not ended after 3 s" in outcome.out and "hang" not in outcome.out


def test_copies_of_two_stages(checked: Callable[..., Outcome]) -> None:
    assert checked("tiles.cu").code == 0
    # The tile is overwritten while others read it.
    outcome = checked("tiles.cu", ("    __syncthreads();\n  }\n", "  }\n"))
    assert outcome.code == 3
    assert "tiles.cu:" in outcome.out


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("gemm_cores.cu", "", ""),
        ("gemm_mma.cu", "", ""),
        ("gemm_mma.cu", "wait_group 1", "wait_group 2"),
    ],
)
def test_products_of_tiles_run_in_two_schedules(
    checked: Callable[..., Outcome], name: str, old: str, new: str
) -> None:
    outcome = checked(name, (old, new), schedules=20, arch=80, options=("-D", "ROWS=128"))
    assert re.search(rf" product +{'finding' if old else 'clean'} +2 ", outcome.out), outcome.out
    assert ("error[early-read]" in outcome.out) == bool(old), outcome.out


@pytest.mark.long
def test_a_race_is_found_with_its_line(checked: Callable[..., Outcome]) -> None:
    outcome = checked("sums.cu", ("    __syncthreads();\n", ""))
    assert outcome.code == 3
    assert "race" in outcome.out and "sums.cu:" in outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("if (i < count) c[i] = a[i] + b[i];", "if (i < count) c[i] = a[i];", 3, "main returned 1"),
        ("CHECK(cudaFree(da));", "CHECK(cudaFree(&da));", 3, "main returned 1"),
        (
            "CHECK(cudaFree(da));", "CHECK(cudaDeviceFlushGPUDirectRDMAWrites({}, {}));", 2,
            "calls cudaDeviceFlushGPUDirectRDMAWrites, which the CUDA runtime here does not have",
        ),
        ("int main(", "int nothing(", 2, "has no main"),
    ],
)  # fmt: skip
def test_what_ends_otherwise(
    checked: Callable[..., Outcome], old: str, new: str, code: int, message: str
) -> None:
    outcome = checked("sums.cu", (old, new))
    assert outcome.code == code, outcome.out
    assert message in (outcome.out if code == 3 else outcome.error)


def test_a_product_of_clusters_with_multicast_is_right_and_clean(
    checked: Callable[..., Outcome],
) -> None:
    """TMA, wgmma, roles of warpgroups, blocks that take several tiles."""
    outcome = checked("hopper_gemm.cu", arch=90)
    assert outcome.code == 0, outcome.out
    assert "1 clean of 1" in outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("hopper_gemm.cu", "wait(&s.empty[stage], phase ^ 1);\n          expect", "expect"),
        ("hopper_gemm.cu", 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");', ""),
        ("hopper_gemm.cu", "&s.empty[stage], threadIdx.x % 128)", "&s.empty[stage], rank)"),
        ("norm.cu", "  cluster.sync();", "  __syncthreads();"),
        ("groups.cu", "part = 0;\n  block.sync();", "part = 0;"),
        ("pipeline.cu", "      pipe.producer_acquire();\n      for", "      for"),
    ],
)  # fmt: skip
def test_mistakes_in_programs_of_libraries(
    checked: Callable[..., Outcome], name: str, old: str, new: str
) -> None:
    """Cooperative groups, cuda::pipeline, distributed shared memory, TMA with multicast."""
    outcome = checked(name, arch=90, schedules=4)
    assert outcome.code == 0, outcome.out
    outcome = checked(name, (old, new), arch=90, schedules=20)
    assert outcome.code == 3, outcome.out


@pytest.mark.long
def test_programmatic_launches_that_do_not_wait(checked: Callable[..., Outcome]) -> None:
    outcome = checked("norm.cu", ("  cudaGridDependencySynchronize();\n", ""), arch=90)
    assert outcome.code == 3, outcome.out
    assert "assumed  never-waits" in outcome.out
    assert "ahead of it in the stream, writes, before griddepcontrol.wait" in outcome.out
    assert "assumed" not in checked("norm.cu", arch=90).out
    assert "assumed" not in checked("groups.cu", arch=90).out


UNUSED = r"""
#include <cstdio>
__global__ void adds(int* to) {
  int got = 0;
  asm volatile("multimem.ld_reduce.relaxed.gpu.global.add.s32 %0, [%1];" : "=r"(got) : "l"(to));
  *to = got;
}
__global__ void plain(int* to) { *to += 1; }
int main(int argc, char**) {
  int *device = nullptr, host = 0;
  cudaMalloc(&device, 4);
  cudaMemset(device, 0, 4);
  plain<<<1, 1>>>(device);
  if (argc > 1) adds<<<1, 1>>>(device);
  cudaMemcpy(&host, device, 4, cudaMemcpyDeviceToHost);
  printf("%d\n", host);
  return host != 1;
}
"""


def test_a_kernel_that_is_refused_may_stand_unused(bench: Bench, tmp_path: Path) -> None:
    """Its launch is refused, by the line of the source."""
    (tmp_path / "unused.cu").write_text(UNUSED)
    outcome = bench("check", "unused.cu", "--schedules", "2", cwd=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    outcome = bench("check", "unused.cu", "--schedules", "2", "--", "all", cwd=tmp_path)
    assert outcome.code == 2
    assert re.search(
        r"adds: unsupported PTX: multimem\.\S+ at unused\.cu:5, unused\.ptx:\d+ \(no translation\)",
        outcome.error,
    ), outcome.error


@pytest.mark.parametrize("waits", [False, True])
def test_another_cta_has_to_have_started(checked: Callable[..., Outcome], waits: bool) -> None:
    """CUDA programming guide, "Distributed Shared Memory"."""
    to_another = "*cluster.map_shared_rank(&told, 3 - cluster.block_rank()) = 1;"
    outcome = checked(
        "cluster.cu",
        ("__shared__ float part;", "__shared__ float part, told;"),
        ("part = 0;\n", f"part = 0;\n  {'cluster.sync();' * waits}\n  {to_another}\n"),
    )
    said = "error[race]: a store writes shared memory of a CTA that may not have started"
    assert (said in outcome.out) != waits, outcome.out
    assert outcome.code == (0 if waits else 3), outcome.out


@pytest.mark.parametrize(
    "name",
    ["cluster_reductions.cu", "im2col.cu", pytest.param("sparse.cu", marks=pytest.mark.long)],
)
def test_programs_that_an_h200_finds_right(checked: Callable[..., Outcome], name: str) -> None:
    """Each compares what it gets with what a host computes; so it was on a GPU."""
    outcome = checked(name, arch=90)
    assert outcome.code == 0, outcome.out + outcome.err


@pytest.mark.long
def test_an_early_read_of_pixels(checked: Callable[..., Outcome]) -> None:
    outcome = checked("im2col.cu", ("while (!done)", "while (false)"), arch=90)
    assert outcome.code == 3 and "error[early-read]" in outcome.out, outcome.out
    assert re.search(r"--> \S*im2col\.cu:\d+", outcome.out), outcome.out
