// GEMM: an expert's weights times its tokens. One CTA for each expert and 128 outputs: a warp that
// loads and a warpgroup that multiplies, a ring of stages between them. CTAs that share tokens
// follow each other.
//
// The CTA's expert is known before any token has been routed: where nearly every expert will have
// tokens, the first weights are requested while the kernel before is still at work.
//
// The weights are the instruction's A, 64 outputs at a time, and the tokens its B: of the usual few
// tokens of an expert 8 columns are enough, where as A they would be padded to 64. Sums and
// products take few registers, so that four CTAs of an SM have two blocks of weights each on their
// way.
//
// The tensor cores keep about 14 bits while they add, so that they add up one block only; the
// block's sum, times both its scales, goes to float32 sums of its own.
#pragma once

#include "descriptors.cuh"
#include "fp8_tile.cuh"
#include "fp8_wgmma.cuh"
#include "pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/pdl.cuh"
#include "ptx/red.cuh"
#include "ptx/tma.cuh"
#include "wait.cuh"

namespace kb::step::gemm {

// ---- Config

inline constexpr uint32_t kTileM = 32;   // tokens, at most
inline constexpr uint32_t kTileN = 128;  // outputs
inline constexpr uint32_t kTileK = 128;
inline constexpr uint32_t kPartN = 64;  // outputs of an instruction
inline constexpr uint32_t kParts = kTileN / kPartN;
inline constexpr uint32_t kStages = 2;
inline constexpr uint32_t kMmaThreads = 128;
inline constexpr uint32_t kThreads = kMmaThreads + 32;
inline constexpr uint32_t kCtasPerSm = 4;
inline constexpr uint32_t kMmaBarrier = 1;  // named: the warps that multiply
static_assert(kTileK == kFp8Block, "a tile of K has one scale on each side");
static_assert(kTileN == kFp8Block, "a tile's weights share their scale");

// ---- SharedStorage

struct SharedStorage {
  alignas(1024) uint8_t weights[kStages][kTileN * kTileK];  // 128-byte swizzle
  alignas(1024) uint8_t codes[kStages][kTileM * kTileK];    // 128-byte swizzle
  Mbarrier full[kStages];
  Mbarrier empty[kStages];
  uint32_t tokens[kTileM];
};

struct Arguments {
  TensorMap weights;            // of e4m3 [experts * n, k]
  uint32_t* counts;             // [experts]: tokens of each; left at zero
  uint32_t* readers;            // [experts]: CTAs that have read the count, zero; left at zero
  const uint32_t* routes;       // [experts, m]: the first counts[e] of row e are expert e's
  const e4m3* codes;            // [m, k]
  const float* scales;          // [k / 128, m]
  const float* weight_scales;   // [experts, n / 128, k / 128]
  const float* expert_weights;  // [m, topk]
  float* output;                // [m, n], zero
  uint32_t m, n, k, topk;
  bool eager;  // whether nearly every expert will have tokens
};

// ---- Load: one warp.

// Columns of the instruction that take `rows` rows.
KB_DEVICE uint32_t columns_for(uint32_t rows) {
  return rows <= 8 ? 8 : rows <= 16 ? 16 : 32;
}

KB_DEVICE void load_weights(SharedStorage& shared, const Arguments& args, uint32_t stage,
                            uint32_t weight_row, uint32_t block) {
  if (!ptx::elect_sync()) return;
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared.full[stage],
                                 sizeof shared.weights[stage]);
  ptx::cp_async_bulk_tensor_2d_shared_global(shared.weights[stage], &args.weights, block * kTileK,
                                             weight_row, &shared.full[stage]);
}

// The stages that are full of weights before the first tile.
KB_DEVICE uint32_t eager_blocks(const Arguments& args) {
  if (!args.eager) return 0;
  return args.k / kTileK < kStages ? args.k / kTileK : kStages;
}

