// NVFP4 group GEMM: C[m, n] = (A[m, k] * SFA) (B[n, k] * SFB)^T for every group, fp16 C.
//
// Idea: two CTAs share a product of 256 x 128.
// Bottleneck removed: each CTA reads all rows of its tile of A from shared memory.
// What changes: CTAs form pairs. Each holds its own columns of C, half of the rows and half of the
// product's result: its own columns. CTA 0 issues for both:
//
//   load warp --full[s]--> MMA warp of CTA 0 --tmem_full[a]--> epilogue warps
//        ^                    |  ^   ^                              |
//        +-empty[s] (of both)-+  |   +-----tmem_empty[a] (of both)--+
//                                |
//   load warp --full[s]--> relay of CTA 1, by peer_full[s]
//
//   barrier    its phase is complete after                               who waits
//   full[s]    1 arrival of the load thread and kStageBytes of copies    MMA or relay thread
//   peer_full  in CTA 0: 1 arrival of the relay thread                   MMA thread
//   empty[s]   1 commit to both: what read the stage is done             load thread
//   tmem_full  1 commit to both: the tile is accumulated                 128 epilogue threads
//   tmem_empty in CTA 0: 1 arrival of each epilogue warp of both         MMA thread
//   cluster    all threads: barriers initialized, tensor memory there    everyone
//   cluster    all threads: accumulators read, stages empty              everyone
//   staging    the epilogue's 128 threads, twice a chunk: a buffer is free, a buffer is filled
#pragma once

#include "block_scaled_mma.cuh"
#include "cluster_ring_drain.cuh"
#include "cluster_sync.cuh"
#include "descriptors.cuh"
#include "epilogue.cuh"
#include "group_gemm.cuh"
#include "group_tiles.cuh"
#include "nvfp4.cuh"
#include "operand_maps_in_use.cuh"
#include "output_map.cuh"
#include "pipeline.cuh"
#include "ptx/fence.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "scaled_stage.cuh"
#include "tmem.cuh"
#include "wait.cuh"

