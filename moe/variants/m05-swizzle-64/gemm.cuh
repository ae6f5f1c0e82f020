// GEMM: an expert's sorted rows times its weights. One CTA, a warpgroup, for each expert and 128
// columns; it walks over the expert's rows 64 at a time and over K one block at a time, each
// loaded, multiplied and added before the next is loaded. CTAs that share rows follow each other.
//
// The tensor cores keep about 14 bits while they add, so that they add up one block only; the
// block's sum, times both its scales, goes to float32 sums of its own.
#pragma once

#include "descriptors.cuh"
#include "fp8_block.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"
#include "scatter_row.cuh"
#include "wait.cuh"

namespace kb::step::gemm {

// ---- Config

inline constexpr uint32_t kTileM = 64;
inline constexpr uint32_t kTileN = 128;
inline constexpr uint32_t kTileK = 128;
inline constexpr uint32_t kMmaK = 32;
inline constexpr uint32_t kThreads = 128;
inline constexpr uint32_t kSwizzle = 64;     // bytes of a row in a half of a tile
inline constexpr uint32_t kChunkBytes = 16;  // unit of a copy and of the swizzle
inline constexpr SmemTile kHalfTile{SmemSwizzle::k64B, 16, 8 * kSwizzle};
inline constexpr uint32_t kAccumulators = kTileM * kTileN / kThreads;  // registers of a thread
static_assert(kTileK == kFp8Block, "a tile of K has one scale on each side");
static_assert(kTileN == kFp8Block, "a tile's weights share their scale");

// ---- SharedStorage

struct SharedStorage {
  alignas(1024) uint8_t a[2][kTileM * kSwizzle];
  alignas(1024) uint8_t b[2][kTileN * kSwizzle];
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

// ---- Load: 64 rows of activations, those beyond `rows` zero.

KB_DEVICE void copy_activations_async(SharedStorage& shared, const e4m3* source, uint32_t pitch,
                                      uint32_t rows) {
  constexpr uint32_t kRowChunks = kSwizzle / kChunkBytes;
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
#pragma unroll
    for (uint32_t i = 0; i < kTileM * kRowChunks / kThreads; ++i) {
      const uint32_t index = i * kThreads + ptx::thread_index();
      const uint32_t row = index / kRowChunks;
      const uint32_t chunk = index % kRowChunks;
      const bool exists = row < rows;
      // Chunks are exclusive-ored with the pair of rows modulo 4.
      const uint32_t place = chunk ^ (row / 2 % kRowChunks);
      ptx::cp_async_cg_shared_global_16(
          &shared.a[half][row * kSwizzle + place * kChunkBytes],
          source + uint64_t{exists ? row : 0} * pitch + half * kSwizzle + chunk * kChunkBytes,
          exists ? kChunkBytes : 0);
    }
  }
}

// ---- Load: one block of K. The weights first: their copy is the longest, and another unit's.

KB_DEVICE void load_block(SharedStorage& shared, const Arguments& args, uint32_t weight_row,
                          uint32_t block, const e4m3* a, uint32_t rows) {
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared.b_full,
                                   sizeof shared.b);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      ptx::cp_async_bulk_tensor_2d_shared_global(shared.b[half], &args.weights,
                                                 block * kTileK + half * kSwizzle, weight_row,
                                                 &shared.b_full);
    }
  }
  copy_activations_async(shared, a + block * kTileK, args.k, rows);
  ptx::cp_async_commit_group();
}

// ---- MMA: one block of K, to `products`.

KB_DEVICE void multiply_block(SharedStorage& shared, float (&products)[kAccumulators],
                              uint32_t phase) {
  ptx::cp_async_wait_group<0>();
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();
  mbarrier_wait_parity(&shared.b_full, phase);

  ptx::wgmma_fence(products);
#pragma unroll
  for (uint32_t i = 0; i < kTileK / kMmaK; ++i) {
    const uint32_t half = i * kMmaK / kSwizzle;
    const uint64_t tile_a = wgmma_smem_descriptor(kHalfTile, ptx::smem_address(shared.a[half]));
    const uint64_t tile_b = wgmma_smem_descriptor(kHalfTile, ptx::smem_address(shared.b[half]));
    const uint32_t k = i * kMmaK % kSwizzle;
    ptx::wgmma_mma_async_f32_e4m3_e4m3(products, smem_descriptor_advance(tile_a, k),
                                       smem_descriptor_advance(tile_b, k), i != 0);
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>(products);
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
#pragma unroll
    for (uint32_t v = 0; v < kAccumulators; ++v) sums[v] += products[v] * scale[v / 2 % 2];
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
