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
inline constexpr uint32_t kPartBlocks = 16;  // of a row that are in shared memory at a time

struct SharedStorage {
  alignas(16) uint32_t codes[kPartBlocks * kFp8Block / 4];  // four e4m3 each
  float scales[kPartBlocks];
  float amax[kPartBlocks][kWarps];
  uint32_t rows[kMaxTopk];
};

struct Arguments {
  const bf16* hidden;    // [m, k]
  const uint32_t* ids;   // [m, topk]
  uint32_t* next_rows;   // [experts]: the next free row of each
  uint32_t* routes;      // [m * topk]: the route of each sorted row
  e4m3* sorted_codes;    // [m * topk, k]
  float* sorted_scales;  // [k / 128, m * topk]
  uint32_t rows;         // m * topk
  uint32_t topk;
  uint32_t k;
};

struct alignas(16) Vector {
  uint32_t words[4];
};

// `blocks` blocks of a token, from `hidden` on, to shared memory, one value of each in a register.
KB_DEVICE void quantize_part(SharedStorage& shared, const bf16* hidden, uint32_t blocks) {
  float values[kPartBlocks];
#pragma unroll
  for (uint32_t block = 0; block < kPartBlocks; ++block) {
    if (block >= blocks) break;
    values[block] = float_of(hidden[block * kFp8Block + ptx::thread_index()]);
    const float amax = largest_of_warp(std::fabs(values[block]));
    if (ptx::lane_index() == 0) shared.amax[block][ptx::warp_index()] = amax;
  }
  ptx::bar_sync();
#pragma unroll
  for (uint32_t block = 0; block < kPartBlocks; ++block) {
    if (block >= blocks) break;
    float amax = shared.amax[block][0];
    for (uint32_t warp = 1; warp < kWarps; ++warp) {
      amax = std::fmax(amax, shared.amax[block][warp]);
    }
    const float scale = fp8_scale(amax);
    const uint32_t word =
        word_of_codes(ptx::cvt_rn_satfinite_e4m3x2_f32(values[block] / scale, 0).lo);
    const uint32_t index = block * kFp8Block + ptx::thread_index();
    if (ptx::lane_index() % 4 == 0) shared.codes[index / 4] = word;
    if (ptx::thread_index() == 0) shared.scales[block] = scale;
  }
  ptx::bar_sync();
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

// What quantize_part left in shared memory, to the rows of all the token's routes.
KB_DEVICE void copy_part(const SharedStorage& shared, const Arguments& args, uint32_t first,
                         uint32_t blocks) {
  const uint32_t vectors = blocks * kFp8Block / sizeof(Vector);
  for (uint32_t s = 0; s < args.topk; ++s) {
    const uint64_t row = shared.rows[s];
    auto* codes = reinterpret_cast<Vector*>(args.sorted_codes + row * args.k + first * kFp8Block);
    float* scales = args.sorted_scales + uint64_t{first} * args.rows + row;
    for (uint32_t i = ptx::thread_index(); i < vectors; i += kThreads) {
      codes[i] = reinterpret_cast<const Vector*>(shared.codes)[i];
    }
    for (uint32_t i = ptx::thread_index(); i < blocks; i += kThreads) {
      scales[uint64_t{i} * args.rows] = shared.scales[i];
    }
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
    copy_part(shared, args, first, count);
    ptx::bar_sync();  // read by all, before the next part is written
  }
}

}  // namespace kb::step::quantize_sort_gather