// Eight lanes copy a row; rows that do not exist become zero.
KB_DEVICE void load_tile(SharedStorage& shared, const Arguments& args,
                         PipelineState<kStages>& state, uint32_t loaded, uint32_t weight_row,
                         const uint32_t* routes, uint32_t rows) {
  constexpr uint32_t kCopyRows = 32 / kRowChunks;
  const uint32_t columns = columns_for(rows);
  const uint32_t lane_row = ptx::lane_index() / kRowChunks;
  const uint32_t chunk = ptx::lane_index() % kRowChunks;
  const e4m3* sources[kTileM / kCopyRows];
#pragma unroll
  for (uint32_t i = 0; i < kTileM / kCopyRows; ++i) {
    const uint32_t row = i * kCopyRows + lane_row;
    const uint32_t token = row < rows ? routes[row] / args.topk : 0;
    sources[i] = args.codes + uint64_t{token} * args.k + chunk * kChunkBytes;
  }
  for (uint32_t block = 0; block < args.k / kTileK; ++block) {
    const uint32_t stage = state.stage;
    if (block >= loaded) {
      mbarrier_wait_parity(&shared.empty[stage], state.phase ^ 1);
      load_weights(shared, args, stage, weight_row, block);
    }
#pragma unroll
    for (uint32_t i = 0; i < kTileM / kCopyRows; ++i) {
      const uint32_t row = i * kCopyRows + lane_row;
      if (row < columns) {
        ptx::cp_async_cg_shared_global_16(shared.codes[stage] + swizzle_128b(row, chunk),
                                          sources[i] + block * kTileK,
                                          row < rows ? kChunkBytes : 0);
      }
    }
    ptx::cp_async_mbarrier_arrive_noinc(&shared.full[stage]);
    state.advance();
  }
}

// For an expert without tokens: no copy may be on its way when the CTA ends.
KB_DEVICE void drain(SharedStorage& shared, uint32_t loaded) {
  for (uint32_t stage = 0; stage < loaded; ++stage) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.full[stage]);
    mbarrier_wait_parity(&shared.full[stage], 0);
  }
}

// ---- MMA: up to kColumns rows. Register v of a thread belongs to output 16 w + t / 4 + 8 (v / 2 %
// 2) of a part, where w is its warp and t its lane, and to row 8 (v / 4) + 2 (t % 4) + v % 2.

template <uint32_t kColumns>
inline constexpr uint32_t kAccumulators = kPartN * kColumns / kMmaThreads;  // registers of a part

// The rows that a thread has sums of are two of each eight.
KB_DEVICE uint32_t row_of(uint32_t i) {
  return 8 * (i / 2) + 2 * (ptx::lane_index() % 4) + i % 2;
}

template <uint32_t kColumns>
KB_DEVICE void multiply_part(float (&sums)[kAccumulators<kColumns>],
                             const float (&scale)[kColumns / 4], uint64_t weights, uint64_t codes) {
  float products[kAccumulators<kColumns>];
  multiply_fp8_block(products, weights, codes);
#pragma unroll
  for (uint32_t v = 0; v < kAccumulators<kColumns>; ++v) {
    sums[v] += products[v] * scale[2 * (v / 4) + v % 2];
  }
}

// ---- Scatter: a row's sums, where they are.

template <uint32_t kColumns>
KB_DEVICE void scatter_row(const float (&sums)[kParts][kAccumulators<kColumns>], uint32_t i,
                           const Arguments& args, uint32_t n_offset, uint32_t route) {
  const float weight = args.expert_weights[route];
  float* output = args.output + uint64_t{route / args.topk} * args.n + n_offset +
                  16 * ptx::warp_index() + ptx::lane_index() / 4;
#pragma unroll
  for (uint32_t part = 0; part < kParts; ++part) {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      ptx::red_relaxed_gpu_global_add_f32(output + part * kPartN + 8 * half,
                                          sums[part][4 * (i / 2) + 2 * half + i % 2] * weight);
    }
  }
}

// ---- Tile