namespace kb::step {

// ---- Config

inline constexpr uint32_t kTileM = 128;
inline constexpr uint32_t kTileN = 128;  // of each CTA of the pair
inline constexpr uint32_t kTileK = 256;  // e2m1 elements
inline constexpr uint32_t kStages = 5;
inline constexpr uint32_t kAccumulators = 2;
inline constexpr uint32_t kPair = 2;  // CTAs that share a product, next to each other along N
inline constexpr uint32_t kClusterSize = kPair;
inline constexpr uint32_t kLeader = 0;   // the one that issues
inline constexpr uint32_t kChunkM = 32;  // rows that a store of C takes

inline constexpr uint32_t kEpilogueWarps = 4;  // warps 0 … 3: each reaches 32 lanes of TMEM
inline constexpr uint32_t kLoadWarp = 4;
inline constexpr uint32_t kMmaWarp = 5;
inline constexpr uint32_t kThreads = 32 * (kEpilogueWarps + 2);
inline constexpr uint32_t kStagingBarrier = 1;  // named barrier of the epilogue warps

inline constexpr Mxf4nvf4Instruction kInstruction{.m = kPair * kTileN, .n = kTileM};
static_assert(kInstruction.valid(kPair), "the tensor core has no instruction for this tile");
static_assert(e2m1_bytes(kTileK) == 128, "a row of a tile fills one period of the swizzle");
static_assert(kTileN == kScaleAtomRows, "a tile's columns have one row of atoms");
static_assert(kScaleAtomRows % kTileM == 0 && kTileM % 32 == 0,
              "a tile's rows lie in one row of atoms, from a whole column of tensor memory on");
static_assert(kTileN == 32 * kEpilogueWarps, "one epilogue thread for each column");
static_assert(kTileM % kChunkM == 0, "whole chunks");

// Scales of one tile of K: kTileK / kScaleAtomK atoms, contiguous in memory.
inline constexpr uint32_t kScaleBytes = kTileK / kScaleAtomK * kScaleAtomBytes;
inline constexpr uint32_t kScaleColumns = kTileK / kScaleAtomK * kScaleAtomColumns;

// Tensor memory of a tile: accumulators [kTileN lanes, kTileM columns], scales of A, scales of B.
inline constexpr uint32_t kTileColumns = kTileM + 2 * kScaleColumns;
inline constexpr uint32_t kTmemColumns = tmem_allocation(kAccumulators * kTileColumns);
static_assert(kTmemColumns <= kTmemMaxColumns, "accumulators and scales fit");

// ---- SharedStorage

// What a CTA holds of an instruction's operands: its own columns of C, half of the rows, and the
// scales of its columns and of all rows.
inline constexpr uint32_t kHalfM = kTileM / kPair;
using Stage = ScaledStage<kHalfM, kTileN, kTileK>;
inline constexpr uint32_t kStageBytes = Stage::kBytes;

struct SharedStorage {
  Stage stages[kStages];
  alignas(128) f16 c[2][kChunkM * kTileN];  // [kChunkM, kTileN] each, as the TMA stores it
  TensorMap map_a;                          // as last published
  TensorMap map_b;
  TensorMap map_c;
  Mbarrier full[kStages];
  Mbarrier peer_full[kStages];
  Mbarrier empty[kStages];
  Mbarrier tmem_full[kAccumulators];
  Mbarrier tmem_empty[kAccumulators];
  uint32_t tmem;  // address of what was allocated
};
static_assert(sizeof(SharedStorage) <= 232448, "what a CTA can have");

struct Group {
  const void* a;
  const void* b;
  const void* c;
  const uint8_t* sfa;
  const uint8_t* sfb;
  uint32_t m;
  uint32_t tile_end;  // pairs' tiles of the groups up to and with this one
};

struct CtaMaps {
  TensorMap a, b, c;
};

// The call's groups, as the kernel's argument.
struct Groups {
  TensorMap map_a;  // templates: the address and A's and C's number of rows are yet to be set
  TensorMap map_b;
  TensorMap map_c;
  CtaMaps* maps;  // [CTAs], in device memory: what the TMA reads
  Group table[kMaxGroups];
  uint32_t count;
  uint32_t n, k;  // of every group
};

// A tile of C, and the extents of its group.
struct WorkTile {
  uint32_t group;
  uint32_t m_offset, n_offset;
  uint32_t n, k;
  bool new_group;  // the CTA's last tile was in another
};

// Tile `index` is two of C's, one for each CTA of the pair. The second may lie beyond N: then its B
// reads as zero, nothing of it is stored, and any scales will do.
KB_DEVICE WorkTile find_work(const Groups& groups, uint32_t index, uint32_t last_group) {
  const auto tile_end = [&](uint32_t group) { return groups.table[group].tile_end; };
  const GroupTile found = find_group_tile(tile_end, index);
  WorkTile tile{.group = found.group};
  tile.new_group = tile.group != last_group;
  tile.n = groups.n;
  tile.k = groups.k;
  const uint32_t row_tiles = ceil_div(tile.n, kPair * kTileN);
  tile.m_offset = found.index / row_tiles * kTileM;
  tile.n_offset = (found.index % row_tiles * kPair + ptx::cluster_ctarank()) * kTileN;
  return tile;
}

KB_DEVICE void init_barriers(SharedStorage& shared) {
  for (uint32_t s = 0; s < kStages; ++s) {
    ptx::mbarrier_init(&shared.full[s], 1);
    ptx::mbarrier_init(&shared.peer_full[s], 1);
    ptx::mbarrier_init(&shared.empty[s], 1);
  }
  for (uint32_t a = 0; a < kAccumulators; ++a) {
    ptx::mbarrier_init(&shared.tmem_full[a], 1);
    ptx::mbarrier_init(&shared.tmem_empty[a], kPair * kEpilogueWarps);
  }
  ptx::fence_mbarrier_init_release_cluster();  // commits reach both CTAs' barriers
}

// ---- Load: one thread fills stages in order; the warp keeps the maps of A and B.

KB_DEVICE void load_warp(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                         PipelineState<kStages>& state) {
  if (ptx::elect_sync()) {
    const TensorMap* map_a = &groups.maps[ptx::cta_index().x].a;
    const TensorMap* map_b = &groups.maps[ptx::cta_index().x].b;
    const uint8_t* sfa = groups.table[tile.group].sfa;
    const uint8_t* sfb = groups.table[tile.group].sfb;
    const uint32_t sfb_row = tile.n_offset < tile.n ? tile.n_offset : 0;
    const uint32_t first_m = tile.m_offset + ptx::cluster_ctarank() * kHalfM;
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &shared.empty[state.stage],
                           state.phase ^ 1);
      Stage& stage = shared.stages[state.stage];
      Mbarrier* full = &shared.full[state.stage];
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full, kStageBytes);
      ptx::cp_async_bulk_tensor_2d_shared_global(stage.a, map_a, e2m1_bytes(k), first_m, full);
      ptx::cp_async_bulk_tensor_2d_shared_global(stage.b, map_b, e2m1_bytes(k), tile.n_offset,
                                                 full);
      ptx::cp_async_bulk_shared_global(stage.sfa, sfa + scale_atom_offset(tile.m_offset, k, tile.k),
                                       kScaleBytes, full);
      ptx::cp_async_bulk_shared_global(stage.sfb, sfb + scale_atom_offset(sfb_row, k, tile.k),
                                       kScaleBytes, full);
      state.advance();
    }
  }
  ptx::bar_warp_sync();
}

