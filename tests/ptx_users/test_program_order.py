"""What orders launches, copies and the host in programs: each removed once."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import Outcome
from cuda_programs import check_program
from real_bugs import EARLY, REAL_BUGS

from kernelbench.machine import toolchain

pytestmark = [
    pytest.mark.usefixtures("emulator_runtime"),
    pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc"),
]

Checked = Callable[..., Outcome]


@pytest.fixture
def checked(bench: Checked, tmp_path: Path) -> Checked:
    """Checks a program with some of its text replaced."""
    return functools.partial(check_program, bench, tmp_path)


def _without(line: str) -> tuple[str, str]:
    return line, "(void)0;"


def place(mark: str, program: str, out: str) -> bool:
    """Whether a finding has a line of the program behind a mark."""
    return re.search(rf"{mark} \S*{re.escape(program)}:\d+", out) is not None


#: Of order.cu: what is replaced, and what is said of it, its lines among it.
ORDER = {
    "event between kernels": (
        [_without("cudaStreamWaitEvent(s.second, s.done, 0);  // between kernels")],
        "that kernel add on stream 2 reads: nothing orders the two",
    ),
    "readers": (
        [_without("cudaStreamWaitEvent(s.second, s.done, 0);  // two readers")],
        "that kernel fill on stream 6 writes: nothing orders the two",
    ),
    "pinned result": (
        [_without("cudaEventSynchronize(s.done);  // pinned result")],
        "that the host reads: nothing has made the host wait",
    ),
    "pinned staging": (
        [_without("cudaEventSynchronize(s.done);  // pinned staging")],
        "that the host writes: nothing has made the host wait",
    ),
    "device staging": (
        [("if (turn > 0) cudaStreamWaitEvent(s.first, s.used, 0);", "")],
        "cudaMemcpyAsync on stream",
    ),
    "free": (
        [_without("cudaStreamWaitEvent(s.first, s.used, 0);  // freed")],
        "that cudaFreeAsync on stream",
    ),
    "free of a pool's memory": (
        [_without("cudaStreamSynchronize(s.first);  // pooled")],
        "that cudaFree on the host frees: nothing orders the two",
    ),
    "allocation": (
        [("cudaStreamWaitEvent(s.second, s.done, 0);  // allocated", "")],
        "kernel fill on stream",
    ),
    "memset": (
        [_without("cudaStreamSynchronize(s.first);  // memset")],
        "cudaMemsetAsync on stream",
    ),
    "blocking streams": (
        [("Streams s(cudaStreamDefault);", "Streams s;")],
        "kernel scale on the default stream",
    ),
    "managed": (
        [_without("cudaDeviceSynchronize();  // managed")],
        "that the host reads: nothing has made the host wait",
    ),
    "copy within the device": (
        [_without("cudaDeviceSynchronize();  // within the device")],
        "cudaMemcpy on the default stream writes",
    ),
    "graph": (
        [("  cudaStreamWaitEvent(s.first, s.used, 0);  // branches meet", ""),
         ("// add ends", "cudaStreamWaitEvent(s.first, s.used, 0);")],
        "kernel fill of a graph",
    ),
}  # fmt: skip

#: Of pdl.cu.
PDL = {
    "no wait": ([_without("cudaGridDependencySynchronize();  // consume")], EARLY),
    "overwritten": ([_without("cudaGridDependencySynchronize();  // reuse")], EARLY),
    "one thread, no wait": (
        [("if (threadIdx.x == 0) cudaGridDependencySynchronize();  // gather", "")], EARLY,
    ),
    "one thread, no barrier": ([("// gather\n  __syncthreads();", "// gather\n")], EARLY),
    "not transitive": (
        [_without("cudaGridDependencySynchronize();  // pass by")],
        ", a launch between them, never executed griddepcontrol.wait",
    ),
    "read before the wait": (
        [("const float weight = weights[here()]", "const float weight = weights[here()] + in[0]")],
        EARLY,
    ),
    "never waits": ([("early(stream, independent, more)", "early(stream, independent, a)")], EARLY),
    "behind an event": (
        [("early(stream, reuse, a, 8.f)", "early(stream, without_trigger, a, 8.f)")], EARLY,
    ),
    "in a graph": (
        [("if (threadIdx.x == 0) cudaGridDependencySynchronize();  // gather",
          "out[here()] = in[here()]; cudaGridDependencySynchronize();")],
        EARLY,
    ),
}  # fmt: skip


#: Right versions of REAL_BUGS, and how they are checked.
RIGHT = {each.program: each.options for each in REAL_BUGS.values()}
del RIGHT["published.cu"]  # not long


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mapped.cu", ()), ("order.cu", ()), ("pdl.cu", ()), ("published.cu", ()),
        *(pytest.param(*each, marks=pytest.mark.long) for each in RIGHT.items()),
    ],
)  # fmt: skip
def test_what_is_in_order_is_clean(
    checked: Checked, name: str, options: tuple[object, ...]
) -> None:
    arch = None if "--arch" in options else 90
    outcome = checked(name, arch=arch, options=options)
    assert outcome.code == 0, outcome.out
    believed = re.findall(r"^assumed +([\w-]+)", outcome.out, re.MULTILINE)
    assert set(believed) <= {"never-waits", "reads-before-async", "streams-together"}


@pytest.mark.parametrize("lacks", [*(pytest.param(each, marks=pytest.mark.long) for each in ORDER)])
def test_what_streams_and_the_host_lack(checked: Checked, lacks: str) -> None:
    replaced, found = ORDER[lacks]
    outcome = checked("order.cu", *replaced, schedules=1, arch=90)
    assert outcome.code == 3 and found in outcome.out, outcome.out
    assert "race" in outcome.out and place("-->", "order.cu", outcome.out)
    assert place(":::", "order.cu", outcome.out), outcome.out


def test_the_race_of_neighbours_comes_first(checked: Checked) -> None:
    """The host fills too early, too, since the kernel that it waits for did not wait."""
    outcome = checked(
        "order.cu", _without("cudaStreamWaitEvent(s.second, s.done, 0);  // ring"),
        schedules=1, arch=90,
    )  # fmt: skip
    first, *others = re.findall(r"^error\[race\].*", outcome.out, re.MULTILINE)
    assert "kernel scale on stream" in first and "the host" not in first, outcome.out
    assert any("that the host writes" in each for each in others), outcome.out


@pytest.mark.parametrize("lacks", [*(pytest.param(each, marks=pytest.mark.long) for each in PDL)])
def test_what_dependent_launches_lack(checked: Checked, lacks: str) -> None:
    replaced, found = PDL[lacks]
    outcome = checked("pdl.cu", *replaced, schedules=1, arch=90)
    assert outcome.code == 3 and found in outcome.out, outcome.out
    assert place("-->", "pdl.cu", outcome.out) and place(":::", "pdl.cu", outcome.out), outcome.out


#: Of beside.cu: what is replaced, and what is said of it.
BESIDE = {
    "no fence before the flag": (
        [_without("__threadfence();  // produce")],
        "race that kernel produce on stream 1 writes: nothing orders the two",
    ),
    "no fence behind the flag": (
        [_without("__threadfence();  // wait")],
        "race that kernel produce on stream 1 writes: nothing orders the two; no fence follows",
    ),
    "written behind the flag": (
        [("atomicAdd(flag, 1u);", "atomicAdd(flag, 1u);\n  data[at] = value + at;")],
        "race that kernel produce on stream 1 writes: nothing orders the two",
    ),
    "nobody waits": (
        [("  wait(flag, count);\n  const", "  const")],
        "race a store writes data (allocated at",
    ),
    "the flag holds nothing": (
        [_without("CHECK(cudaMemset(flag, 0, sizeof *flag));")],
        "unwritten a strong load reads flag (allocated at",
    ),
    "in one stream": (
        [("if (turn == 1) produce<<<kBlocks, kThreads, 0, streams[0]",
          "if (turn == 1) produce<<<kBlocks, kThreads, 0, streams[1]")],
        "hang waits for a value in global memory (the last came from",
    ),
}  # fmt: skip


def test_threads_of_the_host_take_turns(checked: Checked) -> None:
    outcome = checked("host_threads.cu", arch=90)
    assert outcome.code == 0 and "1 clean of 1" in outcome.out, outcome.out


def test_kernels_on_two_streams_hand_data_over(checked: Checked) -> None:
    outcome = checked("beside.cu", arch=90)
    assert outcome.code == 0, outcome.out
    assert set(re.findall(r"^assumed +([\w-]+)", outcome.out, re.MULTILINE)) == {"streams-together"}


@pytest.mark.long
@pytest.mark.parametrize("lacks", BESIDE)
def test_what_a_hand_over_lacks(checked: Checked, lacks: str) -> None:
    replaced, said = BESIDE[lacks]
    kind, found = said.split(maxsplit=1)
    outcome = checked("beside.cu", *replaced, schedules=2, arch=90)
    assert outcome.code == 3 and f"error[{kind}]" in outcome.out, outcome.out
    assert found in outcome.out, outcome.out
    assert place("-->", "beside.cu", outcome.out), outcome.out


def test_a_consumer_that_fills_the_gpu(checked: Checked) -> None:
    """It has as many CTAs as reside: the producer behind it in time can never begin."""
    outcome = checked("beside.cu", arch=90, schedules=1, options=("--sms", 4))
    assert outcome.code == 3, outcome.out
    assert "its CTAs fill the GPU, so that work on other streams cannot begin" in outcome.out


_POLLS = """
__global__ void produce(unsigned* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory");
}
__global__ void consume(const unsigned* flag) {
  unsigned there = 0;
  while (threadIdx.x == 0 && there == 0) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
  }
}
int main() {
  unsigned* flag;
  cudaMalloc(&flag, 4);
  cudaMemset(flag, 0, 4);
  cudaDeviceSynchronize();
  cudaStream_t first, second;
  cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
  consume<<<600, 32, 0, second>>>(flag);
  produce<<<1, 1, 0, first>>>(flag);
  return cudaStreamSynchronize(second) || cudaDeviceSynchronize();
}
"""


_NEVER_WAITS = """
__global__ void step(int* left) {
  if (*left > 0) --*left;
}
int main() {
  int *left, *seen;
  cudaMalloc(&left, 4);
  cudaMallocHost(&seen, 4);
  *seen = 3;
  cudaMemcpy(left, seen, 4, cudaMemcpyHostToDevice);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  while (*seen > 0) {
    step<<<(*seen + 1) / 4, 1, 0, stream>>>(left);
    cudaMemcpyAsync(seen, left, 4, cudaMemcpyDeviceToHost, stream);
  }
  return cudaDeviceSynchronize();
}
"""


def test_a_host_that_never_waits_finds_the_gpu_at_work(
    bench: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Else what it asks for goes on until memory is full."""
    (tmp_path / "levels.cu").write_text(_NEVER_WAITS)
    outcome = bench("check", "levels.cu", cwd=tmp_path)
    first = next(line for line in outcome.out.splitlines() if line.startswith("error"))
    assert outcome.code == 3 and "the host reads" in first, outcome.out


