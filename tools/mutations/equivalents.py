"""Mutants that no execution can tell from their step, shown after they had not been found.

The sample of ``default_check.py`` was drawn before: it has some of them.
"""

from __future__ import annotations

SAME_AT_EQUALITY = "It chooses the smaller or the larger of two: where they are equal, they are."
AMAX_BETWEEN = (
    "The next part writes its codes and scales behind a barrier of its own, which every reader of "
    "this part's has to reach first; what it writes before that, nobody reads any more."
)
NO_BLOCKS = "A part of no blocks more: nothing of it is copied to a row."
#: By operator, file and line; where a file has changed, its mutants count again.
BY_HAND = {
    (
        "bound-over",
        "top_k.cuh",
        44,
        "for (uint32_t i = 0; i < kCount; ++i) {",
    ): "The key behind the last would be taken out if it were the largest; the largest is one of "
    "those that there are.",
    (
        "handover-relaxed",
        "gemm.cuh",
        129,
        "ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.full[stage]);",
    ): "The arrival only completes the phase, and the thread that makes it is the one that waits: "
    "it hands nothing over.",
    (
        "barrier-dropped",
        "quantize_sort_gather.cuh",
        92,
        "ptx::bar_sync();  // read by all, before the next part is written",
    ): AMAX_BETWEEN,
    (
        "barrier-dropped",
        "quantize_sort_gather.cuh",
        125,
        "ptx::bar_sync();  // read by all, before the next part is written",
    ): AMAX_BETWEEN,
    (
        "bound-over",
        "quantize_sort_gather.cuh",
        78,
        "for (uint32_t first = 0; first < blocks; first += kPartBlocks) {",
    ): NO_BLOCKS,
    (
        "bound-over",
        "quantize_sort_gather.cuh",
        121,
        "for (uint32_t first = 0; first < blocks; first += kPartBlocks) {",
    ): NO_BLOCKS,
    (
        "bound-over",
        "count_layout.cuh",
        54,
        "for (uint32_t distance = 1; distance < args.experts; distance *= 2) {",
    ): "At a distance of all experts nothing comes before any expert, and the threads beyond them "
    "store nothing.",
    (
        "barrier-dropped",
        "gemm.cuh",
        123,
        "ptx::bar_sync();",
    ): "The thread that initializes the mbarrier is the one that arms it; the others wait for it "
    "behind the barrier of the first block.",
    (
        "bound-over",
        "gemm.cuh",
        118,
        "row < rows ? kChunkBytes : 0);",
    ): "The row behind the last gets token 0's values in place of zeros; its products are stored "
    "nowhere.",
    (
        "bound-over",
        "gemm.cuh",
        107,
        "for (uint32_t row = args.offsets[expert]; row < end; row += kTileM) {",
    ): "A tile without rows more: nothing of it is stored.",
    (
        "bound-over",
        "route_quantize.cuh",
        97,
        "for (uint32_t s = 0; s < args.topk; ++s) {",
    ): "One expert more than asked for is taken out, for a lane that stores nothing.",
    (
        "thread-widened",
        "quantize.cuh",
        43,
        "if (ptx::thread_index() == 0) args.scales[token * (args.k / kFp8Block) + block] = scale;",
    ): "Every thread has computed the same scale: several store it in place of one.",
}
#: All of them.
LATE = {SAME_AT_EQUALITY, *BY_HAND.values()}
