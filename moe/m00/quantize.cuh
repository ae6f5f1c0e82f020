// Quantize: each block of 128 of a token to e4m3 with its scale. One CTA for each token, one thread
// for each value of a block, one block after the other.
#pragma once

#include <cmath>

#include "fp8_block.cuh"
#include "ptx/cvt.cuh"
#include "ptx/warp.cuh"
#include "warp_values.cuh"

namespace kb::step::quantize {

inline constexpr uint32_t kThreads = kFp8Block;
inline constexpr uint32_t kWarps = kThreads / 32;

struct SharedStorage {
  float amax[kWarps];
};

struct Arguments {
  const bf16* hidden;  // [m, k]
  e4m3* codes;         // [m, k]
  float* scales;       // [m, k / 128]
  uint32_t k;
};

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) quantize_tokens(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint64_t token = ptx::cta_index().x;
  for (uint32_t block = 0; block < args.k / kFp8Block; ++block) {
    const uint64_t index = token * args.k + block * kFp8Block + ptx::thread_index();
    const float value = float_of(args.hidden[index]);
    const float amax = largest_of_warp(std::fabs(value));
    if (ptx::lane_index() == 0) shared.amax[ptx::warp_index()] = amax;
    ptx::bar_sync();
    float block_amax = shared.amax[0];
    for (uint32_t warp = 1; warp < kWarps; ++warp) {
      block_amax = std::fmax(block_amax, shared.amax[warp]);
    }
    const float scale = fp8_scale(block_amax);
    args.codes[index] = ptx::cvt_rn_satfinite_e4m3x2_f32(value / scale, 0).lo;
    if (ptx::thread_index() == 0) args.scales[token * (args.k / kFp8Block) + block] = scale;
    ptx::bar_sync();  // read by all, before the next block writes
  }
}

}  // namespace kb::step::quantize
