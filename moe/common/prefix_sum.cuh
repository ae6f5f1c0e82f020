// Sums of the values up to a thread's own, its own included.
#pragma once

#include "ptx/warp.cuh"

namespace kb {

// Over the lanes of a warp. The converged warp calls it.
KB_DEVICE uint32_t prefix_sum_of_warp(uint32_t value) {
#pragma unroll
  for (uint32_t delta = 1; delta < 32; delta *= 2) {
    const uint32_t below = ptx::shfl_sync_up(value, delta);
    if (ptx::lane_index() >= delta) value += below;
  }
  return value;
}

// Over the threads of kWarps warps, of which the calling one is the `warp`-th: all call it, with
// shared memory for their sums and a named barrier of theirs.
template <uint32_t kWarps>
KB_DEVICE uint32_t prefix_sum_of_warps(uint32_t value, uint32_t warp, uint32_t (&sums)[kWarps],
                                       uint32_t barrier) {
  uint32_t sum = prefix_sum_of_warp(value);
  if (ptx::lane_index() == 31) sums[warp] = sum;
  ptx::bar_sync(barrier, 32 * kWarps);
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (w < warp) sum += sums[w];
  }
  return sum;
}

}  // namespace kb
