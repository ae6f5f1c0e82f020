// NVFP4 group GEMM: C[m, n] = (A[m, k] * SFA) (B[n, k] * SFB)^T for every group, fp16 C.
//
// Idea: groups may differ in N and K.
// Bottleneck removed: none; the steps before took one N and one K for all groups. But maps are now
// patched by a warp that is ahead of those that wait for them.
// What changes: a scheduler warp finds tiles for all others. Where the group changes it points the
// next set of maps to the matrices' addresses, extents and pitches; a tile says which is its set:
//
//   load warp --full[s]--> MMA warp --tmem_full[a]--> epilogue warps
//        ^                    |  ^                         |
//        +-----empty[s]-------+  +------tmem_empty[a]------+
//
//   barrier    its phase is complete after                               who waits
//   full[s]    1 arrival of the load thread and kStageBytes of copies    MMA thread
//   empty[s]   1 commit: what read the stage is done                     load thread
//   tmem_full  1 commit: the tile is accumulated                         128 epilogue threads
//   tmem_empty 1 arrival of each epilogue warp: accumulators read        MMA thread
//   tiles      in tile_queue.cuh                                         every warp
//   CTA        kThreads: barriers initialized, tensor memory allocated   everyone
//   CTA        kThreads: accumulators read, stages empty                 everyone
//   staging    the epilogue's 128 threads, twice a chunk: a buffer is free, a buffer is filled
#pragma once

#include "accumulators.cuh"
#include "block_scaled_mma.cuh"
#include "descriptors.cuh"
#include "epilogue.cuh"
#include "group_gemm.cuh"
#include "group_maps.cuh"
#include "group_tiles.cuh"
#include "nvfp4.cuh"
#include "pipeline.cuh"
#include "ptx/fence.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "ring_drain.cuh"
#include "scaled_stage.cuh"
#include "stage_ring.cuh"
#include "tile_queue.cuh"
#include "tmem.cuh"
#include "wait.cuh"

namespace kb::step {

// ---- Config

inline constexpr uint32_t kTileM = 128;
inline constexpr uint32_t kTileN = 128;
inline constexpr uint32_t kTileK = 256;  // e2m1 elements
inline constexpr uint32_t kStages = 5;
inline constexpr uint32_t kAccumulators = 2;
inline constexpr uint32_t kTileSlots = 5;  // tiles that are resolved ahead
inline constexpr uint32_t kMapSets = kTileSlots + 1;
inline constexpr uint32_t kChunk = 32;  // rows that a store of C takes

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
  GroupMaps* maps;
  bool new_group;  // the CTA's last tile was in another
};

struct SharedStorage {
  Stage stages[kStages];
  alignas(128) f16 c[2][kChunk * kLanes];  // [kChunk, kTileN] each, as the TMA stores it
  GroupMaps maps;                          // as last published
  Mbarrier full[kStages];
  Mbarrier empty[kStages];
  Mbarrier tmem_full[kAccumulators];
  Mbarrier tmem_empty[kAccumulators];
  TileQueue<WorkTile, kTileSlots> tiles;
  uint32_t tmem;  // address of what was allocated
};
static_assert(sizeof(SharedStorage) <= 232448, "what a CTA can have");

struct Group {
  const void* a;
  const void* b;
  const void* c;
  const uint8_t* sfa;
  const uint8_t* sfb;
  uint32_t m, n, k;
  uint32_t tile_end;  // tiles of the groups up to and with this one
};

// The call's groups, as the kernel's argument.
struct Groups {
  GroupMaps templates;  // addresses, extents and pitches are yet to be set
  GroupMaps* maps;      // [CTAs, kMapSets]: what the TMA reads
  Group table[kMaxGroups];
  uint32_t count;
};

// Where the scheduler has last published maps.
struct MapRing {
  uint32_t group;
  uint32_t slot;
};

