// NVFP4 group GEMM: C[m, n] = (A[m, k] * SFA) (B[n, k] * SFB)^T for every group, fp16 C.
//
// Fails: the load thread goes on in the ring from shard to shard, the MMA thread starts again.
// Idea: more tiles than SMs also where C is small.
// Bottleneck removed: SMs without a tile, on small shapes.
// What changes: K is cut into four shards, each a tile of its own; the epilogue adds to fp32 sums
// in device memory, and a second kernel rounds them. Four accumulators, narrow tiles, 15 stages:
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
//   CTA        kThreads: barriers initialized, tensor memory allocated   everyone
//   CTA        kThreads: accumulators read, stages empty                 everyone
#pragma once

#include "accumulators.cuh"
#include "block_scaled_mma.cuh"
#include "descriptors.cuh"
#include "epilogue.cuh"
#include "group_gemm.cuh"
#include "group_tiles.cuh"
#include "nvfp4.cuh"
#include "operand_maps_in_use.cuh"
#include "pipeline.cuh"
#include "ptx/fence.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warp.cuh"
#include "ring_drain.cuh"
#include "scaled_stage.cuh"
#include "stage_load.cuh"
#include "stage_ring.cuh"
#include "tmem.cuh"
#include "wait.cuh"

namespace kb::step {

// ---- Config

inline constexpr uint32_t kTileM = 128;
inline constexpr uint32_t kTileN = 64;
inline constexpr uint32_t kTileK = 64;  // e2m1 elements
inline constexpr uint32_t kStages = 15;
inline constexpr uint32_t kAccumulators = 4;
inline constexpr uint32_t kSplits = 4;   // shards of K, each a work tile of its own
inline constexpr uint32_t kChunkN = 32;  // columns that a thread takes at once

inline constexpr uint32_t kEpilogueWarps = 4;  // warps 0 … 3: each reaches 32 lanes of TMEM
inline constexpr uint32_t kLoadWarp = 4;
inline constexpr uint32_t kMmaWarp = 5;
inline constexpr uint32_t kThreads = 32 * (kEpilogueWarps + 2);
inline constexpr uint32_t kRoundThreads = 128;

inline constexpr Mxf4nvf4Instruction kInstruction{.m = kTileM, .n = kTileN};
static_assert(kInstruction.valid(1), "the tensor core has no instruction for this tile");
static_assert(e2m1_bytes(kTileK) == 32, "a row of a tile fills one period of the swizzle");
static_assert(kTileM == kScaleAtomRows, "a tile's rows have one row of atoms");
static_assert(kScaleAtomRows % kTileN == 0 && kTileN % 32 == 0,
              "a tile's columns lie in one row of atoms, from a whole column of tensor memory on");
static_assert(kTileM == 32 * kEpilogueWarps, "one epilogue thread for each row");
static_assert(kTileN % kChunkN == 0 && kChunkN % 4 == 0, "chunks of whole 16-byte additions");

// Tensor memory that the scales of one tile of K fill: kTileK / kScaleAtomK atoms.
inline constexpr uint32_t kScaleColumns = kTileK / kScaleAtomK * kScaleAtomColumns;

// Tensor memory of a tile: accumulators [kTileM lanes, kTileN columns], scales of A, scales of B.
inline constexpr uint32_t kTileColumns = kTileN + 2 * kScaleColumns;
inline constexpr uint32_t kTmemColumns = tmem_allocation(kAccumulators * kTileColumns);
static_assert(kTmemColumns <= kTmemMaxColumns, "accumulators and scales fit");

// ---- SharedStorage

using Stage = ScaledStage<kTileM, kTileN, kTileK>;
inline constexpr uint32_t kStageBytes = Stage::kBytes;

struct SharedStorage {
  Stage stages[kStages];
  TensorMap map_a;  // as last published
  TensorMap map_b;
  Mbarrier full[kStages];
  Mbarrier empty[kStages];
  Mbarrier tmem_full[kAccumulators];
  Mbarrier tmem_empty[kAccumulators];
  uint32_t tmem;  // address of what was allocated
};
static_assert(sizeof(SharedStorage) <= 232448, "what a CTA can have");

struct Group {
  const void* a;
  const void* b;
  f16* c;
  const uint8_t* sfa;
  const uint8_t* sfb;
  uint32_t m;
  uint32_t row_end;   // rows of the groups up to and with this one
  uint32_t tile_end;  // tiles of the same, each shard of K counted
};

struct CtaMaps {
  TensorMap a, b;
};

// The call's groups, as the kernel's argument.
struct Groups {
  TensorMap map_a;  // templates: the address and A's number of rows are yet to be set
  TensorMap map_b;
  CtaMaps* maps;  // [CTAs], in device memory: what the TMA reads
  float* sums;    // [rows of all groups, n], in device memory
  Group table[kMaxGroups];
  uint32_t count;
  uint32_t n, k;  // of every group
};

// A shard of K of a tile of C, and the extents of its group.
struct WorkTile {
  uint32_t group;
  uint32_t m_offset, n_offset;
  uint32_t k_begin, k_end;
  uint32_t n, k;
  bool new_group;  // the CTA's last tile was in another
};

KB_DEVICE WorkTile find_work(const Groups& groups, uint32_t index, uint32_t last_group) {
  const auto tile_end = [&](uint32_t group) { return groups.table[group].tile_end; };
  const GroupTile found = find_group_tile(tile_end, index);
  WorkTile tile{.group = found.group};
  tile.new_group = tile.group != last_group;
  tile.n = groups.n;
  tile.k = groups.k;
  const uint32_t row_tiles = ceil_div(tile.n, kTileN);
  const uint32_t shard_k = tile.k / kSplits;
  tile.m_offset = found.index / kSplits / row_tiles * kTileM;
  tile.n_offset = found.index / kSplits % row_tiles * kTileN;
  tile.k_begin = found.index % kSplits * shard_k;
  tile.k_end = tile.k_begin + shard_k;
  return tile;
}

KB_DEVICE void init_barriers(SharedStorage& shared) {
  init_stages(shared, 1);
  for (uint32_t a = 0; a < kAccumulators; ++a) {
    ptx::mbarrier_init(&shared.tmem_full[a], 1);
    ptx::mbarrier_init(&shared.tmem_empty[a], kEpilogueWarps);
  }
  ptx::fence_mbarrier_init_release_cluster();  // the MMA's commits arrive at cluster scope
}

// ---- Load: one thread fills stages in order; the warp keeps the maps of A and B.

KB_DEVICE void load_warp(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                         PipelineState<kStages>& state) {
  if (ptx::elect_sync()) {
    const TensorMap* map_a = &groups.maps[ptx::cta_index().x].a;
    const TensorMap* map_b = &groups.maps[ptx::cta_index().x].b;
    const uint8_t* sfa = groups.table[tile.group].sfa;
    const uint8_t* sfb = groups.table[tile.group].sfb;
    for (uint32_t k = tile.k_begin; k < tile.k_end; k += kTileK) {
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      load_stage(shared.stages[state.stage], &shared.full[state.stage], kStageBytes, map_a, map_b,
                 sfa, sfb, tile, k);
      state.advance();
    }
  }
  ptx::bar_warp_sync();
}

// ---- MMA: one thread copies scales to tensor memory and multiplies.

KB_DEVICE void mma_warp(SharedStorage& shared, const WorkTile& tile, uint32_t tmem,
                        PipelineState<kAccumulators> accum) {
  const uint32_t tmem_sfa = tmem + kTileN;
  const uint32_t tmem_sfb = tmem_sfa + kScaleColumns;
  // The atom holds scales of 128 columns of C; the tile's start here.
  const uint32_t tile_sfb = tmem_sfb + scale_atom_column(tile.n_offset);
  if (ptx::elect_sync()) {
    mbarrier_wait_parity(&shared.tmem_empty[accum.stage], accum.phase ^ 1);
    PipelineState<kStages> state;  // the first block of a shard is in the first stage
    for (uint32_t k = tile.k_begin; k < tile.k_end; k += kTileK) {
      mbarrier_wait_parity(&shared.full[state.stage], state.phase);
      ptx::tcgen05_fence_after_thread_sync();
      const StageDescriptors stage = describe_stage<kTileK>(shared.stages[state.stage]);
      copy_scales<kTileK>(ptx::cta_group_1, stage, tmem_sfa, tmem_sfb);
      multiply_stage<kTileK>(ptx::cta_group_1, kInstruction, tmem, {stage.a, tmem_sfa},
                             {stage.b, tile_sfb}, k != tile.k_begin);
      ptx::tcgen05_commit(ptx::cta_group_1, &shared.empty[state.stage]);
      state.advance();
    }
    ptx::tcgen05_commit(ptx::cta_group_1, &shared.tmem_full[accum.stage]);
  }
  ptx::bar_warp_sync();
}

// ---- Epilogue: thread t adds row t of the tile to the sums in device memory.

KB_DEVICE void epilogue_warps(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                              uint32_t tmem, PipelineState<kAccumulators> accum) {
  mbarrier_wait_parity(&shared.tmem_full[accum.stage], accum.phase);
  ptx::tcgen05_fence_after_thread_sync();
  const Group& group = groups.table[tile.group];
  const uint32_t row = tile.m_offset + ptx::thread_index();
  float* sums = groups.sums + (group.row_end - group.m + uint64_t{row}) * tile.n + tile.n_offset;
  for (uint32_t column = 0; column < kTileN; column += kChunkN) {
    uint32_t values[kChunkN];
    ptx::tcgen05_ld_32x32b(values, tmem_lane(tmem, 32 * ptx::warp_index()) + column);
    ptx::tcgen05_wait_ld(values);
    for (uint32_t i = 0; i < kChunkN; i += 4) {
      if (row < group.m && tile.n_offset + column + i < tile.n) {
        add_f32x4(sums + column + i, values, i);
      }
    }
  }
  release_accumulators(&shared.tmem_empty[accum.stage]);
}

// ---- Kernel

KB_DEVICE void compute_tile(SharedStorage& shared, const Groups& groups, const WorkTile& tile,
                            uint32_t tmem, PipelineState<kAccumulators> accum,
                            PipelineState<kStages>& state) {
  const uint32_t warp = ptx::warp_index();
  if (warp == kLoadWarp) {
    load_warp(shared, groups, tile, state);
  } else if (warp == kMmaWarp) {
    mma_warp(shared, tile, tmem, accum);
  } else {
    epilogue_warps(shared, groups, tile, tmem, accum);
  }
}

// C from the sums: a CTA for each row of each group.
KB_GLOBAL void KB_LAUNCH_BOUNDS(kRoundThreads, 1) round_sums(KB_GRID_CONSTANT(Groups) groups) {
  const auto row_end = [&](uint32_t group) { return groups.table[group].row_end; };
  const GroupTile found = find_group_tile(row_end, ptx::cta_index().x);
  const float* sums = groups.sums + uint64_t{ptx::cta_index().x} * groups.n;
  f16* c = groups.table[found.group].c + uint64_t{found.index} * groups.n;
  for (uint32_t column = 8 * ptx::thread_index(); column < groups.n; column += 8 * kRoundThreads) {
    uint32_t values[8];
    for (uint32_t i = 0; i < 8; ++i) values[i] = __builtin_bit_cast(uint32_t, sums[column + i]);
    *reinterpret_cast<F16x8*>(c + column) = round_to_f16x8(values, 0);
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
  if (warp == kLoadWarp && ptx::elect_sync()) {
    shared.map_a = groups.map_a;
    shared.map_b = groups.map_b;
  }
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();
  const uint32_t tmem = shared.tmem;

  const uint32_t tiles = groups.table[groups.count - 1].tile_end;
  uint32_t last_group = groups.count;  // none
  PipelineState<kStages> state;        // where the load thread is in the ring
  PipelineState<kAccumulators> accum;  // the tile's accumulator
  for (uint32_t index = ptx::cta_index().x; index < tiles; index += ptx::cta_count().x) {
    const WorkTile tile = find_work(groups, index, last_group);
    if (tile.new_group && warp == kLoadWarp) patch_maps_after_loads(shared, groups, tile);
    compute_tile(shared, groups, tile, tmem + accum.stage * kTileColumns, accum, state);
    accum.advance();
    last_group = tile.group;
  }

  if (warp == kLoadWarp) drain_stages(shared, state);
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();
  if (warp == kMmaWarp) ptx::tcgen05_dealloc(ptx::cta_group_1, tmem, kTmemColumns);
}

}  // namespace kb::step