_COPIES_MORE = """
#include <vector>
int main() {
  int *from, *seen;
  cudaMalloc(&from, 20);
  cudaMallocHost(&seen, 20);
  cudaMemset(from, 0, 20);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  for (int i = 0; i < 5; ++i) {
    cudaDeviceSynchronize();
    cudaMemcpyAsync(&seen[i], &from[i], 4, cudaMemcpyDeviceToHost, stream);
  }
  const std::vector<int> all(seen, seen + 5);  // the last is pending
  return cudaStreamSynchronize(stream) || all[0];
}
"""


def test_a_copy_by_the_host_is_of_all_its_bytes(
    bench: Callable[..., Outcome], tmp_path: Path
) -> None:
    """What it does by vectors traps once for several words."""
    (tmp_path / "copies.cu").write_text(_COPIES_MORE)
    outcome = bench("check", "copies.cu", cwd=tmp_path)
    assert outcome.code == 3 and "seen (allocated at copies.cu:6) + 16" in outcome.out, outcome.out


@pytest.mark.parametrize(("sms", "fills"), [(18, True), (20, False)])  # 32 CTAs on each
def test_more_ctas_poll_than_a_hang_lists(
    bench: Callable[..., Outcome], tmp_path: Path, sms: int, fills: bool
) -> None:
    (tmp_path / "polls.cu").write_text(_POLLS)
    outcome = bench("check", "polls.cu", "--schedules", 1, "--sms", sms, cwd=tmp_path)
    assert outcome.code == (3 if fills else 0), outcome.out
    assert fills == ("its CTAs fill the GPU" in outcome.out), outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    "room", [("kMany = 160", "kMany = 131"), ("kNarrow = 64", "kNarrow = 16"), ("", "")]
)
def test_a_dependent_that_fills_the_gpu(checked: Checked, room: tuple[str, str]) -> None:
    """It holds its SMs until the launch ahead ends, which waits for a third one."""
    early = REAL_BUGS["sglang#34789"].replaced
    outcome = checked("resident_dependents.cu", *early, room, schedules=4, arch=90)
    assert outcome.code == (0 if any(room) else 3), outcome.out
    assert ("gather cannot begin" in outcome.out) == (not any(room)), outcome.out