// ---- MMA: one thread of CTA 0 copies scales to tensor memory and multiplies B by A transposed, in
// both CTAs; one thread of CTA 1 tells it when that CTA's stages are full.

KB_DEVICE void mma_warp(SharedStorage& shared, const WorkTile& tile, uint32_t tmem,
                        PipelineState<kAccumulators> accum, PipelineState<kStages>& state) {
  const uint32_t tmem_sfa = tmem + kTileM;
  const uint32_t tmem_sfb = tmem_sfa + kScaleColumns;
  // The atom holds scales of 128 rows of C; the tile's start here.
  const uint32_t tile_sfa = tmem_sfa + scale_atom_column(tile.m_offset);
  if (ptx::elect_sync()) {
    mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &shared.tmem_empty[accum.stage],
                         accum.phase ^ 1);
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      mbarrier_wait_parity(&shared.full[state.stage], state.phase);
      mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &shared.peer_full[state.stage],
                           state.phase);
      ptx::tcgen05_fence_after_thread_sync();
      const StageDescriptors stage = describe_stage<kTileK>(shared.stages[state.stage]);
      copy_scales<kTileK>(ptx::cta_group_2, stage, tmem_sfa, tmem_sfb);
      multiply_stage<kTileK>(ptx::cta_group_2, kInstruction, tmem, {stage.b, tmem_sfb},
                             {stage.a, tile_sfa}, k != 0);
      ptx::tcgen05_commit(ptx::cta_group_2, &shared.empty[state.stage], cluster_mask(kPair));
      state.advance();
    }
    ptx::tcgen05_commit(ptx::cta_group_2, &shared.tmem_full[accum.stage], cluster_mask(kPair));
  }
  ptx::bar_warp_sync();
}

KB_DEVICE void relay_warp(SharedStorage& shared, const WorkTile& tile,
                          PipelineState<kStages>& state) {
  if (ptx::elect_sync()) {
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      mbarrier_wait_parity(&shared.full[state.stage], state.phase);
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster,
                           ptx::mapa(&shared.peer_full[state.stage], kLeader));
      state.advance();
    }
  }
  ptx::bar_warp_sync();
}

// ---- Epilogue: thread t takes column t of the tile from tensor memory to shared memory, a chunk
// of rows at a time; one of them stores each chunk, and its warp keeps C's map.

