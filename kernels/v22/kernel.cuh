// NVFP4 group GEMM: C[m, n] = (A[m, k] * SFA) (B[n, k] * SFB)^T for every group, fp16 C.
//
// Idea: a third accumulator, so that the MMA can be two tiles ahead of the epilogue.
// Bottleneck removed: the MMA's wait for an epilogue that takes longer than a tile's MMA.
// What changes: tensor memory holds three tiles' accumulators and scales, 480 of its 512 columns:
//
//   load warp --full[s]--> MMA warp --tmem_full[a]--> epilogue warps
//        ^                    |  ^                         |
//        +-----empty[s]-------+  +------tmem_empty[a]------+
//
//   barrier    its phase is complete after                               who waits
//   full[s]    1 arrival of the load thread, kStageBytes from both CTAs  MMA thread
//   empty[s]   1 commit of each CTA: what read the stage is done         load thread
//   tmem_full  1 commit: the tile is accumulated                         128 epilogue threads
//   tmem_empty 1 arrival of each epilogue warp: accumulators read        MMA thread
//   tiles      in tile_queue.cuh                                         every warp
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
#include "pipeline.cuh"
#include "ptx/fence.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "scaled_stage.cuh"
#include "stage_ring.cuh"
#include "tile_queue.cuh"
#include "tmem.cuh"
#include "wait.cuh"

