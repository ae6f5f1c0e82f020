// Sort and gather: every route gets its place among the rows sorted by expert, and a copy of its
// token's quantized row goes there. One CTA for each token.
//
// Each route takes the next free row of its expert: the order of an expert's rows is any. One
// thread takes them all.
#pragma once

#include "fp8_block.cuh"
#include "fused_moe.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb::step::sort_gather {

inline constexpr uint32_t kThreads = kFp8Block;

struct SharedStorage {
  uint32_t rows[kMaxTopk];
};

struct Arguments {
  const uint32_t* ids;   // [m, topk]
  uint32_t* next_rows;   // [experts]: the next free row of each
  const e4m3* codes;     // [m, k]
  const float* scales;   // [m, k / 128]
  uint32_t* routes;      // [m * topk]: the route of each sorted row
  e4m3* sorted_codes;    // [m * topk, k]
  float* sorted_scales;  // [m * topk, k / 128]
  uint32_t topk;
  uint32_t k;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) sort_tokens(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t token = ptx::cta_index().x;
  if (ptx::thread_index() == 0) {
    for (uint32_t s = 0; s < args.topk; ++s) {
      const uint32_t route = token * args.topk + s;
      const uint32_t row =
          ptx::atom_relaxed_gpu_global_add_u32(&args.next_rows[args.ids[route]], 1);
      shared.rows[s] = row;
      args.routes[row] = route;
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