KB_DEVICE void epilogue_warps(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                              uint32_t tmem, PipelineState<kAccumulators> accum) {
  if (tile.new_group && ptx::warp_index() == 0) patch_map_c(shared, groups, tile);
  mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &shared.tmem_full[accum.stage],
                       accum.phase);
  ptx::tcgen05_fence_after_thread_sync();
  for (uint32_t row = 0; row < kTileM; row += kChunkM) {
    f16* staging = shared.c[row / kChunkM % 2];
    uint32_t values[kChunkM];
    ptx::tcgen05_ld_32x32b(values, tmem_lane(tmem, 32 * ptx::warp_index()) + row);
    ptx::tcgen05_wait_ld(values);
    ptx::bar_sync(kStagingBarrier, 32 * kEpilogueWarps);
    store_f16_column(staging + ptx::thread_index(), kTileN, values);
    ptx::fence_proxy_async(ptx::space_shared_cta);  // the TMA reads what this thread has written
    ptx::bar_sync(kStagingBarrier, 32 * kEpilogueWarps);
    if (ptx::warp_index() == 0 && ptx::elect_sync()) {
      const TensorMap* map_c = &groups.maps[ptx::cta_index().x].c;
      ptx::cp_async_bulk_tensor_2d_global_shared(map_c, tile.n_offset, tile.m_offset + row,
                                                 staging);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read<1>();  // the store before has read the other buffer
    }
    ptx::bar_warp_sync();
  }
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_warp_sync();
  if (ptx::elect_sync()) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster,
                         ptx::mapa(&shared.tmem_empty[accum.stage], kLeader));
  }
}

// ---- Kernel

KB_DEVICE void compute_tile(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                            uint32_t tmem, PipelineState<kAccumulators> accum,
                            PipelineState<kStages>& state) {
  const uint32_t warp = ptx::warp_index();
  if (warp == kLoadWarp) {
    load_warp(shared, groups, tile, state);
  } else if (warp == kMmaWarp) {
    if (ptx::cluster_ctarank() == kLeader) {
      mma_warp(shared, tile, tmem, accum, state);
    } else {
      relay_warp(shared, tile, state);
    }
  } else {
    epilogue_warps(shared, groups, tile, tmem, accum);
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) group_gemm(KB_GRID_CONSTANT(Groups) groups) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t warp = ptx::warp_index();

  if (warp == kMmaWarp) {
    ptx::tcgen05_alloc(ptx::cta_group_2, &shared.tmem, kTmemColumns);
    ptx::tcgen05_relinquish_alloc_permit(ptx::cta_group_2);
  }
  if (ptx::thread_index() == 0) init_barriers(shared);
  if (warp == kLoadWarp && ptx::elect_sync()) {
    shared.map_a = groups.map_a;
    shared.map_b = groups.map_b;
    shared.map_c = groups.map_c;
  }
  ptx::tcgen05_fence_before_thread_sync();
  cluster_sync();
  ptx::tcgen05_fence_after_thread_sync();
  const uint32_t tmem = shared.tmem;

  const uint32_t tiles = groups.table[groups.count - 1].tile_end;
  const uint32_t pairs = ptx::cta_count().x / kPair;
  uint32_t last_group = groups.count;  // none
  PipelineState<kStages> state;        // where the load and the MMA thread are in the ring
  PipelineState<kAccumulators> accum;  // the tile's accumulator
  for (uint32_t index = ptx::clusterid_x(); index < tiles; index += pairs) {
    const WorkTile tile = find_work(groups, index, last_group);
    if (tile.new_group && warp == kLoadWarp) patch_maps_after_loads(shared, groups, tile);
    compute_tile(shared, groups, tile, tmem + accum.stage * kTileColumns, accum, state);
    accum.advance();
    last_group = tile.group;
  }

  if (warp == kLoadWarp) drain_cluster_stages(shared, state);
  if (warp == 0 && ptx::elect_sync()) ptx::cp_async_bulk_wait_group_read<0>();
  ptx::tcgen05_fence_before_thread_sync();
  cluster_sync();
  ptx::tcgen05_fence_after_thread_sync();
  if (warp == kMmaWarp) ptx::tcgen05_dealloc(ptx::cta_group_2, tmem, kTmemColumns);
}

}  // namespace kb::step
