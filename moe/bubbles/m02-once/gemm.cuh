// GEMM: an expert's sorted rows times its weights. One CTA, a warpgroup, for each expert and 128
// columns; it walks over the expert's rows 64 at a time and over K one block at a time, each
// loaded, multiplied and added before the next is loaded.
//
// The tensor cores keep about 14 bits while they add, so that they add up one block only; the
// block's sum, times both its scales, goes to float32 sums of its own.
#pragma once

#include "descriptors.cuh"
#include "fp8_tile.cuh"
#include "fp8_wgmma.cuh"
#include "ptx/fence.cuh"
#include "ptx/red.cuh"

namespace kb::step::gemm {

// ---- Config

inline constexpr uint32_t kTileM = 64;
inline constexpr uint32_t kTileN = 128;
inline constexpr uint32_t kTileK = 128;
inline constexpr uint32_t kThreads = 128;
inline constexpr uint32_t kAccumulators = kTileM * kTileN / kThreads;  // registers of a thread
inline constexpr uint32_t kVector = 4;             // columns that a thread adds at a time
inline constexpr uint32_t kOutPitch = kTileN + 8;  // a shift of 8 banks a row: no conflicts
static_assert(kTileN == 32 * kVector, "a warp adds a row");
static_assert(kTileK == kFp8Block, "a tile of K has one scale on each side");
static_assert(kTileN == kFp8Block, "a tile's weights share their scale");

// ---- SharedStorage

struct SharedStorage {
  alignas(1024) uint8_t a[kTileM * kTileK];  // 128-byte swizzle
  alignas(1024) uint8_t b[kTileN * kTileK];  // 128-byte swizzle
  alignas(16) float out[kTileM * kOutPitch];
};

struct Arguments {
  const uint32_t* offsets;      // [experts + 1]
  const e4m3* codes;            // [rows, k], sorted by expert
  const float* scales;          // [rows, k / 128]
  const e4m3* weights;          // [experts, n, k]
  const float* weight_scales;   // [experts, n / 128, k / 128]
  const uint32_t* routes;       // [rows]
  const float* expert_weights;  // [m, topk]
  float* output;                // [m, n], zero
  uint32_t n, k, topk;
};

struct alignas(8) F32x2 {
  float x, y;
};
struct alignas(16) F32x4 {
  float values[kVector];
};

// ---- Load and MMA: one block of K, to `products`.

KB_DEVICE void multiply_block(SharedStorage& shared, float (&products)[kAccumulators],
                              const e4m3* a, const e4m3* b, uint32_t pitch, uint32_t rows, bool first) {
  copy_fp8_tile_async<kTileM, kThreads>(shared.a, a, pitch, rows);
  if (first) copy_fp8_tile_async<kTileN, kThreads>(shared.b, b, pitch, kTileN);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();

  const uint64_t tile_a = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.a));
  const uint64_t tile_b = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.b));
  multiply_fp8_block(products, tile_a, tile_b);
  ptx::bar_sync();  // read by every warp, before the next block is copied
}

// ---- Scatter: a warp for each row that exists. The next tile's blocks make all warps meet before
// they write to `out` again.

KB_DEVICE void scatter_tile(const SharedStorage& shared, const Arguments& args, uint32_t n_offset,
                            uint32_t first_row, uint32_t rows) {
  const uint32_t column = kVector * ptx::lane_index();
  for (uint32_t row = ptx::warp_index(); row < kTileM && row < rows; row += kThreads / 32) {
    const uint32_t route = args.routes[first_row + row];
    const float weight = args.expert_weights[route];
    F32x4 sum = *reinterpret_cast<const F32x4*>(shared.out + row * kOutPitch + column);
    for (float& value : sum.values) value *= weight;
    float* output = args.output + uint64_t{route / args.topk} * args.n + n_offset + column;
    ptx::red_relaxed_gpu_global_add_v4_f32(output, sum.values);
  }
}

// ---- Tile: registers v of a thread belong to two rows, eight apart.

KB_DEVICE void multiply_tile(SharedStorage& shared, const Arguments& args, uint32_t expert,
                             uint32_t n_offset, uint32_t first_row, uint32_t rows) {
  const uint32_t lane = ptx::lane_index();
  const uint32_t row = 16 * ptx::warp_index() + lane / 4;
  const bool exists[2] = {row < rows, row + 8 < rows};
  const uint32_t blocks = args.k / kFp8Block;
  const uint64_t weight_row = uint64_t{expert} * args.n + n_offset;
  const e4m3* a = args.codes + uint64_t{first_row} * args.k;
  const e4m3* b = args.weights + weight_row * args.k;
  const float* scales = args.scales + uint64_t{first_row + row} * blocks;
  const float* weight_scales = args.weight_scales + weight_row / kFp8Block * blocks;

  float sums[kAccumulators] = {};
  float products[kAccumulators] = {};
  for (uint32_t block = 0; block < blocks; ++block) {
    multiply_block(shared, products, a + block * kTileK, b + block * kTileK, args.k, rows,
                   block == 0);
    const float weight_scale = weight_scales[block];
    const float scale[2] = {exists[0] ? scales[block] * weight_scale : 0,
                            exists[1] ? scales[8 * blocks + block] * weight_scale : 0};
#pragma unroll
    for (uint32_t v = 0; v < kAccumulators; ++v) sums[v] += products[v] * scale[v / 2 % 2];
  }

  float* out = shared.out + row * kOutPitch + 2 * (lane % 4);
#pragma unroll
  for (uint32_t v = 0; v < kAccumulators; v += 2) {
    const uint32_t half = v / 2 % 2;
    *reinterpret_cast<F32x2*>(out + 8 * half * kOutPitch + 8 * (v / 4)) = {sums[v], sums[v + 1]};
  }
  ptx::bar_sync();
  scatter_tile(shared, args, n_offset, first_row, rows);
}

// ---- Kernel

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) multiply_experts(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t expert = ptx::cta_index().x;
  const uint32_t n_offset = ptx::cta_index().y * kTileN;
  const uint32_t end = args.offsets[expert + 1];
  for (uint32_t row = args.offsets[expert]; row < end; row += kTileM) {
    multiply_tile(shared, args, expert, n_offset, row, end - row);
  }
}

}  // namespace kb::step::gemm
