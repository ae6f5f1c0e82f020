// The product of one block of K of a warpgroup: FP8 tiles in shared memory, as fp8_tile.cuh lays
// them out, times each other. The tensor cores keep about 14 bits while they add, so that the sums
// of one block are all that they add up.
#pragma once

#include "descriptors.cuh"
#include "fp8_block.cuh"
#include "ptx/wgmma.cuh"

namespace kb {

inline constexpr uint32_t kFp8MmaK = 32;  // elements of K that one instruction multiplies

// By the warpgroup: products = A B^T over one block, complete on return. `tile_a`, `tile_b`:
// descriptors of both tiles; as many accumulators as the instruction for their rows has.
template <int kCount>
KB_DEVICE void multiply_fp8_block(float (&products)[kCount], uint64_t tile_a, uint64_t tile_b) {
  ptx::wgmma_fence(products);
#pragma unroll
  for (uint32_t i = 0; i < kFp8Block / kFp8MmaK; ++i) {
    ptx::wgmma_mma_async_f32_e4m3_e4m3(products, smem_descriptor_advance(tile_a, i * kFp8MmaK),
                                       smem_descriptor_advance(tile_b, i * kFp8MmaK), i != 0);
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>(products);
}

}  // namespace kb
