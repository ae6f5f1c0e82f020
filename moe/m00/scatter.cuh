// Scatter: each sorted row, times its expert's weight, is added to its token's output. One CTA for
// each row.
#pragma once

#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb::step::scatter {

inline constexpr uint32_t kThreads = 128;
inline constexpr uint32_t kVector = 4;  // columns that a thread adds at a time

struct alignas(16) F32x4 {
  float values[kVector];
};

struct Arguments {
  const float* products;        // [rows, n]
  const uint32_t* routes;       // [rows]
  const float* expert_weights;  // [m, topk]
  float* output;                // [m, n], zero
  uint32_t topk;
  uint32_t n;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) scatter_rows(KB_GRID_CONSTANT(Arguments) args) {
  const uint64_t row = ptx::cta_index().x;
  const uint32_t route = args.routes[row];
  const float weight = args.expert_weights[route];
  const float* products = args.products + row * args.n;
  float* output = args.output + uint64_t{route / args.topk} * args.n;
  for (uint32_t i = kVector * ptx::thread_index(); i < args.n; i += kVector * kThreads) {
    F32x4 sum = *reinterpret_cast<const F32x4*>(products + i);
    for (float& value : sum.values) value *= weight;
    ptx::red_relaxed_gpu_global_add_v4_f32(output + i, sum.values);
  }
}

}  // namespace kb::step::scatter
