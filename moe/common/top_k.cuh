// The largest logits of a row, found by one warp; ties go to the lower index.
#pragma once

#include "fused_moe.cuh"
#include "ptx/warp.cuh"

namespace kb {

// Unsigned integers in the order of the floats; both zeros are one, NaN lies beyond infinity. Never
// 0, which marks a logit that is not there: whatever the logits, indices are valid and distinct.
KB_HOST_DEVICE constexpr uint32_t ordered_bits(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value == 0 ? 0.0f : value);
  const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return ordered == 0 ? 1 : ordered;
}

KB_HOST_DEVICE constexpr float ordered_float(uint32_t ordered) {
  return __builtin_bit_cast(float, ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

struct TopLogit {
  uint32_t index;
  float logit;
};

// Takes the largest out of `keys`: ordered_bits of logits, 0 where there is none, the i-th of a
// lane that of expert 32 i + lane. The converged warp calls it; every lane gets the same answer.
template <uint32_t kCount>
KB_DEVICE TopLogit take_largest(uint32_t (&keys)[kCount]) {
  uint32_t best = 0;
  uint32_t slot = 0;
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    if (keys[i] > best) {
      best = keys[i];
      slot = i;
    }
  }
  const uint32_t largest = ptx::redux_sync_max(best);
  const uint32_t mine = slot * 32 + ptx::lane_index();
  // The lowest index is the largest complement.
  const uint32_t index = ~ptx::redux_sync_max(best == largest ? ~mine : 0);
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    if (i * 32 + ptx::lane_index() == index) keys[i] = 0;
  }
  return {index, ordered_float(largest)};
}

}  // namespace kb
