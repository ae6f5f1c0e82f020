// Sort and gather: every route gets its place among the rows sorted by expert, and a copy of its
// token's quantized row goes there. One CTA for each token.
//
// A route's place is the start of its expert plus the number of earlier tokens' routes to it, so
// that the order of the rows is always the same. Each warp counts for every fourth of the token's
// experts.
#pragma once

#include "fp8_block.cuh"
#include "fused_moe.cuh"
#include "ptx/warp.cuh"

namespace kb::step::sort_gather {

inline constexpr uint32_t kThreads = kFp8Block;
inline constexpr uint32_t kWarps = kThreads / 32;

struct SharedStorage {
  uint32_t rows[kMaxTopk];
};

struct Arguments {
  const uint32_t* ids;      // [m, topk]
  const uint32_t* offsets;  // [experts + 1]
  const e4m3* codes;        // [m, k]
  const float* scales;      // [m, k / 128]
  uint32_t* routes;         // [m * topk]: the route of each sorted row
  e4m3* sorted_codes;       // [m * topk, k]
  float* sorted_scales;     // [m * topk, k / 128]
  uint32_t topk;
  uint32_t k;
};

// The converged warp: how many of the first `count` ids are `expert`.
KB_DEVICE uint32_t count_equal(const uint32_t* ids, uint32_t count, uint32_t expert) {
  uint32_t equal = 0;
  for (uint32_t i = ptx::lane_index(); i < count; i += 32) equal += ids[i] == expert;
  return ptx::redux_sync_add(equal);
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) sort_tokens(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t token = ptx::cta_index().x;
  const uint32_t first_route = token * args.topk;
  for (uint32_t s = ptx::warp_index(); s < args.topk; s += kWarps) {
    const uint32_t expert = args.ids[first_route + s];
    const uint32_t row = args.offsets[expert] + count_equal(args.ids, first_route, expert);
    if (ptx::lane_index() == 0) {
      shared.rows[s] = row;
      args.routes[row] = first_route + s;
    }
  }
  ptx::bar_sync();

  const uint32_t blocks = args.k / kFp8Block;
  const e4m3* codes = args.codes + uint64_t{token} * args.k;
  const float* scales = args.scales + uint64_t{token} * blocks;
  for (uint32_t s = 0; s < args.topk; ++s) {
    const uint64_t row = shared.rows[s];
    for (uint32_t i = ptx::thread_index(); i < args.k; i += kThreads) {
      args.sorted_codes[row * args.k + i] = codes[i];
    }
    for (uint32_t i = ptx::thread_index(); i < blocks; i += kThreads) {
      args.sorted_scales[row * blocks + i] = scales[i];
    }
  }
}

}  // namespace kb::step::sort_gather