template <uint32_t kColumns>
KB_DEVICE void multiply_tile(SharedStorage& shared, const Arguments& args,
                             PipelineState<kStages>& state, uint32_t weight_row, uint32_t n_offset,
                             const uint32_t* routes, uint32_t rows) {
  constexpr uint32_t kRows = kColumns / 4;  // that a thread has sums of
  const uint32_t blocks = args.k / kFp8Block;
  const float* weight_scales = args.weight_scales + uint64_t{weight_row / kFp8Block} * blocks;
  if (ptx::thread_index() < rows) {
    shared.tokens[ptx::thread_index()] = routes[ptx::thread_index()] / args.topk;
  }
  ptx::bar_sync(kMmaBarrier, kMmaThreads);

  float sums[kParts][kAccumulators<kColumns>] = {};
  for (uint32_t block = 0; block < blocks; ++block) {
    // Before the copies are waited for.
    const float* scales = args.scales + uint64_t{block} * args.m;
    float scale[kRows];
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      scale[i] = row_of(i) < rows ? scales[shared.tokens[row_of(i)]] * weight_scales[block] : 0;
    }
    mbarrier_wait_parity(&shared.full[state.stage], state.phase);
    ptx::fence_proxy_async(ptx::space_shared_cta);  // of the codes; weights need none
    const uint64_t codes =
        wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.codes[state.stage]));
#pragma unroll
    for (uint32_t part = 0; part < kParts; ++part) {
      const uint8_t* weights = shared.weights[state.stage] + part * kPartN * kTileK;
      multiply_part<kColumns>(sums[part], scale,
                              wgmma_smem_descriptor(kTileSw128, ptx::smem_address(weights)), codes);
    }
    if (ptx::lane_index() == 0) {
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.empty[state.stage]);
    }
    state.advance();
  }
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    if (row_of(i) < rows) scatter_row<kColumns>(sums, i, args, n_offset, routes[row_of(i)]);
  }
  ptx::bar_sync(kMmaBarrier, kMmaThreads);  // tokens are read by all, before the next tile's come
}

// ---- Kernel

// One thread, once all have read the count: the last CTA of the expert sets it to zero for the next
// call.
KB_DEVICE void release_count(const Arguments& args, uint32_t expert) {
  ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
  const uint32_t before = ptx::atom_relaxed_gpu_global_add_u32(&args.readers[expert], 1);
  if (before + 1 != ptx::cta_count().x) return;
  args.counts[expert] = 0;
  args.readers[expert] = 0;
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, kCtasPerSm)
    multiply_experts(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t expert = ptx::cta_index().y;
  const uint32_t n_offset = ptx::cta_index().x * kTileN;
  const uint32_t weight_row = expert * args.n + n_offset;
  if (ptx::thread_index() == 0) {
    for (Mbarrier& bar : shared.full) ptx::mbarrier_init(&bar, 1 + 32);
    for (Mbarrier& bar : shared.empty) ptx::mbarrier_init(&bar, kMmaThreads / 32);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
  const bool loads = ptx::warp_index() == kMmaThreads / 32;
  uint32_t loaded = eager_blocks(args);
  if (loads) {
    for (uint32_t block = 0; block < loaded; ++block) {
      load_weights(shared, args, block, weight_row, block);
    }
  }

  ptx::griddepcontrol_wait();
  const uint32_t count = args.counts[expert];
  ptx::bar_sync();
  if (ptx::thread_index() == 0) release_count(args, expert);
  if (count == 0 && loads) drain(shared, loaded);
  PipelineState<kStages> state;
  const uint32_t* routes = args.routes + uint64_t{expert} * args.m;
  for (uint32_t row = 0; row < count; row += kTileM) {
    const uint32_t rows = count - row < kTileM ? count - row : kTileM;
    if (loads) {
      load_tile(shared, args, state, loaded, weight_row, routes + row, rows);
      loaded = 0;
      continue;
    }
    switch (columns_for(rows)) {
      case 8:
        multiply_tile<8>(shared, args, state, weight_row, n_offset, routes + row, rows);
        break;
      case 16:
        multiply_tile<16>(shared, args, state, weight_row, n_offset, routes + row, rows);
        break;
      default:
        multiply_tile<32>(shared, args, state, weight_row, n_offset, routes + row, rows);
    }
  }
}

}  // namespace kb::step::gemm
