"""What published kernels got wrong, each with the right program from which it is taken."""

from __future__ import annotations

from typing import NamedTuple

EARLY = "before griddepcontrol.wait (cudaGridDependencySynchronize)"

ARCH_90A, BLACKWELL = ("--arch", "90a"), ("--arch", "100a")


class RealBug(NamedTuple):
    """A bug, rewritten small.

    Attributes:
        what: In a few words; program: of ``programs``, right as it is.
        replaced: What of its text makes it wrong, and by what.
        kind: The class of the finding that is its cause; found: words of the report.
        options: Of ``check``, for both versions; only: for the wrong one.
        formal: Whether it is found as what PTX leaves unordered and every GPU orders.
    """

    what: str
    program: str
    replaced: tuple[tuple[str, str], ...]
    kind: str
    found: str
    options: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    formal: bool = False


def _without(line: str) -> tuple[str, str]:
    return line, "(void)0;"


REAL_BUGS = {
    "flashinfer#3615": RealBug(
        "a counter of a grid barrier is set back while CTAs still wait for it", "published.cu",
        (("add_release(arrived, 1);", "const bool last = add_release(arrived, 1) == all - 1;"),
         ("while (load_acquire(arrived) < all)",
          "if (last) *arrived = 0; while (!last && load_acquire(arrived) < all)")),
        "race", "hang",
    ),
    "flashinfer#2996": RealBug(
        "`__syncthreads` that not all threads reach", "published.cu",
        (("__syncthreads();  // tail", "if (at < count) __syncthreads();"),),
        "named-barrier", "published.cu:", formal=True,
    ),
    "flashinfer#3529": RealBug(
        "a histogram is cleared while others read it", "published.cu",
        (_without("__syncthreads();  // before it is cleared"),), "race", "race",
    ),
    "sglang#32467": RealBug(
        "a scratch of warps is written again while it is added up", "published.cu",
        (_without("__syncthreads();  // before the next sum"),), "race", "race",
    ),
    "flashinfer#4092": RealBug(
        "a flag is raised before all threads have written", "published.cu",
        (_without("__syncthreads();  // all have written"),), "race", "race",
    ),
    "flashinfer#4199": RealBug(
        "a read before the wait of a dependent launch", "published.cu",
        (("const float mine = in[at];", "const float mine = in[at] * scale[blockIdx.x];"),),
        "race", EARLY,
    ),
    "llama.cpp#23690": RealBug(
        "a dependent launch that never waits", "published.cu",
        (_without("cudaGridDependencySynchronize();  // transform"),), "race", EARLY,
    ),
    "flash-attention#2481": RealBug(
        "a launch in a chain of dependents that does not wait", "published.cu",
        (_without("cudaGridDependencySynchronize();  // apply"),), "race", EARLY,
    ),
    "flashinfer#3630": RealBug(
        "each stage waits for the first one's barrier", "published_hopper.cu",
        (("wait(&ring.full[stage], turn & 1);", "wait(&ring.full[0], turn & 1);"),),
        "early-read", "published_hopper.cu:",
    ),
    "flash-attention#2761": RealBug(
        "two roles disagree on which tiles are empty", "published_hopper.cu",
        (("if (counts[tile] == 0) continue;  // adds", ""),), "hang", "published_hopper.cu:",
    ),
    "flash-attention#2258": RealBug(
        "a role's phase goes on at empty tiles, the other's does not", "published_hopper.cu",
        (("if (counts[tile] == 0) continue;  // brings",
          "if (counts[tile] == 0) { ++step; continue; }"),), "hang", "published_hopper.cu:",
    ),
    "flash-attention#2510": RealBug(
        "`wait_group.read` where the store has to be complete", "published_hopper.cu",
        (("cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"),),
        "race", "published_hopper.cu:",
    ),
    "DeepEP#642": RealBug(
        "no proxy fence between ordinary stores and the next bulk load", "published_hopper.cu",
        (_without("fence_async();  // before the next copy"),),
        "proxy-fence", "published_hopper.cu:",
    ),
    "tilelang#2406": RealBug(
        "`setmaxnreg` asks for more registers than the CTA has", "resident.cu",
        (("constexpr int kGets = 208;", "constexpr int kGets = 240;"),),
        "hang", "waits for registers of its CTA: 240 for each thread",
    ),
    "sglang#36657, #30592": RealBug(
        "a grid barrier while another stream holds an SM", "resident.cu", (), "hang",
        "of 8 CTAs that may wait for each other 7 can reside on 7 SMs", ("--sms", "8"),
        ("--sms", "7"),
    ),
    "flashinfer#2708, #2780": RealBug(
        "a build without the flag that its waits are under", "published_dependents.cu",
        (("#define GRID_DEPENDENCY_CONTROL", "// #define GRID_DEPENDENCY_CONTROL"),),
        "race", EARLY,
    ),
    "cutlass#2760": RealBug(
        "a grouped product whose table of groups comes from the launch ahead never waits",
        "published_dependents.cu",
        (('asm volatile("griddepcontrol.wait;" ::: "memory");  // groups', ""),), "race", EARLY,
    ),
    "cutlass#2962": RealBug(
        "the first group of a table is read before the wait", "published_dependents.cu",
        (("// ahead of the wait", "if (groups[0].count < 0) return;"),),
        "race", EARLY,
    ),
    "DeepGEMM#429": RealBug(
        "a cluster takes tiles of two groups, which have steps of their own",
        "published_clusters.cu",
        (("(kTiles + kCluster - 1) / kCluster * kCluster;", "kTiles;"),),
        "hang", "published_clusters.cu:",
    ),
    "DeepGEMM#415": RealBug(
        "of a cluster's two CTAs one expects copies of both, the other makes none for both",
        "published_clusters.cu",
        (("(kTiles + kCluster - 1) / kCluster * kCluster;", "kTiles;"),
         ("const bool both = true;", "const bool both = rank == 1 || place + 1 < kTiles;")),
        "hang", "published_clusters.cu:",
    ),
    "cutlass#2172": RealBug(
        "a role of a CTA without tiles waits for the first tile of another",
        "published_clusters.cu",
        (("// ahead of all tiles", "wait(&begun, 0);"), ("if (turn == 0) wait(&begun, 0);", "")),
        "hang", "published_clusters.cu:",
    ),
    "DeepGEMM#343, #430": RealBug(
        "a tensor map gets the next group's address while copies by it are on their way",
        "published_maps.cu", (_without("wait(&ring.full[at % kStages], at / kStages & 1);"),),
        "overwrite", "published_maps.cu:", ARCH_90A,
    ),
    "DeepGEMM#285": RealBug(
        "a product does not wait for the queries", "published_blackwell.cu",
        (_without("if (turn == 0) wait(&tiles.a_full, 0);"),),
        "early-read", "published_blackwell.cu:", BLACKWELL,
    ),
    "flash-attention (tmem_store)": RealBug(
        "probabilities are announced before their stores to tensor memory are done",
        "published_blackwell.cu", (_without("store_is_done();"),),
        "early-read", "published_blackwell.cu:", BLACKWELL,
    ),
    "ThunderKittens (deprovision)": RealBug(
        "tensor memory is freed while other warps read it", "published_blackwell.cu",
        (_without("__syncthreads();  // all have read"),),
        "overwrite", "published_blackwell.cu:", BLACKWELL,
    ),
    "tilelang#1980": RealBug(
        "no `tcgen05.fence` around what warps synchronize by", "published_blackwell.cu",
        (_without('asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");'),
         _without('asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");')),
        "early-read", "for want of tcgen05.fence", BLACKWELL, formal=True,
    ),
    "sglang#34789": RealBug(
        "a dependent launch fills the SMs of a kernel that the launch ahead waits for",
        "resident_dependents.cu",
        (("// at first", "cudaTriggerProgrammaticLaunchCompletion();"),
         _without("cudaTriggerProgrammaticLaunchCompletion();  // behind what it waits for")),
        "hang", "finalize may begin",
    ),
    "flashinfer-python 0.7.2 (counter)": RealBug(
        "a round's counter is set back behind an arrival, which comes before its reads",
        "released.cu",
        (("int found = counts[mine];  // before the arrival", "cluster.barrier_arrive();"),
         ("cluster.barrier_arrive();\n    out", "int found = counts[mine];\n    out")),
        "race", "may still read",
    ),
    "flashinfer-python 0.7.2 (short rows)": RealBug(
        "rows of one kind are read before the wait of a dependent launch", "released.cu",
        (_without("cudaGridDependencySynchronize();  // both kinds"),), "race", EARLY,
    ),
    "sgl-deep-gemm 0.2.5 (sums)": RealBug(
        "lanes read each other's sums behind a shuffle alone", "released.cu",
        (_without("__syncwarp();  // before the search"),), "race", "a store by another thread",
    ),
    "sgl-deep-gemm 0.2.5 (registers)": RealBug(
        "one lane of a warpgroup gives its registers back", "released.cu",
        (('asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");  // all of them', ""),
         ("// by one", "setmaxnreg.dec.sync.aligned.u32 24;")),
        "divergence", "by 1 of 32 lanes",
    ),
    "sgl-deep-gemm 0.2.5 (elected lane)": RealBug(
        "the elected lane stores a tile from its own place in it", "released.cu",
        (("const int* from = words;", "const int* from = words + threadIdx.x;"),),
        "alignment", "16 bytes",
    ),
}  # fmt: skip

#: Of the list, and no programs: where they are.
ELSEWHERE = {
    "tokenspeed#1000": "Triton kernels without a wait: a script, found (`scripts/dependents.py`)",
}