@pytest.mark.parametrize("stale", [False, True], ids=["right", "stale"])
def test_a_kernel_of_another_gpu_may_come_first(checked: Checked, stale: bool) -> None:
    edit = [("(inbox, flag, out, round)", "(inbox, flag, out, 1)")] if stale else []
    outcome = checked("peer_flags.cu", *edit, options=("--gpus", 2))
    if not stale:
        assert outcome.code == 0, outcome.out
        return
    assert "main fails in other schedules: --seed 1 --schedules 1" in outcome.out
    assert "reads: nothing orders the two" in outcome.out and outcome.code == 3
    again = r"rerun: kernelbench check \S*peer_flags\.cu --gpus 2 --seed 1 --schedules 1\n"
    assert re.search(again, outcome.out)


#: Edits of the two kernels, what is said of the flag then, and what to do.
FLAGS = {
    "scope": (("__threadfence_system()", "__threadfence()"), "which does not reach another GPU",
              "help: release at the scope of the system"),
    "raised early": (("__syncthreads();\n  if", "if"), "the flag's release does not cover it",
                     "help: raise the flag behind every access"),
    "not acquired": (("ld.acquire.sys", "ld.relaxed.sys"), "no fence follows the flag",
                     "help: put a fence behind the poll"),
}  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS)
def test_why_a_flag_of_another_gpu_orders_nothing(checked: Checked, flag: str) -> None:
    """PTX ISA, 8.6 and 8.9: scopes, and what a release covers."""
    edit, said, to_do = FLAGS[flag]
    twice = [edit] * (1 + (flag == "scope"))  # each has the first place only
    outcome = checked("peer_flags.cu", *twice, options=("--gpus", 2, "--schedules", 2))
    assert outcome.code == 3, outcome.out
    assert f"{said}\n" in outcome.out and to_do in outcome.out, outcome.out


