// GEMM: an expert's weights times its sorted rows. One CTA for each expert and 128 outputs: a warp
// that loads and a warpgroup that multiplies, a ring of stages between them. CTAs that share rows
// follow each other.
//
// The weights are the instruction's A, 64 outputs at a time, and the rows its B: of the usual few
// rows of an expert 8 columns are enough, where as A they would be padded to 64. Sums and products
// take few registers, so that three CTAs of an SM have three blocks of weights each on their way.
//
// The tensor cores keep about 14 bits while they add, so that they add up one block only; the
// block's sum, times both its scales, goes to float32 sums of its own.
#pragma once

#include "descriptors.cuh"
#include "fp8_tile.cuh"
#include "fp8_wgmma.cuh"
#include "pipeline.cuh"
#include "ptx/fence.cuh"
#include "ptx/red.cuh"
#include "ptx/tma.cuh"
#include "wait.cuh"

namespace kb::step::gemm {

// ---- Config

inline constexpr uint32_t kTileM = 64;   // rows, at most
inline constexpr uint32_t kTileN = 128;  // outputs
inline constexpr uint32_t kTileK = 128;
inline constexpr uint32_t kBoxM = 8;    // rows of a copy
inline constexpr uint32_t kPartN = 64;  // outputs of an instruction
inline constexpr uint32_t kParts = kTileN / kPartN;
inline constexpr uint32_t kStages = 3;
inline constexpr uint32_t kMmaThreads = 128;
inline constexpr uint32_t kThreads = kMmaThreads + 32;
inline constexpr uint32_t kCtasPerSm = 3;
static_assert(kTileK == kFp8Block, "a tile of K has one scale on each side");
static_assert(kTileN == kFp8Block, "a tile's weights share their scale");

// ---- SharedStorage

struct SharedStorage {
  alignas(1024) uint8_t weights[kStages][kTileN * kTileK];  // 128-byte swizzle
  alignas(1024) uint8_t codes[kStages][kTileM * kTileK];    // 128-byte swizzle
  Mbarrier full[kStages];
  Mbarrier empty[kStages];
};

struct Arguments {
  TensorMap weights;            // of e4m3 [experts * n, k]
  TensorMap codes;              // of e4m3 [rows, k], sorted by expert
  const uint32_t* offsets;      // [experts + 1]
  const float* scales;          // [k / 128, rows]
  const float* weight_scales;   // [experts, n / 128, k / 128]
  const uint32_t* routes;       // [rows]
  const float* expert_weights;  // [m, topk]
  float* output;                // [m, n], zero
  uint32_t rows, n, k, topk;
};

// ---- Load: one thread. Rows are copied eight at a time; the last ones may be the next expert's,
// whose products nobody uses.

KB_DEVICE void load_tile(SharedStorage& shared, const Arguments& args,
                         PipelineState<kStages>& state, uint32_t weight_row, uint32_t first_row,
                         uint32_t rows) {
  for (uint32_t block = 0; block < args.k / kTileK; ++block) {
    const uint32_t stage = state.stage;
    Mbarrier* full = &shared.full[stage];
    mbarrier_wait_parity(&shared.empty[stage], state.phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(
        ptx::sem_release, ptx::scope_cta, full,
        sizeof shared.weights[stage] + ceil_div(rows, kBoxM) * kBoxM * kTileK);
    ptx::cp_async_bulk_tensor_2d_shared_global(shared.weights[stage], &args.weights, block * kTileK,
                                               weight_row, full);
    for (uint32_t row = 0; row < rows; row += kBoxM) {
      ptx::cp_async_bulk_tensor_2d_shared_global(shared.codes[stage] + row * kTileK, &args.codes,
                                                 block * kTileK, first_row + row, full);
    }
    state.advance();
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
                           const Arguments& args, uint32_t n_offset, uint32_t sorted_row) {
  const uint32_t route = args.routes[sorted_row];
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
                             uint32_t first_row, uint32_t rows) {
  constexpr uint32_t kRows = kColumns / 4;  // that a thread has sums of
  const uint32_t blocks = args.k / kFp8Block;
  const float* weight_scales = args.weight_scales + uint64_t{weight_row / kFp8Block} * blocks;
  float sums[kParts][kAccumulators<kColumns>] = {};
  for (uint32_t block = 0; block < blocks; ++block) {
    // Before the copies are waited for.
    const float* scales = args.scales + uint64_t{block} * args.rows + first_row;
    float scale[kRows];
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      scale[i] = row_of(i) < rows ? scales[row_of(i)] * weight_scales[block] : 0;
    }
    mbarrier_wait_parity(&shared.full[state.stage], state.phase);
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
    if (row_of(i) < rows) {
      scatter_row<kColumns>(sums, i, args, n_offset, first_row + row_of(i));
    }
  }
}

// ---- Kernel

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, kCtasPerSm)
    multiply_experts(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t expert = ptx::cta_index().y;
  const uint32_t n_offset = ptx::cta_index().x * kTileN;
  const uint32_t weight_row = expert * args.n + n_offset;
  const uint32_t end = args.offsets[expert + 1];
  uint32_t row = args.offsets[expert];
  if (row == end) return;

  if (ptx::thread_index() == 0) {
    for (Mbarrier& bar : shared.full) ptx::mbarrier_init(&bar, 1);
    for (Mbarrier& bar : shared.empty) ptx::mbarrier_init(&bar, kMmaThreads / 32);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
  PipelineState<kStages> state;
  const bool loads = ptx::warp_index() == kMmaThreads / 32;
  if (loads && !ptx::elect_sync()) return;
  for (; row < end; row += kTileM) {
    const uint32_t rows = end - row < kTileM ? end - row : kTileM;
    if (loads) {
      load_tile(shared, args, state, weight_row, row, rows);
    } else if (rows <= 8) {
      multiply_tile<8>(shared, args, state, weight_row, n_offset, row, rows);
    } else if (rows <= 16) {
      multiply_tile<16>(shared, args, state, weight_row, n_offset, row, rows);
    } else if (rows <= 32) {
      multiply_tile<32>(shared, args, state, weight_row, n_offset, row, rows);
    } else {
      multiply_tile<64>(shared, args, state, weight_row, n_offset, row, rows);
    }
  }
}

}  // namespace kb::step::gemm