KB_DEVICE WorkTile find_work(const Groups& groups, uint32_t index, MapRing& ring) {
  const auto tile_end = [&](uint32_t group) { return groups.table[group].tile_end; };
  const GroupTile found = find_group_tile(tile_end, index);
  const Group& group = groups.table[found.group];
  WorkTile tile{.group = found.group};
  tile.new_group = tile.group != ring.group;
  if (tile.new_group) ring = {tile.group, (ring.slot + 1) % kMapSets};
  tile.maps = &groups.maps[ptx::cta_index().x * kMapSets + ring.slot];
  tile.n = group.n;
  tile.k = group.k;
  const uint32_t row_tiles = ceil_div(tile.n, kTileN);
  tile.m_offset = found.index / row_tiles * kTileM;
  tile.n_offset = found.index % row_tiles * kTileN;
  tile.sfa = group.sfa + scale_atom_offset(tile.m_offset, 0, tile.k);
  tile.sfb = group.sfb + scale_atom_offset(tile.n_offset, 0, tile.k);
  return tile;
}

KB_DEVICE void init_barriers(SharedStorage& shared) {
  init_stages(shared, 1);
  for (uint32_t a = 0; a < kAccumulators; ++a) {
    ptx::mbarrier_init(&shared.tmem_full[a], 1);
    ptx::mbarrier_init(&shared.tmem_empty[a], kEpilogueWarps);
  }
  init_tile_queue(shared.tiles, kEpilogueWarps + 2);
  ptx::fence_mbarrier_init_release_cluster();  // the MMA's commits arrive at cluster scope
}

// ---- Scheduler: the warp finds tiles ahead of the others and keeps their maps.

KB_DEVICE void scheduler_warp(SharedStorage& shared, const Groups& groups, uint32_t index,
                              PipelineState<kTileSlots> slot, MapRing& ring) {
  // The next set of maps is free as well: a tile after the last that used it has been handed back,
  // so that all loads with it are complete and all stores with it have been read.
  reserve_slot(shared.tiles, slot);
  const WorkTile tile = find_work(groups, index, ring);
  if (tile.new_group) {
    const Group& group = groups.table[tile.group];
    if (ptx::elect_sync()) {
      const uint32_t pitch = e2m1_bytes(group.k);
      replace_matrix(&shared.maps.a, group.a, group.m, pitch, pitch);
      replace_matrix(&shared.maps.b, group.b, group.n, pitch, pitch);
      replace_matrix(&shared.maps.c, group.c, group.m, group.n, group.n * sizeof(f16));
    }
    publish_maps(tile.maps, shared.maps);
  }
  publish_tile(shared.tiles, slot, tile);
}

// ---- Load: one thread fills stages in order.