@pytest.mark.long
@pytest.mark.parametrize("bug", REAL_BUGS)
def test_what_published_kernels_got_wrong(checked: Checked, bug: str) -> None:
    of = REAL_BUGS[bug]
    options = (*of.options, *of.only)
    arch = None if "--arch" in options else 90
    outcome = checked(of.program, *of.replaced, schedules=4, arch=arch, options=options)
    assert outcome.code == (0 if of.formal else 3), outcome.out
    first = re.search(r"^(?:error|allowed)\[([a-z-]+)\]", outcome.out, re.MULTILINE)
    assert first is not None and first[1] == of.kind, outcome.out
    assert of.found in outcome.out, outcome.out


def test_ctas_that_meet_have_to_reside(checked: Checked) -> None:
    """On a whole GPU they do; on four SMs, one of them an SM, they do not."""
    outcome = checked("resident.cu", arch=90)
    assert outcome.code == 0 and "assumed" not in outcome.out, outcome.out
    outcome = checked("resident.cu", arch=90, options=("--sms", 4))
    assert outcome.code == 3, outcome.out
    assert (
        "of 8 CTAs that may wait for each other 4 can reside on 4 SMs (H200), 1 on each by shared "
        "memory" in outcome.out
    )
    assert "resident.cu:" in outcome.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("kMany = 16", "kMany = 6000", "was not launched (cudaErrorCooperativeLaunchTooLarge)"),
        ("cudaLaunchCooperativeKernel(", "cudaLaunchKernel(",
         "trap: grid.sync() in a launch that is not cooperative"),
        ("constexpr int kGets = 208;", "constexpr int kGets = 240;",
         "waits for registers of its CTA: 240 for each thread"),
    ],
)  # fmt: skip
def test_what_cannot_reside(checked: Checked, old: str, new: str, found: str) -> None:
    outcome = checked("resident.cu", (old, new), arch=90)
    assert outcome.code == 3 and found in outcome.out, outcome.out


