// As kb::quantize_units, without the branches of divisions, and with a token's scales in a row.
#pragma once

#include "quantize_units.cuh"

namespace kb::step::sorted {

// 1 / s, for a normal s below 2^126, without the branch of a division, so that several are under
// way. Four steps of Newton round it to nearest, but for a mantissa of ones.
KB_DEVICE float reciprocal(float s) {
  float r = __builtin_bit_cast(float, 0x7ef311c7 - __builtin_bit_cast(uint32_t, s));
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) r = std::fma(std::fma(-s, r, 1.0f), r, r);
  return r;
}

// fp8_scale, without a branch.
KB_DEVICE float scale_of_block(float amax) {
  const float scale = quotient(amax, kE4m3Max, 1.0f / kE4m3Max);
  return scale < kScaleFloor ? kScaleFloor : scale;
}

// The warp calls it, for several units in step; one past the last token is no work.
template <uint32_t kCount, typename Arguments>
KB_DEVICE void quantize_in_step(const Vector (&packed)[kCount], const Arguments& args,
                                const Unit (&units)[kCount]) {
  float values[kCount][8];
  float amax[kCount] = {};
#pragma unroll
  for (uint32_t u = 0; u < kCount; ++u) {
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      values[u][i] = float_of(bf16{static_cast<uint16_t>(packed[u].words[i / 2] >> 16 * (i % 2))});
      amax[u] = std::fmax(amax[u], std::fabs(values[u][i]));
    }
  }
#pragma unroll
  for (uint32_t mask = kGroup / 2; mask != 0; mask /= 2) {
#pragma unroll
    for (float& largest : amax) largest = std::fmax(largest, ptx::shfl_sync_bfly(largest, mask));
  }
#pragma unroll
  for (uint32_t u = 0; u < kCount; ++u) {
    const float scale = scale_of_block(amax[u]);
    const float inverse = reciprocal(scale);
    struct alignas(8) Codes {
      e4m3x2 pairs[4];
    } codes;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      codes.pairs[i] =
          ptx::cvt_rn_satfinite_e4m3x2_f32(quotient(values[u][2 * i], scale, inverse),
                                           quotient(values[u][2 * i + 1], scale, inverse));
    }
    if (units[u].token >= args.m) continue;
    const uint64_t place = place_of(args, units[u]);
    *reinterpret_cast<Codes*>(args.codes + place) = codes;
    if (ptx::thread_index() % kGroup == 0) args.scales[place / kFp8Block] = scale;
  }
}

}  // namespace kb::step::sorted