namespace kb::step {

// ---- Config

inline constexpr uint32_t kClusterSize = 2;  // CTAs whose tiles are neighbours along N
inline constexpr uint32_t kTileM = 128;
inline constexpr uint32_t kTileN = 128;
inline constexpr uint32_t kTileK = 256;                     // e2m1 elements
inline constexpr uint32_t kShareM = kTileM / kClusterSize;  // rows of A that a CTA loads
inline constexpr uint32_t kStages = 5;
inline constexpr uint32_t kAccumulators = 3;
inline constexpr uint32_t kTileSlots = 5;  // tiles that are resolved ahead
inline constexpr uint32_t kChunk = 32;     // rows that a store of C takes

inline constexpr uint32_t kEpilogueWarps = 4;  // warps 0 … 3: each reaches 32 lanes of TMEM
inline constexpr uint32_t kLoadWarp = 4;
inline constexpr uint32_t kMmaWarp = 5;
inline constexpr uint32_t kSchedulerWarp = 6;
inline constexpr uint32_t kThreads = 32 * (kEpilogueWarps + 3);
inline constexpr uint32_t kStagingBarrier = 1;  // named barrier of the epilogue warps

// The tensor core computes C^T = B A^T: lanes of tensor memory are columns of C.
inline constexpr uint32_t kLanes = kTileN;
inline constexpr uint32_t kColumns = kTileM;

inline constexpr Mxf4nvf4Instruction kInstruction{.m = kLanes, .n = kColumns};
static_assert(kInstruction.valid(1), "the tensor core has no instruction for this tile");
static_assert(e2m1_bytes(kTileK) == 128, "a row of a tile fills one period of the swizzle");
static_assert(kLanes == kScaleAtomRows, "a tile's lanes have one row of atoms");
static_assert(kScaleAtomRows % kColumns == 0 && kColumns % 32 == 0,
              "a tile's columns lie in one row of atoms, from a whole column of tensor memory on");
static_assert(kLanes == 32 * kEpilogueWarps, "one epilogue thread for each lane");
static_assert(kColumns % kChunk == 0, "whole chunks");
static_assert(kShareM % 8 == 0, "a share of A is whole periods of the swizzle");

// Scales of one tile of K: kTileK / kScaleAtomK atoms, contiguous in memory.
inline constexpr uint32_t kScaleBytes = kTileK / kScaleAtomK * kScaleAtomBytes;
inline constexpr uint32_t kScaleColumns = kTileK / kScaleAtomK * kScaleAtomColumns;

// Tensor memory of a tile: accumulators [kLanes, kColumns], scales of A, scales of B.
inline constexpr uint32_t kTileColumns = kColumns + 2 * kScaleColumns;
inline constexpr uint32_t kTmemColumns = tmem_allocation(kAccumulators * kTileColumns);
static_assert(kTmemColumns <= kTmemMaxColumns, "accumulators and scales fit");

// ---- SharedStorage

using Stage = ScaledStage<kTileM, kTileN, kTileK>;
inline constexpr uint32_t kStageBytes = Stage::kBytes;

// A tile of C, and what its roles need of its group.
struct WorkTile {
  uint32_t group;
  uint32_t m_offset, n_offset;
  uint32_t n, k;
  const uint8_t* sfa;  // scales of the tile's rows, from k = 0 on
  const uint8_t* sfb;
};

struct SharedStorage {
  Stage stages[kStages];
  alignas(128) f16 c[2][kChunk * kLanes];  // [kChunk, kTileN] each, as the TMA stores it
  Mbarrier full[kStages];
  Mbarrier empty[kStages];
  Mbarrier tmem_full[kAccumulators];
  Mbarrier tmem_empty[kAccumulators];
  TileQueue<WorkTile, kTileSlots> tiles;
  uint32_t tmem;  // address of what was allocated
};
static_assert(sizeof(SharedStorage) <= 232448, "what a CTA can have");

struct Group {
  TensorMap map_a;
  TensorMap map_b;
  TensorMap map_c;
  const uint8_t* sfa;
  const uint8_t* sfb;
  uint32_t n, k;
  uint32_t tile_end;  // clusters' tiles of the groups up to and with this one
};

// The call's groups, as the kernel's argument.
struct Groups {
  Group table[kMaxGroups];
  uint32_t count;
};

// Tile `index` is two of C's, one for each CTA of the cluster. The second may lie beyond N: then
// its B reads as zero, nothing of it is stored, and any scales will do.
KB_DEVICE WorkTile find_work(const Groups& groups, uint32_t index) {
  const auto tile_end = [&](uint32_t group) { return groups.table[group].tile_end; };
  const GroupTile found = find_group_tile(tile_end, index);
  const Group& group = groups.table[found.group];
  WorkTile tile{.group = found.group};
  tile.n = group.n;
  tile.k = group.k;
  const uint32_t row_tiles = ceil_div(tile.n, kClusterSize * kTileN);
  tile.m_offset = found.index / row_tiles * kTileM;
  tile.n_offset = (found.index % row_tiles * kClusterSize + ptx::cluster_ctarank()) * kTileN;
  const uint32_t sfb_row = tile.n_offset < tile.n ? tile.n_offset : 0;
  tile.sfa = group.sfa + scale_atom_offset(tile.m_offset, 0, tile.k);
  tile.sfb = group.sfb + scale_atom_offset(sfb_row, 0, tile.k);
  return tile;
}

KB_DEVICE void init_barriers(SharedStorage& shared) {
  init_stages(shared, kClusterSize);
  for (uint32_t a = 0; a < kAccumulators; ++a) {
    ptx::mbarrier_init(&shared.tmem_full[a], 1);
    ptx::mbarrier_init(&shared.tmem_empty[a], kEpilogueWarps);
  }
  init_tile_queue(shared.tiles, kEpilogueWarps + 2);
  ptx::fence_mbarrier_init_release_cluster();  // commits and multicasts reach both CTAs' barriers
}

// ---- Scheduler: the warp finds tiles ahead of the others.

KB_DEVICE void scheduler_warp(SharedStorage& shared, const Groups& groups, uint32_t index,
                              PipelineState<kTileSlots> slot) {
  reserve_slot(shared.tiles, slot);
  publish_tile(shared.tiles, slot, find_work(groups, index));
}

// ---- Load: one thread fills stages in order, with half of A's rows in both CTAs.

KB_DEVICE void load_warp(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                         PipelineState<kStages>& state) {
  if (ptx::elect_sync()) {
    const TensorMap* map_a = &groups.table[tile.group].map_a;
    const TensorMap* map_b = &groups.table[tile.group].map_b;
    const uint32_t row = ptx::cluster_ctarank() * kShareM;
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      cluster_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      Stage& stage = shared.stages[state.stage];
      Mbarrier* full = &shared.full[state.stage];
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full, kStageBytes);
      ptx::cp_async_bulk_tensor_2d_shared_global(stage.a + row * e2m1_bytes(kTileK), map_a,
                                                 e2m1_bytes(k), tile.m_offset + row, full,
                                                 cluster_mask(kClusterSize));
      ptx::cp_async_bulk_tensor_2d_shared_global(stage.b, map_b, e2m1_bytes(k), tile.n_offset,
                                                 full);
      ptx::cp_async_bulk_shared_global(stage.sfa, tile.sfa + scale_atom_offset(0, k, tile.k),
                                       kScaleBytes, full);
      ptx::cp_async_bulk_shared_global(stage.sfb, tile.sfb + scale_atom_offset(0, k, tile.k),
                                       kScaleBytes, full);
      state.advance();
    }
  }
  ptx::bar_warp_sync();
}

// ---- MMA: one thread copies scales to tensor memory and multiplies.

template <bool kSingleWave>
KB_DEVICE void mma_warp(SharedStorage& shared, const WorkTile& tile, uint32_t tmem,
                        PipelineState<kAccumulators> accum, PipelineState<kStages>& state) {
  const uint32_t tmem_sfa = tmem + kColumns;
  const uint32_t tmem_sfb = tmem_sfa + kScaleColumns;
  // An atom holds scales of 128 rows or columns of C; the tile's start here.
  const uint32_t tile_sfa = tmem_sfa + scale_atom_column(tile.m_offset);
  const uint32_t tile_sfb = tmem_sfb + scale_atom_column(tile.n_offset);
  if (ptx::elect_sync()) {
    if (!kSingleWave) mbarrier_wait_parity(&shared.tmem_empty[accum.stage], accum.phase ^ 1);
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      cluster_wait_parity(&shared.full[state.stage], state.phase);
      ptx::tcgen05_fence_after_thread_sync();
      const StageDescriptors stage = describe_stage<kTileK>(shared.stages[state.stage]);
      copy_scales<kTileK>(ptx::cta_group_1, stage, tmem_sfa, tmem_sfb);
      multiply_stage<kTileK>(ptx::cta_group_1, kInstruction, tmem, {stage.b, tile_sfb},
                             {stage.a, tile_sfa}, k != 0);
      ptx::tcgen05_commit(ptx::cta_group_1, &shared.empty[state.stage], cluster_mask(kClusterSize));
      state.advance();
    }
    ptx::tcgen05_commit(ptx::cta_group_1, &shared.tmem_full[accum.stage]);
  }
  ptx::bar_warp_sync();
}