KB_DEVICE void load_warp(SharedStorage& shared, const WorkTile& tile,
                         PipelineState<kStages>& state) {
  if (ptx::elect_sync()) {
    const TensorMap* map_a = &tile.maps->a;
    const TensorMap* map_b = &tile.maps->b;
    if (tile.new_group) {
      ptx::fence_proxy_tensormap_generic_acquire_gpu(map_a);
      ptx::fence_proxy_tensormap_generic_acquire_gpu(map_b);
    }
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      Stage& stage = shared.stages[state.stage];
      Mbarrier* full = &shared.full[state.stage];
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full, kStageBytes);
      ptx::cp_async_bulk_tensor_2d_shared_global(stage.a, map_a, e2m1_bytes(k), tile.m_offset,
                                                 full);
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

KB_DEVICE void mma_warp(SharedStorage& shared, const WorkTile& tile, uint32_t tmem,
                        PipelineState<kAccumulators> accum, PipelineState<kStages>& state) {
  const uint32_t tmem_sfa = tmem + kColumns;
  const uint32_t tmem_sfb = tmem_sfa + kScaleColumns;
  // An atom holds scales of 128 rows or columns of C; the tile's start here.
  const uint32_t tile_sfa = tmem_sfa + scale_atom_column(tile.m_offset);
  const uint32_t tile_sfb = tmem_sfb + scale_atom_column(tile.n_offset);
  if (ptx::elect_sync()) {
    mbarrier_wait_parity(&shared.tmem_empty[accum.stage], accum.phase ^ 1);
    for (uint32_t k = 0; k < tile.k; k += kTileK) {
      mbarrier_wait_parity(&shared.full[state.stage], state.phase);
      ptx::tcgen05_fence_after_thread_sync();
      const StageDescriptors stage = describe_stage<kTileK>(shared.stages[state.stage]);
      copy_scales<kTileK>(ptx::cta_group_1, stage, tmem_sfa, tmem_sfb);
      multiply_stage<kTileK>(ptx::cta_group_1, kInstruction, tmem, {stage.b, tile_sfb},
                             {stage.a, tile_sfa}, k != 0);
      ptx::tcgen05_commit(ptx::cta_group_1, &shared.empty[state.stage]);
      state.advance();
    }
    ptx::tcgen05_commit(ptx::cta_group_1, &shared.tmem_full[accum.stage]);
  }
  ptx::bar_warp_sync();
}

// ---- Epilogue: thread t takes column t of the tile from tensor memory to shared memory, a chunk
// of rows at a time; one of them stores each chunk.

KB_DEVICE void epilogue_warps(SharedStorage& shared, const WorkTile& tile, uint32_t tmem,
                              PipelineState<kAccumulators> accum) {
  const TensorMap* map_c = &tile.maps->c;
  if (tile.new_group) ptx::fence_proxy_tensormap_generic_acquire_gpu(map_c);
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
  release_accumulators(&shared.tmem_empty[accum.stage]);
}

// ---- Kernel

KB_DEVICE void compute_tile(SharedStorage& shared, PipelineState<kTileSlots> slot, uint32_t tmem,
                            PipelineState<kAccumulators> accum, PipelineState<kStages>& state) {
  const uint32_t warp = ptx::warp_index();
  const WorkTile tile = take_tile(shared.tiles, slot);
  if (warp == kLoadWarp) {
    load_warp(shared, tile, state);
  } else if (warp == kMmaWarp) {
    mma_warp(shared, tile, tmem, accum, state);
  } else {
    epilogue_warps(shared, tile, tmem, accum);
  }
  release_tile(shared.tiles, slot);
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) group_gemm(KB_GRID_CONSTANT(Groups) groups) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t warp = ptx::warp_index();

  if (warp == kMmaWarp) {
    ptx::tcgen05_alloc(ptx::cta_group_1, &shared.tmem, kTmemColumns);
    ptx::tcgen05_relinquish_alloc_permit(ptx::cta_group_1);
  }
  if (ptx::thread_index() == 0) init_barriers(shared);
  if (warp == kSchedulerWarp && ptx::elect_sync()) shared.maps = groups.templates;
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();
  const uint32_t tmem = shared.tmem;

  const uint32_t tiles = groups.table[groups.count - 1].tile_end;
  MapRing ring{.group = groups.count};  // none
  PipelineState<kStages> state;         // where the load and the MMA thread are in the ring
  PipelineState<kAccumulators> accum;   // the tile's accumulator
  PipelineState<kTileSlots> slot;       // where the tile is found
  for (uint32_t index = ptx::cta_index().x; index < tiles; index += ptx::cta_count().x) {
    if (warp == kSchedulerWarp) {
      scheduler_warp(shared, groups, index, slot, ring);
    } else {
      compute_tile(shared, slot, tmem + accum.stage * kTileColumns, accum, state);
    }
    accum.advance();
    slot.advance();
  }

  if (warp == kLoadWarp) drain_stages(shared, state);
  if (warp == 0 && ptx::elect_sync()) ptx::cp_async_bulk_wait_group_read<0>();
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();
  if (warp == kMmaWarp) ptx::tcgen05_dealloc(ptx::cta_group_1, tmem, kTmemColumns);
}

}  // namespace kb::step
