"""Which finding of a program comes first: the one that names the mistake."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Outcome
from cuda_programs import check_program

from kernelbench.machine import toolchain

pytestmark = [
    pytest.mark.usefixtures("emulator_runtime"),
    pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc"),
]

Checked = Callable[..., Outcome]
_SHORT = (
    "queue not reset", "read before the wait", "half of it copied", "copy not awaited",
    "waits for the flag alone", "half of it, and a blind check", "no sync at the end",
)  # fmt: skip

#: The program, what of it is replaced, and of the first finding: its class, what it says, and the
#: beginning of the line that it names, and of the other one.
CAUSES = {
    "queue not reset": (
        "left_behind.cu", [("CHECK(cudaMemset(next, 0, sizeof(int)));  // queue", "")],
        "not-reset", "the value 28 that an earlier launch has left, for 0 before the first",
        "if (threadIdx.x == 0) item = atomicAdd(next, 1);", "if (threadIdx.x == 0) item",
    ),
    "queue on nothing": (
        "left_behind.cu",
        [("CHECK(cudaMemset(next, 0, sizeof(int)));  // queue", ""),
         ("CHECK(cudaMemset(next, 0, sizeof(int)));", "")],
        "unwritten", "atom reads next (alloc", "if (threadIdx.x == 0) item = atomicAdd(", "",
    ),
    "freed before the launch": (
        "left_behind.cu",
        [("CHECK(cudaMemset(next, 0, sizeof(int)));  // queue",
          "CHECK(cudaMemset(next, 0, sizeof(int)));\n    CHECK(cudaFree(out));")],
        "out-of-bounds", "which the program has freed", "if (threadIdx.x == 0) out[item]", "",
    ),
    "counter does not wrap": (
        "left_behind.cu", [("atomicInc(&arrived, kBlocks - 1)", "atomicAdd(&arrived, 1u)")],
        "not-reset", "finds in arrived the value 4", "if (atomicAdd(&arrived, 1u)", "if (atomicAdd",
    ),
    "one epoch": (
        "left_behind.cu", [("(flags, carried, turn, turn)", "(flags, carried, 1, turn)")],
        "not-reset", "a strong load finds in flags (", 'asm volatile("ld.', "asm volatile(",
    ),
    "no acquire, flags by epochs": (
        "left_behind.cu", [("ld.acquire.gpu", "ld.relaxed.gpu")],
        "race", "no fence follows the atomic", "carry += carried[", "carried[blockIdx.x] =",
    ),
    "no wait": (
        "accumulators.cu", [("wgmma.wait_group.sync.aligned 0;", "// none")],
        "early-read", "before a wgmma.wait_group", "out[threadIdx.x] = d[0]", '"wgmma.mma_async',
    ),
    "a group may be pending": (
        "accumulators.cu", [("wait_group.sync.aligned 0;", "wait_group.sync.aligned 1;")],
        "early-read", "before a wgmma.wait_group", "out[threadIdx.x] = d[0]", '"wgmma.mma_async',
    ),
    "read before the wait": (
        "accumulators.cu",
        [("wgmma.wait_group.sync.aligned 0;", "// later"),
         ("// end", "wgmma.wait_group.sync.aligned 0;")],
        "early-read", "before a wgmma.wait_group", "out[threadIdx.x] = d[0]", '"wgmma.mma_async',
    ),
    "a stage is not waited for": (
        "hopper_gemm.cu", [("wait(&s.empty[stage], phase ^ 1);\n          expect", "expect")],
        "arrival-count", "0 of 1 pending; the thread has arrived in this phase before",
        'asm volatile("mbarrier.arrive.expect_tx', "init(&s.full[i], 1);",
    ),
    "map without swizzle": (
        "hopper_gemm.cu",
        [("kCluster, kK, CU_TENSOR_MAP_SWIZZLE_128B", "kCluster, kK, CU_TENSOR_MAP_SWIZZLE_NONE")],
        "descriptor", "reads a tile with the 128-byte swizzle that TMA has written with no", "", "",
    ),
    "not set": (
        "accumulators.cu", [("float d[4] = {};", "float d[4];")],
        "unwritten", "a sum begins with a register that nothing has written",
        '"wgmma.mma_async', "",
    ),
    "half of it copied": (
        "half_filled.cu", [("kCount * sizeof(int), cudaMemcpyHostToDevice",
                            "kCount * 2, cudaMemcpyHostToDevice")],
        "unwritten", "a load reads in (allocated at", "const int value = in[at] * 2;", "",
    ),
    "half of it computed": (
        "half_filled.cu", [("kPadded / 32, 32", "kCount / 64, 32")],
        "unwritten", "cudaMemcpy on the default stream reads out (allocated at",
        "CHECK(cudaMemcpy(host.data(), out", "",
    ),
    "bins not cleared": (
        "half_filled.cu",
        [("const int value = in[at] * 2;",
          "__shared__ int sum; atomicAdd(&sum, 1); __syncthreads(); const int value = sum;")],
        "unwritten", "an atomic makes something of shared memory", "__shared__ int sum;", "",
    ),
    "copy not awaited": (
        "host_functions.cu", [("CHECK(cudaStreamWaitEvent(second, done, 0));  // added", "")],
        "race", "that cudaStreamAddCallback on stream 2 reads: nothing orders the two",
        "CHECK(cudaMemcpyAsync(out, device", "for (int at = 0; at < kCount; ++at) job.sum",
    ),
    "filled on another stream": (
        "host_functions.cu", [("HostFunc(first, fill", "HostFunc(second, fill")],
        "race", "that cudaLaunchHostFunc on stream 2 writes: nothing orders the two",
        "CHECK(cudaMemcpyAsync(device, in", "for (int at = 0; at < kCount; ++at) job.data",
    ),
    "no sync at the end": (
        "endings.cu", [("  cluster.sync();  // at the end\n", "")],
        "exit", "a load reads shared memory of a CTA that may have exited",
        "cluster.map_shared_rank(mine", "",
    ),
    "sums not cleared": (
        "endings.cu", [("CHECK(cudaMemset(sums, 0, sizeof added));", "")],
        "unwritten", "bulk reduction adds to sums (allocated at", '"cp.async.bulk.commit', "",
    ),
    "argument used again": (
        "host_functions.cu",
        [("CHECK(cudaLaunchHostFunc(first, fill, &made));",
          "CHECK(cudaLaunchHostFunc(first, fill, &made));\n  made.data = out;")],
        "race", "what cudaLaunchHostFunc gives its function was changed before the call",
        "CHECK(cudaLaunchHostFunc(first, fill", "",
    ),
    "one argument for all": (
        "host_functions.cu",
        [("CHECK(cudaLaunchHostFunc(first, fill, &made));",
          ("static struct { void* at[2]; long turn; } all; all.turn = 1;\n"
          "  CHECK(cudaLaunchHostFunc(first, [](void*) {}, &all)); all.turn = 2;\n"
          "  CHECK(cudaLaunchHostFunc(first, fill, &made)); made.start = 1;\n"
          "  CHECK(cudaLaunchHostFunc(first, [](void*) {}, &all));"))],
        "race", "what cudaLaunchHostFunc gives its function was changed before the call",
        "CHECK(cudaLaunchHostFunc(first, ", "",
    ),
    "waits for the flag alone": (
        "two_hosts.cu", [("CHECK(cudaStreamWaitEvent(stream, made, 0));", "")],
        "race", "nothing orders the two", "to[threadIdx.x] = ", "to[threadIdx.x] = ",
    ),
    "flag before the record": (
        "two_hosts.cu",
        [("  recorded = true;\n", ""),
         ("  while (!launched) std::this_thread::yield();\n", ""),
         ("  CHECK(cudaEventRecord", ("  recorded = true;\n  while (!launched) "
                                     "std::this_thread::yield();\n  CHECK(cudaEventRecord"))],
        "race", "nothing orders the two", "to[threadIdx.x] = ", "to[threadIdx.x] = ",
    ),
    "constants changed": (
        "two_hosts.cu", [("CHECK(cudaStreamSynchronize(stream));  // scaled", "")],
        "race", "cudaMemcpyToSymbolAsync on the default stream writes", "", "",
    ),
    "half of it, and a blind check": (
        "two_hosts.cu", [("(a, host, kCount * sizeof(float), cud", "(a, host, kCount, cud")],
        "unwritten", "a load reads a (allocated at", "to[threadIdx.x] = a[threadIdx.x]", "",
    ),
    "source changed": (
        "host_functions.cu", [("CHECK(cudaStreamSynchronize(first));  // mine", "")],
        "race", "what cudaMemcpyAsync reads was changed before it was read",
        "CHECK(cudaMemcpyAsync(device, mine.data()", "",
    ),
    "flag without a fence": (
        "mapped_flags.cu", [("__threadfence_system();", "")],
        "race", "the host reads mapped (", "wrong += mapped[block]", "results[blockIdx.x] =",
    ),
    "flag at the GPU's scope": (
        "mapped_flags.cu", [("__threadfence_system();", "__threadfence();")],
        "race", "makes known at the scope of the GPU, which does not reach the host",
        "wrong += mapped[block]", "results[blockIdx.x] =",
    ),
    "flag first": (
        "mapped.cu",
        [("data[0] = 42;", ""), (': "memory");', ': "memory");\n  data[0] = 42;')],
        "race", "the host reads shared (", "const int got = shared[0];", "data[0] = 42;",
    ),
    "map in local memory": (
        "map_types.cu", [("const __grid_constant__ CUtensorMap in", "const CUtensorMap in")],
        "descriptor", "not from local memory: a parameter whose address is taken has to be", "", "",
    ),
    "lock kept": (
        "lock.cu", [("  atomicExch(lock, 0);", "  if (blockIdx.x != 2) atomicExch(lock, 0);")],
        "hang", "last by CTA 2, thread 0, which has exited", "while (atomicCAS(", "",
    ),
    "lock taken at first": (
        "lock.cu", [("cudaMemset(memory, 0, sizeof host)", "cudaMemset(memory, 1, sizeof host)")],
        "hang", "nothing in this launch has changed it", "while (atomicCAS(", "",
    ),
}  # fmt: skip


@pytest.fixture
def checked(bench: Checked, tmp_path: Path) -> Checked:
    """Checks a program with some of its text replaced."""
    return functools.partial(check_program, bench, tmp_path, arch=90)


@pytest.mark.parametrize(
    "name",
    [
        "left_behind",
        "accumulators",
        "half_filled",
        "host_functions",
        "mapped_flags",
        "lock",
        "two_hosts",
        "told_the_host",
        "endings",
    ],
)
def test_right_programs_are_clean(checked: Checked, name: str) -> None:
    outcome = checked(f"{name}.cu", schedules=4)
    assert outcome.code == 0, outcome.out
    assert "allowed[unwritten]" not in outcome.out


@pytest.mark.parametrize(
    ("name", "arch", "schedules"), [("pair_alloc", 100, 40), ("group_afar", 90, 4)]
)
def test_pairs_and_warpgroups_of_other_ctas_are_clean(
    checked: Checked, name: str, arch: int, schedules: int
) -> None:
    """False errors of published kernels: columns of the other CTA, reads of the other warps."""
    outcome = checked(f"{name}.cu", arch=arch, schedules=schedules)
    assert outcome.code == 0, outcome.out


def test_reads_of_nothing_are_said_of_a_program_that_ends_well(checked: Checked) -> None:
    half = ("kCount * sizeof(int), cudaMemcpyHostToDevice", "kCount * 2, cudaMemcpyHostToDevice")
    outcome = checked("half_filled.cu", half, ("return 1;", "continue;"), schedules=1)
    assert outcome.code == 0 and "main fails" not in outcome.out
    assert "allowed[unwritten]: a load reads in (allocated at half_filled.cu:25)" in outcome.out


@pytest.mark.parametrize(
    "mistake",
    [each if each in _SHORT else pytest.param(each, marks=pytest.mark.long) for each in CAUSES],
)
def test_the_mistake_comes_first(checked: Checked, mistake: str) -> None:
    program, replaced, kind, said, here, there = CAUSES[mistake]
    outcome = checked(program, *replaced, schedules=4)
    assert "--schedules 0" not in outcome.out
    assert outcome.code == 3, outcome.out
    first = outcome.out.partition("\nerror[")[2].partition("= identity")[0]
    assert first.startswith(f"{kind}]"), outcome.out
    assert said in re.sub(r"\s+", " ", first), outcome.out
    for arrow, line in (("-->", here), (":::", there)):
        shown = re.search(rf"{arrow} \S*{program}:\d+.*\n \d+ \| +(.*)", first)
        assert (shown[1] if shown and line else "").startswith(line), outcome.out


_SUMS = """
__global__ void add(float* sum) { atomicAdd(sum, 1000.0f); }
int main() {
  float *sum, host;
  cudaMalloc(&sum, 4);
  cudaMemset(sum, 0, 4);
  for (int round = 0; round < 2; ++round) add<<<1, 2>>>(sum);
  cudaMemcpy(&host, sum, 4, cudaMemcpyDeviceToHost);
  return host != 2000;
}
"""


def test_what_is_left_of_floats_is_told_as_one(
    bench: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "sums.cu").write_text(_SUMS)
    outcome = bench("check", "sums.cu", "--schedules", 2, cwd=tmp_path)
    assert "the value 1157234688 (2000 as a float) that an earlier launch has left, for 0" in (
        re.sub(r"\s+", " ", outcome.out)
    ), outcome.out


@pytest.mark.long
def test_ctas_that_wait_alike_are_shown_once(checked: Checked) -> None:
    locked = ("cudaMemset(memory, 0, sizeof host)", "cudaMemset(memory, 1, sizeof host)")
    outcome = checked("lock.cu", locked, schedules=1)
    assert "… and 4 more CTAs that wait likewise" in outcome.out
    assert len(outcome.out.splitlines()) < 40, outcome.out


def test_an_arrival_without_memory_order_ends_accesses(checked: Checked) -> None:
    relaxed = 'asm volatile("barrier.cluster.arrive.relaxed;barrier.cluster.wait;");'
    outcome = checked("endings.cu", ("cluster.sync();  // at the end", relaxed), schedules=4)
    assert outcome.code == 0, outcome.out


def test_a_main_that_crashes_keeps_what_was_found(checked: Checked) -> None:
    outcome = checked(
        "endings.cu", ("ld.acquire.gpu.u32", "ld.relaxed.gpu.u32"),
        ("return last == 5 ? 0 : 3;", "return *reinterpret_cast<volatile int*>(last);"),
        schedules=1,
    )  # fmt: skip
    assert outcome.code == 3 and "error[race]" in outcome.out, outcome.out
    assert "wrong: SIGSEGV ended main" in outcome.out, outcome.out


def test_a_late_store_is_told_only_where_it_is_the_cause(checked: Checked) -> None:
    """Both values of the flag are right: what fails is main."""
    outcome = checked("endings.cu", ("return last == 5 ?", "return last == 6 ?"), schedules=20)
    assert outcome.code == 3 and "main returned 3" in outcome.out, outcome.out
    assert "error[" not in outcome.out, outcome.out


def test_main_is_told_what_it_does_not_wait_for(checked: Checked) -> None:
    """Of a function of the host, and memory of the host's that traps nothing."""
    waits = "  CHECK(cudaStreamSynchronize(second));\n"
    early = (waits, f"  wrong += added.sum == 0;\n{waits}")
    outcome = checked("host_functions.cu", early, schedules=1)
    assert outcome.code == 3, outcome.out
    said = r"it goes on before cudaStreamAddCallback at host_functions\.cu:\d+ is done"
    assert re.search(said, " ".join(outcome.out.split())), outcome.out


