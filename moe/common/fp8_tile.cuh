// Tiles of FP8 operands in shared memory: rows of one block, 128 bytes, with the 128-byte swizzle
// that kTileSw128 describes to the tensor cores.
#pragma once

#include "fp8_block.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/warp.cuh"

namespace kb {

inline constexpr uint32_t kChunkBytes = 16;  // unit of a copy and of the swizzle
inline constexpr uint32_t kRowChunks = kFp8Block / kChunkBytes;

// Where a chunk of a row lies: its place in the row is exclusive-ored with the row modulo 8.
KB_HOST_DEVICE constexpr uint32_t swizzle_128b(uint32_t row, uint32_t chunk) {
  return row * kFp8Block + (chunk ^ (row % 8)) * kChunkBytes;
}

// Starts copying [kRows, 128] bytes to a swizzled tile, all kThreads threads of the CTA together.
//   source      first byte of the first row; rows are `pitch` bytes apart
//   rows        rows that exist, at least one; the tile's others become zero
template <uint32_t kRows, uint32_t kThreads>
KB_DEVICE void copy_fp8_tile_async(uint8_t* tile, const e4m3* source, uint32_t pitch,
                                   uint32_t rows) {
  static_assert(kRows * kRowChunks % kThreads == 0, "every thread copies as many chunks");
#pragma unroll
  for (uint32_t i = 0; i < kRows * kRowChunks / kThreads; ++i) {
    const uint32_t index = i * kThreads + ptx::thread_index();
    const uint32_t row = index / kRowChunks;
    const uint32_t chunk = index % kRowChunks;
    const bool exists = row < rows;
    const e4m3* from = source + uint64_t{exists ? row : 0} * pitch + chunk * kChunkBytes;
    ptx::cp_async_cg_shared_global_16(tile + swizzle_128b(row, chunk), from,
                                      exists ? kChunkBytes : 0);
  }
}

}  // namespace kb
