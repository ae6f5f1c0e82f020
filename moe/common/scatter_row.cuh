// From a warpgroup's sums to the tokens that their rows are of, with atomic adds of two floats.
#pragma once

#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb {

// Adds a row of sums, times its route's weight, to its token's output from column `n_offset` on.
// `sums`: of a wgmma accumulator with M = 64, where registers of a thread belong to two rows, eight
// apart: `half` says which. By the threads that hold the row; args has what sorted rows are routes
// of, and the routes' weights.
template <int kCount, typename Arguments>
KB_DEVICE void scatter_row(const float (&sums)[kCount], uint32_t half, const Arguments& args,
                           uint32_t n_offset, uint32_t sorted_row) {
  const uint32_t route = args.routes[sorted_row];
  const float weight = args.expert_weights[route];
  float* output =
      args.output + uint64_t{route / args.topk} * args.n + n_offset + 2 * (ptx::lane_index() % 4);
#pragma unroll
  for (uint32_t v = 2 * half; v < kCount; v += 4) {
    const float pair[2] = {sums[v] * weight, sums[v + 1] * weight};
    ptx::red_relaxed_gpu_global_add_v2_f32(output + 8 * (v / 4), pair);
  }
}

}  // namespace kb