def test_what_calls_may_not_do_is_refused(checked: Checked) -> None:
    """Directions of copies, and captures that depend on what is outside of them."""
    right = "scaled, kCount * sizeof(float), cudaMemcpyDeviceToHost"
    other_way = (right, right.replace("DeviceToHost", "HostToDevice"))
    outcome = checked("two_hosts.cu", other_way)
    assert outcome.code == 3, outcome.out
    assert "cudaMemcpy returned cudaErrorInvalidValue: memory of the other side" in outcome.out
    begins = "CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));\n"
    waits = "CHECK(cudaStreamWaitEvent(stream, made, 0));"
    for text, status in (
        (begins + waits, "cudaStreamWaitEvent returned cudaErrorStreamCaptureIsolation"),
        (waits + begins, "cudaStreamSynchronize returned cudaErrorStreamCaptureUnsupported"),
    ):
        outcome = checked("two_hosts.cu", (waits, text))
        assert outcome.code == 3 and status in outcome.out, outcome.out


def test_a_copy_of_one_row_too_many_is_refused(checked: Checked) -> None:
    """A row behind the last one begins in no allocation, as memory of the host does."""
    assert checked("rows.cu", schedules=1).code == 0
    one_more = ("row, height, cudaMemcpyHostToDevice", "row, height + 1, cudaMemcpyHostToDevice")
    outcome = checked("rows.cu", one_more, schedules=1)
    assert outcome.code == 3
    assert "cudaMemcpy2DAsync returned cudaErrorInvalidValue at rows.cu:14" in outcome.out


def test_races_of_threads_and_of_ctas_at_the_same_lines_are_two(checked: Checked) -> None:
    """Which is allowed as formal, or mended by a barrier, says nothing of the other."""
    outcome = checked("histogram.cu", schedules=2)
    assert outcome.code == 3
    identities = {
        line for line in outcome.out.splitlines() if line.startswith("  = identity: race-")
    }
    for who in ("thread of the CTA", "CTA"):
        assert f"a load reads counts (allocated at histogram.cu:13) that another {who}" in (
            outcome.out
        )
    assert len(identities) == 4  # of loads and of stores
