// NVFP4 group GEMM: C[m, n] = (A[m, k] * SFA) (B[n, k] * SFB)^T for every group, fp16 C.
//
// Idea: one launch for all groups. There is a CTA for each tile of C; it looks up which group and
// which place in it its number means.
// Bottleneck removed: a launch for each group, and scales rearranged on the host.
// What changes: everything. Warps have roles and meet at barriers:
//
//   load warp --full[s]--> MMA warp --tmem_full--> epilogue warps
//        ^                    |
//        +-----empty[s]-------+
//
//   barrier    its phase is complete after                               who waits
//   full[s]    1 arrival of the load thread and kStageBytes of copies    MMA thread
//   empty[s]   1 commit: what read the stage is done                     load thread
//   tmem_full  1 commit: the tile is accumulated                         128 epilogue threads
//   CTA        kThreads: barriers initialized, tensor memory allocated   everyone
//   CTA        kThreads: accumulators read, stages empty                 everyone
#pragma once

#include "block_scaled_mma.cuh"
#include "descriptors.cuh"
#include "epilogue.cuh"
#include "group_tiles.cuh"
#include "nvfp4.cuh"
#include "pipeline.cuh"
#include "ptx/fence.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warp.cuh"
#include "scaled_stage.cuh"
#include "stage_load.cuh"
#include "stage_ring.cuh"
#include "tmem.cuh"
#include "wait.cuh"

namespace kb::step {

// ---- Config

inline constexpr uint32_t kTileM = 128;
inline constexpr uint32_t kTileN = 64;
inline constexpr uint32_t kTileK = 256;  // e2m1 elements
inline constexpr uint32_t kStages = 6;
inline constexpr uint32_t kChunkN = 64;  // columns that an epilogue thread holds at a time

inline constexpr uint32_t kEpilogueWarps = 4;  // warps 0 … 3: each reaches 32 lanes of TMEM
inline constexpr uint32_t kLoadWarp = 4;
inline constexpr uint32_t kMmaWarp = 5;
inline constexpr uint32_t kThreads = 32 * (kEpilogueWarps + 2);

inline constexpr Mxf4nvf4Instruction kInstruction{.m = kTileM, .n = kTileN};
static_assert(kInstruction.valid(1), "the tensor core has no instruction for this tile");
static_assert(e2m1_bytes(kTileK) == 128, "a row of a tile fills one period of the swizzle");
static_assert(kTileM == kScaleAtomRows, "a tile's rows have one row of atoms");
static_assert(kScaleAtomRows % kTileN == 0 && kTileN % 32 == 0,
              "a tile's columns lie in one row of atoms, from a whole column of tensor memory on");
static_assert(kTileM == 32 * kEpilogueWarps, "one epilogue thread for each row");
static_assert(kTileN % kChunkN == 0 && kChunkN % 8 == 0, "chunks of whole 16-byte stores");

// Tensor memory that the scales of one tile of K fill: kTileK / kScaleAtomK atoms.
inline constexpr uint32_t kScaleColumns = kTileK / kScaleAtomK * kScaleAtomColumns;

// Tensor memory: accumulators [kTileM lanes, kTileN columns], then scales of A, then of B.
inline constexpr uint32_t kTmemColumns = tmem_allocation(kTileN + 2 * kScaleColumns);
static_assert(kTmemColumns <= kTmemMaxColumns, "accumulators and scales fit");

// ---- SharedStorage

using Stage = ScaledStage<kTileM, kTileN, kTileK>;
inline constexpr uint32_t kStageBytes = Stage::kBytes;

struct SharedStorage {
  Stage stages[kStages];
  Mbarrier full[kStages];
  Mbarrier empty[kStages];
  Mbarrier tmem_full;
  uint32_t tmem;  // address of what was allocated
};
static_assert(sizeof(SharedStorage) <= 232448, "what a CTA can have");

// The call's groups: arrays in device memory with one entry for each.
struct Groups {
  const TensorMap* map_a;
  const TensorMap* map_b;
  const uint64_t* c;
  const uint64_t* sfa;
  const uint64_t* sfb;
  const int32_t* m;
  const int32_t* n;
  const int32_t* k;
  const uint32_t* tile_ends;  // tiles of the groups up to and with this one
};

// A tile of C, and the extents of its group.
struct WorkTile {
  uint32_t group;
  uint32_t m_offset, n_offset;
  uint32_t m, n, k;
};

KB_DEVICE WorkTile find_work(const Groups& groups, uint32_t index) {
  const auto tile_end = [&](uint32_t group) { return groups.tile_ends[group]; };
  const GroupTile found = find_group_tile(tile_end, index);
  WorkTile tile{.group = found.group};
  tile.m = static_cast<uint32_t>(groups.m[tile.group]);
  tile.n = static_cast<uint32_t>(groups.n[tile.group]);
  tile.k = static_cast<uint32_t>(groups.k[tile.group]);
  const uint32_t row_tiles = ceil_div(tile.n, kTileN);
  tile.m_offset = found.index / row_tiles * kTileM;
  tile.n_offset = found.index % row_tiles * kTileN;
  return tile;
}

KB_DEVICE void init_barriers(SharedStorage& shared) {
  init_stages(shared, 1);
  ptx::mbarrier_init(&shared.tmem_full, 1);
  ptx::fence_mbarrier_init_release_cluster();  // the MMA's commits arrive at cluster scope
}

// ---- Load: one thread fills stages in order.

KB_DEVICE void load_warp(SharedStorage& shared, const Groups& groups, const WorkTile& tile) {
  if (ptx::elect_sync()) {
    const TensorMap* map_a = &groups.map_a[tile.group];
    const TensorMap* map_b = &groups.map_b[tile.group];
    const auto* sfa = reinterpret_cast<const uint8_t*>(groups.sfa[tile.group]);
    const auto* sfb = reinterpret_cast<const uint8_t*>(groups.sfb[tile.group]);
    PipelineState<kStages> state;
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      load_stage(shared.stages[state.stage], &shared.full[state.stage], kStageBytes, map_a, map_b,
                 sfa, sfb, tile, k);
      state.advance();
    }
    // Until every stage is empty again: then no commit is on its way to a barrier any more, and
    // the barriers' memory may be given up.
    for (uint32_t s = 0; s < kStages; ++s) {
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      state.advance();
    }
  }
  ptx::bar_warp_sync();
}