@pytest.mark.long
def test_flags_that_a_launch_leaves_behind(checked: Checked) -> None:
    """A second launch of a form finds the counter as the first one has left it."""
    twice = "  meet<<<kBlocks, kThreads, kShared>>>(arrived, in, out, between);\n"
    reset = "  CHECK(cudaMemset(arrived, 0, sizeof *arrived));\n"
    outcome = checked("resident.cu", (twice, twice + reset + twice), arch=90)
    assert outcome.code == 0, outcome.out
    outcome = checked("resident.cu", (twice, twice + twice), arch=90)
    assert outcome.code == 3 and "race" in outcome.out, outcome.out


@pytest.mark.long
def test_a_host_that_polls_is_not_left_alone(checked: Checked) -> None:
    assert checked("answers.cu").code == 0
    # Nobody sets the word.
    outcome = checked("answers.cu", ("mail[0] = 1;", ""))
    assert outcome.code == 3, outcome.out
    assert "error[hang]: the host polls a word, and nothing is pending" in outcome.out
    assert place("-->", "answers.cu", outcome.out), outcome.out


def test_each_frees_what_its_own_function_has_allocated(checked: Checked) -> None:
    for name, other in (
        ("mapped.cu", ("cudaFreeHost(", "cudaFree(")),
        ("host_threads.cu", ("cudaFree(", "cudaFreeHost(")),
    ):
        outcome = checked(name, other)
        assert outcome.code == 3 and "returned cudaErrorInvalidValue" in outcome.out, outcome.out


def test_nodes_of_a_graph_wait_for_events_and_record_them(checked: Checked) -> None:
    assert checked("event_nodes.cu").code == 0
    for replaced in (
        ("&kernel, graph, &wait, 1, &node));  // waits", "&kernel, graph, nullptr, 0, &node));"),
        _without("CHECK(cudaStreamWaitEvent(other, done, 0));  // the graph's"),
    ):
        outcome = checked("event_nodes.cu", replaced)
        assert outcome.code == 3 and "error[race]" in outcome.out, outcome.out


#: Of conversation.cu: what is replaced, and what is said of it.
TURNS = {
    "the kernel does not wait": (
        _without("if (threadIdx.x == 0) await(&mail->asked, turn);"),
        "race",
    ),
    "no fence before the answer": (
        ("__threadfence_system();  // the answer", ""),
        "error[race]: the host reads mail (allocated at",
    ),
    "the host does not wait": (_without("await(&mail->answered, turn);  // the host"), "race"),
    "the host never asks the last": (
        ("ask(mail, turn);", "if (turn < kTurns) ask(mail, turn);"),
        "hang",
    ),
    "a call waits for the kernel": (
        ("ask(mail, turn);", "if (turn == 2) cudaDeviceSynchronize();\n    ask(mail, turn);"),
        "error[hang]: deadlock",
    ),
    "a call waits and is asked how it went": (
        (
            "ask(mail, turn);",
            "if (turn == 2) CHECK(cudaDeviceSynchronize());\n    ask(mail, turn);",
        ),
        "1 hang, 1 wrong of 2",
    ),
}


