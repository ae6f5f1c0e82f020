// Tokens as fp16 in the order that wgmma reads them: what the conversion writes and the GEMM
// copies.
//
// 64 of K of all rows make a slab, [rows][128 bytes] with the 128-byte swizzle, so that any eight
// rows on are a tile. A slab pair is 128 of K. Within it K is permuted, the same way as in the
// registers of a thread that dequantizes weights: thread c of a quad owns elements 32 c to 32 c +
// 31 (16 packed bytes, two whole scale blocks), and the eight elements of its 32-bit word w, split
// into odd and even ones, are its share of two of the pair's eight steps of 16.
#pragma once

#include "fp4_half.cuh"

namespace kb {

inline constexpr uint32_t kPairK = 128;     // of a slab pair
inline constexpr uint32_t kSlabK = 64;      // of a slab
inline constexpr uint32_t kRowBytes = 128;  // of a row in a slab
inline constexpr uint32_t kQuadK = 32;      // of a thread of a quad, per pair

// Where a slab's rows start, in a matrix of `rows` rows.
KB_HOST_DEVICE constexpr uint64_t slab_offset(uint32_t slab, uint32_t rows) {
  return uint64_t{slab} * rows * kRowBytes;
}

// Packed codes of one row that one thread owns.
struct alignas(16) PackedCodes {
  uint32_t words[4];
};

// Writes the thread's share of a row in both slabs of a pair. `row`: the row's index, for the
// swizzle; `slabs`: its 128 bytes in each.
KB_DEVICE void store_row_share(uint32_t* const (&slabs)[2], uint32_t row, uint32_t quad_thread,
                               const PackedCodes& codes, uint32_t scales) {
  const uint32_t scale[2] = {twice_low(scales), twice_high(scales)};
#pragma unroll
  for (uint32_t w = 0; w < 4; ++w) {
    const Fp4Halves halves = dequantize_fp4(codes.words[w], scale[w / 2]);
    uint32_t* slab = slabs[w / 2];
    const auto at = [&](uint32_t chunk) -> uint32_t& {
      return slab[((4 * (w % 2) + chunk) ^ (row % 8)) * 4 + quad_thread];
    };
    at(0) = halves.odd[0];
    at(1) = halves.odd[1];
    at(2) = halves.even[0];
    at(3) = halves.even[1];
  }
}

}  // namespace kb
