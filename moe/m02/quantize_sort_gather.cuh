// Quantize, sort and gather: each block of 128 of a token to e4m3 with its scale, and a copy of the
// quantized row to the place of each of its routes among the rows sorted by expert. One CTA for
// each token; in between, the row is in shared memory.
//
// Each route takes the next free row of its expert: the order of an expert's rows is any.
#pragma once

#include <cmath>

#include "fp8_block.cuh"
#include "fused_moe.cuh"
#include "ptx/cvt.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "warp_values.cuh"

namespace kb::step::quantize_sort_gather {

inline constexpr uint32_t kThreads = kFp8Block;
inline constexpr uint32_t kWarps = kThreads / 32;
inline constexpr uint32_t kPartBlocks = 32;  // of a row that are in shared memory at a time

struct SharedStorage {
  uint32_t codes[kPartBlocks * kFp8Block / 4];  // four e4m3 each
  float scales[kPartBlocks];
  float amax[kWarps];
  uint32_t rows[kMaxTopk];
};

struct Arguments {
  const bf16* hidden;    // [m, k]
  const uint32_t* ids;   // [m, topk]
  uint32_t* next_rows;   // [experts]: the next free row of each
  uint32_t* routes;      // [m * topk]: the route of each sorted row
  e4m3* sorted_codes;    // [m * topk, k]
  float* sorted_scales;  // [m * topk, k / 128]
  uint32_t topk;
  uint32_t k;
};

// `blocks` blocks of a token, from `hidden` on, to shared memory.
KB_DEVICE void quantize_part(SharedStorage& shared, const bf16* hidden, uint32_t blocks) {
  for (uint32_t block = 0; block < blocks; ++block) {
    const uint32_t index = block * kFp8Block + ptx::thread_index();
    const float value = float_of(hidden[index]);
    const float amax = largest_of_warp(std::fabs(value));
    if (ptx::lane_index() == 0) shared.amax[ptx::warp_index()] = amax;
    ptx::bar_sync();
    float block_amax = shared.amax[0];
    for (uint32_t warp = 1; warp < kWarps; ++warp) {
      block_amax = std::fmax(block_amax, shared.amax[warp]);
    }
    const float scale = fp8_scale(block_amax);
    const uint32_t word = word_of_codes(ptx::cvt_rn_satfinite_e4m3x2_f32(value / scale, 0).lo);
    if (ptx::lane_index() % 4 == 0) shared.codes[index / 4] = word;
    if (ptx::thread_index() == 0) shared.scales[block] = scale;
    ptx::bar_sync();  // read by all, before the next block writes
  }
}

// The row of each of the token's routes, to shared memory, and the route to `routes`. One thread.
KB_DEVICE void place_routes(SharedStorage& shared, const Arguments& args, uint32_t token) {
  for (uint32_t s = 0; s < args.topk; ++s) {
    const uint32_t route = token * args.topk + s;
    const uint32_t row = ptx::atom_relaxed_gpu_global_add_u32(&args.next_rows[args.ids[route]], 1);
    shared.rows[s] = row;
    args.routes[row] = route;
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) prepare_rows(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const uint32_t token = ptx::cta_index().x;
  const uint32_t blocks = args.k / kFp8Block;
  const bf16* hidden = args.hidden + uint64_t{token} * args.k;
  if (ptx::thread_index() == 0) place_routes(shared, args, token);
  for (uint32_t first = 0; first < blocks; first += kPartBlocks) {
    const uint32_t count = blocks - first < kPartBlocks ? blocks - first : kPartBlocks;
    quantize_part(shared, hidden + first * kFp8Block, count);
    for (uint32_t s = 0; s < args.topk; ++s) {
      const uint64_t row = shared.rows[s];
      e4m3* codes = args.sorted_codes + row * args.k + first * kFp8Block;
      float* scales = args.sorted_scales + row * blocks + first;
      for (uint32_t i = ptx::thread_index(); i < count * kFp8Block; i += kThreads) {
        codes[i].bits = static_cast<uint8_t>(shared.codes[i / 4] >> 8 * (i % 4));
      }
      for (uint32_t i = ptx::thread_index(); i < count; i += kThreads) {
        scales[i] = shared.scales[i];
      }
    }
    ptx::bar_sync();  // read by all, before the next part is written
  }
}

}  // namespace kb::step::quantize_sort_gather