def test_a_kernel_and_the_host_take_turns(checked: Checked) -> None:
    outcome = checked("conversation.cu")
    assert outcome.code == 0 and "host-in-turn" in outcome.out, outcome.out


@pytest.mark.parametrize("case", TURNS)
def test_a_kernel_and_the_host_answer_each_other(checked: Checked, case: str) -> None:
    edit, found = TURNS[case]
    outcome = checked("conversation.cu", edit)
    assert outcome.code == 3 and found in outcome.out, outcome.out


#: Of two_rings.cu.
RINGS = {
    "the answer comes behind its flag": (
        "__syncwarp();\n    if (threadIdx.x == 0) {\n      Count(in",
        "if (threadIdx.x == 0) {\n      Count(in",
        "error[race]: the host reads out (allocated at",
    ),
    "no room is waited for": (
        "if (at >= kSlots) wait_on_host(in->emptied, at + 1 - kSlots);  // room", "",
        "wrong: main returned 1",
    ),
}  # fmt: skip


@pytest.mark.long
def test_threads_of_the_host_poll_side_by_side(checked: Checked) -> None:
    outcome = checked("two_rings.cu", arch=90)
    assert outcome.code == 0 and "host-in-turn" in outcome.out, outcome.out


@pytest.mark.parametrize("case", [*(pytest.param(each, marks=pytest.mark.long) for each in RINGS)])
def test_mistakes_of_two_rings(checked: Checked, case: str) -> None:
    old, new, found = RINGS[case]
    outcome = checked("two_rings.cu", (old, new), arch=90)
    assert outcome.code == 3 and found in outcome.out, outcome.out


@pytest.mark.parametrize(
    "waits",
    [
        "while (!called.load()) {}",
        pytest.param("call_made.get_future().wait();", marks=pytest.mark.long),
    ],
)
def test_a_host_waits_for_a_function_of_its_own(checked: Checked, waits: str) -> None:
    assert checked("waits_for_function.cu", ("call_made.get_future().wait();", waits)).code == 0


def _mostly_long(cases: Iterable[str], every_time: int) -> list[Any]:
    """The first so many in each run of the tests, the others among the long ones."""
    long = pytest.mark.long
    return [
        pytest.param(each, marks=() if at < every_time else long) for at, each in enumerate(cases)
    ]


#: Edits of a program of two kernels that poll for each other, and what is found then.
ANSWERS = {
    "the credit comes before all have read": ("    __syncthreads();  // all have read\n", ""),
    "the ring has a slot less than credits": ("+ kSlots <= item", "+ kSlots < item"),
    "no fence before the item is made known": ("      __threadfence();  // before the item\n", ""),
}


def test_kernels_that_answer_each_other_are_right(checked: Checked) -> None:
    outcome = checked("answering.cu")
    assert outcome.code == 0 and "assumed  kernels-together" in outcome.out, outcome.out


@pytest.mark.parametrize("case", _mostly_long(ANSWERS, 1))
def test_kernels_answer_each_other(checked: Checked, case: str) -> None:
    outcome = checked("answering.cu", ANSWERS[case])
    assert outcome.code == 3 and "error[race]" in outcome.out, outcome.out


@pytest.mark.long
def test_kernels_on_one_stream_do_not_answer(checked: Checked) -> None:
    outcome = checked("answering.cu", ("0, two>>>", "0, one>>>"))
    assert outcome.code == 3 and "error[hang]" in outcome.out, outcome.out


def test_launches_that_nothing_orders_are_interleaved(checked: Checked) -> None:
    assert checked("tickets.cu").code == 0
    outcome = checked("tickets.cu", ("own = at;", "own = 0;"))
    assert outcome.code == 3, outcome.out
    assert "main fails where total runs beside work that nothing orders with it" in outcome.out


