// Values of a warp's lanes put together. The converged warp calls them; every lane gets the answer.
#pragma once

#include <cmath>

#include "ptx/warp.cuh"

namespace kb {

KB_DEVICE float sum_of_warp(float value) {
#pragma unroll
  for (uint32_t mask = 16; mask != 0; mask /= 2) value += ptx::shfl_sync_bfly(value, mask);
  return value;
}

// Of numbers: a NaN counts only if all are.
KB_DEVICE float largest_of_warp(float value) {
#pragma unroll
  for (uint32_t mask = 16; mask != 0; mask /= 2) {
    value = std::fmax(value, ptx::shfl_sync_bfly(value, mask));
  }
  return value;
}

// The codes of four neighbouring lanes, in each of them; the first one's is the low byte.
KB_DEVICE uint32_t word_of_codes(e4m3 code) {
  uint32_t word = uint32_t{code.bits} << 8 * (ptx::lane_index() % 4);
  word |= ptx::shfl_sync_bfly(word, 1);
  return word | ptx::shfl_sync_bfly(word, 2);
}

}  // namespace kb