// ---- MMA: one thread copies scales to tensor memory and multiplies.

KB_DEVICE void mma_warp(SharedStorage& shared, const WorkTile& tile, uint32_t tmem) {
  const uint32_t tmem_sfa = tmem + kTileN;
  const uint32_t tmem_sfb = tmem_sfa + kScaleColumns;
  // The atom holds scales of 128 columns of C; the tile's start here.
  const uint32_t tile_sfb = tmem_sfb + scale_atom_column(tile.n_offset);
  if (ptx::elect_sync()) {
    PipelineState<kStages> state;
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      mbarrier_wait_parity(&shared.full[state.stage], state.phase);
      ptx::tcgen05_fence_after_thread_sync();
      const StageDescriptors stage = describe_stage<kTileK>(shared.stages[state.stage]);
      copy_scales<kTileK>(ptx::cta_group_1, stage, tmem_sfa, tmem_sfb);
      multiply_stage<kTileK>(ptx::cta_group_1, kInstruction, tmem, {stage.a, tmem_sfa},
                             {stage.b, tile_sfb}, k != 0);
      ptx::tcgen05_commit(ptx::cta_group_1, &shared.empty[state.stage]);
      state.advance();
    }
    ptx::tcgen05_commit(ptx::cta_group_1, &shared.tmem_full);
  }
  ptx::bar_warp_sync();
}

// ---- Epilogue: thread t takes row t of the tile from tensor memory to C.

KB_DEVICE void epilogue_warps(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                              uint32_t tmem) {
  const uint32_t row = tile.m_offset + ptx::thread_index();
  f16* c = reinterpret_cast<f16*>(groups.c[tile.group]) + uint64_t{row} * tile.n;
  mbarrier_wait_parity(&shared.tmem_full, 0);
  ptx::tcgen05_fence_after_thread_sync();
  for (uint32_t column = 0; column < kTileN; column += kChunkN) {
    uint32_t values[kChunkN];
    ptx::tcgen05_ld_32x32b(values, tmem_lane(tmem, 32 * ptx::warp_index()) + column);
    ptx::tcgen05_wait_ld(values);
    for (uint32_t i = 0; i < kChunkN; i += 8) {
      const uint32_t n = tile.n_offset + column + i;
      if (row < tile.m && n < tile.n) {
        *reinterpret_cast<F16x8*>(c + n) = round_to_f16x8(values, i);
      }
    }
  }
}

// ---- Kernel

KB_DEVICE void compute_tile(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                            uint32_t tmem) {
  const uint32_t warp = ptx::warp_index();
  if (warp == kLoadWarp) {
    load_warp(shared, groups, tile);
  } else if (warp == kMmaWarp) {
    mma_warp(shared, tile, tmem);
  } else {
    epilogue_warps(shared, groups, tile, tmem);
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) group_gemm(KB_GRID_CONSTANT(Groups) groups) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t warp = ptx::warp_index();

  if (warp == kMmaWarp) {
    ptx::tcgen05_alloc(ptx::cta_group_1, &shared.tmem, kTmemColumns);
    ptx::tcgen05_relinquish_alloc_permit(ptx::cta_group_1);
  }
  if (ptx::thread_index() == 0) init_barriers(shared);
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();
  const uint32_t tmem = shared.tmem;

  compute_tile(shared, groups, find_work(groups, ptx::cta_index().x), tmem);
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();

  if (warp == kMmaWarp) ptx::tcgen05_dealloc(ptx::cta_group_1, tmem, kTmemColumns);
}

}  // namespace kb::step
