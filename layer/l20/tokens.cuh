// Tokens, once each: CTA c quantizes the tokens c, c + CTAs, ... and sets their outputs to zero.
#pragma once

#include "layout.cuh"
#include "ptx/warp.cuh"
#include "quantize.cuh"

namespace kb::step {

struct alignas(16) Vector {
  uint32_t words[4];
};
struct alignas(16) Floats {
  float values[4];
};
struct alignas(8) Codes {
  uint32_t words[2];
};

// Writes a scale's sector, by two lanes of those that share it.
KB_DEVICE void write_scale(SectorScale* to, uint32_t lane, float scale) {
  if (lane < 2) reinterpret_cast<Floats*>(to)[lane] = {scale, scale, scale, scale};
}

// A block of a token, by 16 lanes; the whole warp calls it with one block for each half.
KB_DEVICE void quantize_block(const Arguments& args, const Vector& vector, uint32_t token,
                              uint32_t block) {
  float values[8];
  uint32_t amax = 0;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    values[i] = __builtin_bit_cast(
        float, i % 2 == 0 ? vector.words[i / 2] << 16 : vector.words[i / 2] & 0xffff0000u);
    amax = larger(amax, magnitude(values[i]));
  }
#pragma unroll
  for (uint32_t mask = 8; mask != 0; mask /= 2) {
    amax = larger(amax, ptx::shfl_sync_bfly(amax, mask));
  }
  const float scale = scale_of(__builtin_bit_cast(float, amax));
  if (block >= args.blocks) return;
  const uint32_t lane = ptx::lane_index() % 16;
  const float lo[4] = {values[0], values[1], values[2], values[3]};
  const float hi[4] = {values[4], values[5], values[6], values[7]};
  e4m3* at = args.codes + (uint64_t{token} * args.blocks + block) * kBlock;
  reinterpret_cast<Codes*>(at)[lane] = {codes_of(lo, scale), codes_of(hi, scale)};
  write_scale(args.scales + uint64_t{token} * args.blocks + block, lane, scale);
}

// By the warps that multiply: units of work are pairs of blocks of the CTA's tokens.
KB_DEVICE void quantize_tokens(const Arguments& args) {
  constexpr uint32_t kAhead = 4;  // units on their way at a time
  const uint32_t pairs = ceil_div(args.blocks, 2);
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t ctas = ptx::cta_count().x;
  const uint32_t half = ptx::lane_index() / 16;
  const uint32_t units = (args.m > cta ? ceil_div(args.m - cta, ctas) : 0) * pairs;
  for (uint32_t first = ptx::warp_index(); first < units; first += kAhead * kMultiplyWarps) {
    Vector vectors[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t unit = first + i * kMultiplyWarps;
      const uint32_t block = unit % pairs * 2 + half;
      vectors[i] = {};
      if (unit < units && block < args.blocks) {
        const uint64_t token = cta + unit / pairs * ctas;
        const bf16* row = args.hidden + (token * args.blocks + block) * kBlock;
        vectors[i] = reinterpret_cast<const Vector*>(row)[ptx::lane_index() % 16];
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t unit = first + i * kMultiplyWarps;
      if (unit >= units) break;
      quantize_block(args, vectors[i], cta + unit / pairs * ctas, unit % pairs * 2 + half);
    }
  }
}

// By the threads that gather.
KB_DEVICE void clear_outputs(const Arguments& args, uint32_t thread) {
  const uint32_t row = args.blocks * (kBlock / 4);
  for (uint32_t token = ptx::cta_index().x; token < args.m; token += ptx::cta_count().x) {
    auto* output = reinterpret_cast<Floats*>(args.output) + uint64_t{token} * row;
    for (uint32_t i = thread; i < row; i += kGatherThreads) output[i] = {};
  }
}

}  // namespace kb::step
