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
NO_ROWS = "A tile without rows more: nothing of it is stored."
LEFT_BEFORE = "The loop is left at the number of blocks, which is no more than that bound."
NO_SUCH_ROW = (
    "The rows of one turn more are beyond the tile's columns, so that none is below `rows`."
)
ITS_OWN = "The same threads meet at another barrier, at which nobody else does."
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
    ): NO_ROWS,
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
    (
        "bound-over",
        "gemm.cuh",
        132,
        "for (uint32_t row = args.offsets[expert]; row < end; row += kTileM) {",
    ): NO_ROWS,
    (
        "bound-over",
        "gemm.cuh",
        133,
        "for (uint32_t row = args.offsets[expert]; row < end; row += kTileM) {",
    ): NO_ROWS,
    (
        "bound-over",
        "gemm.cuh",
        124,
        "for (uint32_t phase = 0; row < end; row += kTileM) {",
    ): NO_ROWS,
    (
        "bound-over",
        "gemm.cuh",
        185,
        "for (; row < end; row += kTileM) {",
    ): NO_ROWS,
    (
        "bound-over",
        "quantize_sort_gather.cuh",
        77,
        "for (uint32_t first = 0; first < blocks; first += kPartBlocks) {",
    ): NO_BLOCKS,
    (
        "bound-over",
        "quantize_sort_gather.cuh",
        107,
        "for (uint32_t first = 0; first < blocks; first += kPartBlocks) {",
    ): NO_BLOCKS,
    (
        "bound-over",
        "route_quantize.cuh",
        173,
        "for (uint32_t first = kPartBlocks; first < blocks; first += kPartBlocks) {",
    ): NO_BLOCKS,
    (
        "barrier-dropped",
        "quantize_sort_gather.cuh",
        91,
        "ptx::bar_sync();  // read by all, before the next part is written",
    ): AMAX_BETWEEN,
    (
        "barrier-dropped",
        "quantize_sort_gather.cuh",
        111,
        "ptx::bar_sync();  // read by all, before the next part is written",
    ): AMAX_BETWEEN,
    (
        "bound-over",
        "quantize_sort_gather.cuh",
        50,
        "for (uint32_t block = 0; block < kPartBlocks; ++block) {",
    ): LEFT_BEFORE,
    (
        "bound-over",
        "quantize_sort_gather.cuh",
        58,
        "for (uint32_t block = 0; block < kPartBlocks; ++block) {",
    ): LEFT_BEFORE,
    (
        "bound-over",
        "count_layout.cuh",
        28,
        (
            "for (uint64_t first = ptx::thread_index(); first < args.routes; "
            "first += kIds * kThreads) {"
        ),
    ): "A thread that begins behind the last route loads and counts none.",
    (
        "bound-over",
        "gemm.cuh",
        157,
        "for (uint32_t i = 0; i < kRows; ++i) {",
    ): NO_SUCH_ROW,
    (
        "bound-over",
        "gemm.cuh",
        213,
        "for (uint32_t i = 0; i < kRows; ++i) {",
    ): NO_SUCH_ROW,
    (
        "bound-over",
        "gemm.cuh",
        113,
        "for (uint32_t i = 0; i < kTileM / kCopyRows; ++i) {",
    ): "The rows of one turn more are beyond the columns: none is copied.",
    (
        "bound-over",
        "gemm.cuh",
        115,
        "if (row < columns) {",
    ): "The row behind the columns is filled with zeros; no product reads it.",
    (
        "bound-under",
        "route_quantize.cuh",
        149,
        "if (index < args.k) {",
    ): "The last value of a block is lane 31's, which stores neither codes nor a scale.",
    (
        "barrier-number",
        "gemm.cuh",
        186,
        "ptx::bar_sync(kMmaBarrier, kMmaThreads);",
    ): ITS_OWN,
    (
        "barrier-number",
        "gemm.cuh",
        216,
        (
            "ptx::bar_sync(kMmaBarrier, kMmaThreads);  "
            "// tokens are read by all, before the next tile's come"
        ),
    ): ITS_OWN,
}
#: All of them.
LATE = {SAME_AT_EQUALITY, *BY_HAND.values()}
