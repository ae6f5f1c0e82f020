// GEMM: an expert's sorted rows times its weights. One CTA, a warpgroup, for each expert and 128
// columns; it walks over the expert's rows 64 at a time and over K one block at a time, each
// loaded, multiplied and added before the next is loaded. CTAs that share rows follow each other.
//
// The tensor cores keep about 14 bits while they add, so that they add up one block only; the
// block's sum, times both its scales, goes to float32 sums of its own.
#pragma once

#include "descriptors.cuh"
#include "fp8_tile.cuh"
#include "fp8_wgmma.cuh"
#include "ptx/fence.cuh"
#include "ptx/tma.cuh"
#include "scatter_row.cuh"
#include "wait.cuh"

namespace kb::step::gemm {

// ---- Config

inline constexpr uint32_t kTileM = 64;
inline constexpr uint32_t kTileN = 128;
inline constexpr uint32_t kTileK = 128;
inline constexpr uint32_t kThreads = 128;
inline constexpr uint32_t kAccumulators = kTileM * kTileN / kThreads;  // registers of a thread
static_assert(kTileK == kFp8Block, "a tile of K has one scale on each side");
static_assert(kTileN == kFp8Block, "a tile's weights share their scale");

// ---- SharedStorage

struct SharedStorage {
  alignas(1024) uint8_t a[kTileM * kTileK];  // 128-byte swizzle
  alignas(1024) uint8_t b[kTileN * kTileK];  // 128-byte swizzle
  Mbarrier b_full;
};

struct Arguments {
  TensorMap weights;            // of e4m3 [experts * n, k]
  const uint32_t* offsets;      // [experts + 1]
  const e4m3* codes;            // [rows, k], sorted by expert
  const float* scales;          // [k / 128, rows]
  const float* weight_scales;   // [experts, n / 128, k / 128]
  const uint32_t* routes;       // [rows]
  const float* expert_weights;  // [m, topk]
  float* output;                // [m, n], zero
  uint32_t rows, n, k, topk;
};

// ---- Load: one block of K. The weights first: their copy is the longest, and another unit's.

KB_DEVICE void load_block(SharedStorage& shared, const Arguments& args, uint32_t weight_row,
                          uint32_t block, const e4m3* a, uint32_t rows) {
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared.b_full,
                                   sizeof shared.b);
    ptx::cp_async_bulk_tensor_2d_shared_global(shared.b, &args.weights, block * kTileK, weight_row,
                                               &shared.b_full);
  }
  copy_fp8_tile_async<kTileM, kThreads>(shared.a, a + block * kTileK, args.k, rows);
  ptx::cp_async_commit_group();
}

// ---- MMA: one block of K, to `products`.

KB_DEVICE void multiply_block(SharedStorage& shared, float (&products)[kAccumulators],
                              uint32_t phase) {
  ptx::cp_async_wait_group<0>();
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();
  mbarrier_wait_parity(&shared.b_full, phase);

  const uint64_t tile_a = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.a));
  const uint64_t tile_b = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.b));
  multiply_fp8_block(products, tile_a, tile_b);
  ptx::bar_sync();  // read by every warp, before the next block is copied
}

// ---- Tile

KB_DEVICE void multiply_tile(SharedStorage& shared, const Arguments& args, uint32_t& phase,
                             uint32_t expert, uint32_t n_offset, uint32_t first_row,
                             uint32_t rows) {
  const uint32_t row = 16 * ptx::warp_index() + ptx::lane_index() / 4;
  const bool exists[2] = {row < rows, row + 8 < rows};
  const uint32_t blocks = args.k / kFp8Block;
  const uint32_t weight_row = expert * args.n + n_offset;
  const e4m3* a = args.codes + uint64_t{first_row} * args.k;
  const float* scales = args.scales + first_row + row;
  const float* weight_scales = args.weight_scales + uint64_t{weight_row / kFp8Block} * blocks;

  float sums[kAccumulators] = {};
  float products[kAccumulators] = {};
  for (uint32_t block = 0; block < blocks; ++block) {
    load_block(shared, args, weight_row, block, a, rows);
    // Before the copies are waited for.
    const float weight_scale = weight_scales[block];
    const float scale[2] = {exists[0] ? scales[0] * weight_scale : 0,
                            exists[1] ? scales[8] * weight_scale : 0};
    scales += args.rows;
    multiply_block(shared, products, phase);
    phase ^= 1;
    sums[0] += scale[0];
    sums[1] += scale[1];
    if (block + 1 == blocks) {
#pragma unroll
      for (uint32_t v = 0; v < kAccumulators; ++v) sums[v] += products[v] * scale[v / 2 % 2];
    }
  }
  if (exists[0]) scatter_row(sums, 0, args, n_offset, first_row + row);
  if (exists[1]) scatter_row(sums, 1, args, n_offset, first_row + row + 8);
}

// ---- Kernel

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) multiply_experts(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t expert = ptx::cta_index().y;
  const uint32_t n_offset = ptx::cta_index().x * kTileN;
  const uint32_t end = args.offsets[expert + 1];
  uint32_t row = args.offsets[expert];
  if (row == end) return;

  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.b_full, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
  for (uint32_t phase = 0; row < end; row += kTileM) {
    multiply_tile(shared, args, phase, expert, n_offset, row, end - row);
  }
}

}  // namespace kb::step::gemm