// ---- Epilogue: thread t takes column t of the tile from tensor memory to shared memory, a chunk
// of rows at a time; one of them stores each chunk.

template <bool kSingleWave>
KB_DEVICE void epilogue_warps(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                              uint32_t tmem, PipelineState<kAccumulators> accum) {
  const TensorMap* map_c = &groups.table[tile.group].map_c;
  mbarrier_wait_parity(&shared.tmem_full[accum.stage], accum.phase);
  ptx::tcgen05_fence_after_thread_sync();
  for (uint32_t at = 0; at < kColumns; at += kChunk) {
    f16* staging = shared.c[at / kChunk % 2];
    uint32_t values[kChunk];
    ptx::tcgen05_ld_32x32b(values, tmem_lane(tmem, 32 * ptx::warp_index()) + at);
    ptx::tcgen05_wait_ld(values);
    ptx::bar_sync(kStagingBarrier, 32 * kEpilogueWarps);
    store_f16_column(staging + ptx::thread_index(), kTileN, values);
    ptx::fence_proxy_async(ptx::space_shared_cta);  // the TMA reads what this thread has written
    ptx::bar_sync(kStagingBarrier, 32 * kEpilogueWarps);
    if (ptx::warp_index() == 0 && ptx::elect_sync()) {
      ptx::cp_async_bulk_tensor_2d_global_shared(map_c, tile.n_offset, tile.m_offset + at, staging);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read<1>();  // the store before has read the other buffer
    }
    ptx::bar_warp_sync();
  }
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_warp_sync();
  if (ptx::elect_sync()) {
    if constexpr (!kSingleWave) {
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.tmem_empty[accum.stage]);
    }
  }
}

// ---- Kernel

template <bool kSingleWave>
KB_DEVICE void compute_tile(SharedStorage& shared, const Groups& groups,
                            PipelineState<kTileSlots> slot, uint32_t tmem,
                            PipelineState<kAccumulators> accum, PipelineState<kStages>& state) {
  const uint32_t warp = ptx::warp_index();
  const WorkTile tile = take_tile(shared.tiles, slot);
  if (warp == kLoadWarp) {
    load_warp(shared, groups, tile, state);
  } else if (warp == kMmaWarp) {
    mma_warp<kSingleWave>(shared, tile, tmem, accum, state);
  } else {
    epilogue_warps<kSingleWave>(shared, groups, tile, tmem, accum);
  }
  release_tile(shared.tiles, slot);
}

template <bool kSingleWave>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) group_gemm(KB_GRID_CONSTANT(Groups) groups) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t warp = ptx::warp_index();

  if (warp == kMmaWarp) {
    ptx::tcgen05_alloc(ptx::cta_group_1, &shared.tmem, kTmemColumns);
    ptx::tcgen05_relinquish_alloc_permit(ptx::cta_group_1);
  }
  if (ptx::thread_index() == 0) init_barriers(shared);
  ptx::tcgen05_fence_before_thread_sync();
  cluster_sync();
  ptx::tcgen05_fence_after_thread_sync();
  const uint32_t tmem = shared.tmem;

  const uint32_t tiles = groups.table[groups.count - 1].tile_end;
  const uint32_t clusters = ptx::cta_count().x / kClusterSize;
  PipelineState<kStages> state;        // where the load and the MMA thread are in the ring
  PipelineState<kAccumulators> accum;  // the tile's accumulator
  PipelineState<kTileSlots> slot;      // where the tile is found
  for (uint32_t index = ptx::clusterid_x(); index < tiles; index += clusters) {
    if (warp == kSchedulerWarp) {
      scheduler_warp(shared, groups, index, slot);
    } else {
      compute_tile<kSingleWave>(shared, groups, slot, tmem + accum.stage * kTileColumns, accum,
                                state);
    }
    accum.advance();
    slot.advance();
  }

  if (warp == kLoadWarp) drain_cluster_stages(shared, state);
  if (warp == 0 && ptx::elect_sync()) ptx::cp_async_bulk_wait_group_read<0>();
  ptx::tcgen05_fence_before_thread_sync();
  cluster_sync();
  ptx::tcgen05_fence_after_thread_sync();
  if (warp == kMmaWarp) ptx::tcgen05_dealloc(ptx::cta_group_1, tmem, kTmemColumns);
}

}  // namespace kb::step