#: Edits of a program that copies aside, and what is said of it then.
ASIDE = {
    "nobody waits for the copy": (
        "  CHECK(cudaStreamWaitEvent(main_one, taken, 0));  // before the next\n", "",
        "that cudaMemcpyAsync on stream 2 reads: nothing orders the two",
    ),
    "what a graph has allocated is not freed": (
        "    CHECK(cudaFreeAsync(memory, stream));  // of the graph\n", "",
        "cudaErrorInvalidValue: memory that its last launch has allocated is not freed at",
    ),
    "a size in elements": (
        "(host, sums, kCount * sizeof(int)", "(host, sums, kCount",
        "it ends well once cudaMemcpyAsync at side_copy.cu:104 has 4 times its bytes",
    ),
    "a graph copies what is freed": (
        "CHECK(cudaGraphExecMemcpyNodeSetParams1D(",
        "if (host == nullptr) CHECK(cudaGraphExecMemcpyNodeSetParams1D(",
        "error[out-of-bounds]: a graph's copy reads first (allocated at",
    ),
    "times of an event that keeps none": (
        "&ms, around, around", "&ms, filled, around",
        "cudaEventElapsedTime returned cudaErrorInvalidResourceHandle at",
    ),
    "a launch is refused, and nobody looks": (
        "fill<<<2, kCount / 2, 0, side>>>(sums, 9)", "fill<<<2, 2048, 0, side>>>(sums, 9)",
        "main returned 6: cudaLaunchKernel returned cudaErrorInvalidConfiguration: 2048 threads",
    ),
}  # fmt: skip


def test_copies_aside_are_right(checked: Checked) -> None:
    outcome = checked("side_copy.cu")
    assert outcome.code == 0, outcome.out


@pytest.mark.parametrize("case", _mostly_long(ASIDE, 3))
def test_copies_aside(checked: Checked, case: str) -> None:
    was, now, said = ASIDE[case]
    outcome = checked("side_copy.cu", (was, now))
    assert outcome.code == 3 and said in outcome.out, outcome.out


def test_volatile_stores_come_late(checked: Checked) -> None:
    assert checked("volatile_flag.cu").code == 0
    outcome = checked("volatile_flag.cu", ("__threadfence();  // before the flag", ""))
    assert outcome.code == 3, outcome.out
    assert "error[race]: a strong load gives what was there before the store" in outcome.out
    assert place("-->", "volatile_flag.cu", outcome.out), outcome.out


_STORES = (
    "  for (int i = 0; i < kCount; ++i) box->values[i] = i;  // values\n"
    "  __atomic_store_n(&box->go, 1, __ATOMIC_RELEASE);\n"
)
_FREED = "  int last = box->values[kCount - 1];\n  CHECK(cudaFreeHost(box));\n"
_JOINED = "  CHECK(cudaStreamWaitEvent(stream, used, 0));\n  CHECK(cudaFreeAsync(own, stream));\n"
#: Of late_flags.cu: what is replaced, and what is said of it.
LATE = {
    "no fence behind the flag": (
        _without("__threadfence_system();"),
        "error[race]: a load reads box (allocated at",
    ),
    "the flag before the values": (
        (_STORES, "\n".join(reversed(_STORES.splitlines())) + "\n"),
        "error[race]: a load reads box (allocated at",
    ),
    "read when it is freed": (
        (_FREED, "\n".join(reversed(_FREED.splitlines())) + "\n"),
        "error[out-of-bounds]: the host accesses box (allocated at",
    ),
    "a call by a function of the host": (
        ("++*static", "cudaDeviceSynchronize();\n  ++*static"),
        "fault: a function of the host that a stream calls has made a CUDA call",
    ),
    "freed before the branch has joined": (
        (_JOINED, "\n".join(reversed(_JOINED.splitlines())) + "\n"),
        "frees: nothing orders the two",
    ),
}


def test_what_the_host_does_while_a_kernel_waits(checked: Checked) -> None:
    outcome = checked("late_flags.cu", arch=90)
    assert outcome.code == 0 and "2 clean of 2" in outcome.out, outcome.out


@pytest.mark.parametrize("mistake", LATE)
def test_mistakes_while_a_kernel_waits(checked: Checked, mistake: str) -> None:
    replaced, said = LATE[mistake]
    outcome = checked("late_flags.cu", replaced, arch=90)
    assert outcome.code == 3 and said in outcome.out, outcome.out
