// Products by FP16 instructions, of a block's weights of 16 rows a warp, and tokens. An e4m3 value
// is a half, too, and the sums of halves are float32's: nothing is lost but the last bits. A chunk
// has 16 values of K. Of each a lane has four neighbours, of a row of weights and of a token: which
// values of K they are does not matter to a sum, as long as both have the same.
#pragma once

#include "fp8_tile.cuh"
#include "half_mma.cuh"
#include "layout.cuh"
#include "ptx/cvt.cuh"
#include "ptx/warp.cuh"

namespace kb::step {

inline constexpr uint32_t kChunks = kBlock / 16;

// Two of four e4m3 values, the first or the second two, as halves.
KB_DEVICE uint32_t halves_of(uint32_t codes, uint32_t pair) {
  const auto two = static_cast<uint16_t>(codes >> 16 * pair);
  return __builtin_bit_cast(uint32_t, ptx::cvt_rn_f16x2_e4m3x2(__builtin_bit_cast(e4m3x2, two)));
}

// A block's tokens, eight in a group, as halves.
template <uint32_t kGroups>
struct TokenHalves {
  uint32_t chunks[kGroups][kChunks][2];
};

// `codes`: a tile of tokens with the 128-byte swizzle.
template <uint32_t kGroups>
KB_DEVICE void load_tokens(TokenHalves<kGroups>& to, const uint8_t* codes) {
  const uint32_t row = ptx::lane_index() % 8;
  const uint32_t matrix = ptx::lane_index() / 8;
#pragma unroll
  for (uint32_t group = 0; group < kGroups; ++group) {
#pragma unroll
    for (uint32_t first = 0; first < kChunks; first += 4) {
      uint32_t values[4];
      ldmatrix_m8n8_x4_b16(values, codes + group * 8 * kBlock + swizzle_128b(row, first + matrix));
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        to.chunks[group][first + i][0] = halves_of(values[i], 0);
        to.chunks[group][first + i][1] = halves_of(values[i], 1);
      }
    }
  }
}

// Of a warp's 16 rows, as codes: of each chunk rows t / 4 and those + 8.
struct WeightCodes {
  uint32_t chunks[kChunks][2];
};

// `weights`: a stage with the 128-byte swizzle; `warp`: of those that multiply it.
KB_DEVICE void load_weights(WeightCodes& to, const uint8_t* weights,
                            uint32_t warp = ptx::warp_index()) {
  const uint32_t row = ptx::lane_index() % 8;
  const uint32_t matrix = ptx::lane_index() / 8;
  const uint8_t* rows = weights + (warp * 16 + matrix % 2 * 8) * kBlock;
#pragma unroll
  for (uint32_t first = 0; first < kChunks; first += 2) {
    uint32_t values[4];
    ldmatrix_m8n8_x4_b16(values, rows + swizzle_128b(row, first + matrix / 2));
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) to.chunks[first + i / 2][i % 2] = values[i];
  }
}

// The product; its registers are those of wgmma.
template <uint32_t kGroups>
KB_DEVICE void multiply_exactly(float (&products)[4 * kGroups], const WeightCodes& weights,
                                const TokenHalves<kGroups>& tokens) {
  float sums[kGroups][2][4] = {};  // of even and odd chunks: an instruction waits for its sums
#pragma unroll
  for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    const uint32_t (&codes)[2] = weights.chunks[chunk];
    const uint32_t a[4] = {halves_of(codes[0], 0), halves_of(codes[1], 0), halves_of(codes[0], 1),
                           halves_of(codes[1], 1)};
#pragma unroll
    for (uint32_t group = 0; group < kGroups; ++group) {
      mma_m16n8k16_f32_f16(sums[group][chunk % 2], a, tokens.chunks[group][chunk]);
    }
  }
#pragma unroll
  for (uint32_t v = 0; v < 4 * kGroups; ++v) {
    products[v] = sums[v / 4][0][v % 4] + sums[v / 4][1][v % 4];
  }
}

}  // namespace kb::step
