// Route and quantize: a token's experts, its place among the tokens of each, and its row in e4m3
// with one scale for each block of 128. One CTA for each token. The token's output is set to zero
// on the way.
//
// Every warp orders the largest logits of its 32 experts, one warp merges those. An expert's tokens
// are in any order.
#pragma once

#include <cmath>

#include "fp8_block.cuh"
#include "ptx/cvt.cuh"
#include "ptx/pdl.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "top_k.cuh"
#include "warp_values.cuh"

namespace kb::step::route_quantize {

inline constexpr uint32_t kThreads = 512;
inline constexpr uint32_t kWarps = kThreads / 32;
inline constexpr uint32_t kCandidates = kWarps * kMaxTopk;
inline constexpr uint32_t kBlockWarps = kFp8Block / 32;
inline constexpr uint32_t kPartBlocks = 16;  // of a row that are in registers at a time
inline constexpr uint32_t kValues = kPartBlocks * kFp8Block / kThreads;  // of a thread
static_assert(kThreads == kMaxExperts, "a thread has one expert");

struct SharedStorage {
  uint32_t candidates[kCandidates];  // ordered_bits, kMaxTopk of each warp, the largest first
  uint32_t experts[kCandidates];
  float largest[kWarps];  // logit of a warp, 0 if it has none that is not -infinity
  float sums[kWarps];     // of the exponentials of a warp's logits less its largest
  float amax[kPartBlocks][kBlockWarps];
};

struct Arguments {
  const float* gating;    // [m, experts]
  const bf16* hidden;     // [m, k]
  uint32_t* counts;       // [experts], zero: tokens of each
  uint32_t* routes;       // [experts, m]: the first counts[e] of row e are expert e's
  float* expert_weights;  // [m, topk]
  e4m3* codes;            // [m, k]
  float* scales;          // [k / 128, m]
  float* output;          // [m, n]
  uint32_t experts, topk;
  uint32_t m, n, k;
  bool renormalize;
  float softcap;
};

struct alignas(16) Vector {
  uint32_t words[4];
};

// Each warp's largest logits, to shared memory.
KB_DEVICE void order_warp(SharedStorage& shared, const Arguments& args, uint32_t token) {
  const uint32_t expert = ptx::thread_index();
  const uint32_t warp = ptx::warp_index();
  uint32_t keys[1] = {0};
  if (expert < args.experts) {
    const float logit = args.gating[uint64_t{token} * args.experts + expert];
    keys[0] =
        ordered_bits(args.softcap > 0 ? args.softcap * std::tanh(logit / args.softcap) : logit);
  }
  const uint32_t key = keys[0];
  float largest = 0;
  for (uint32_t s = 0; s < args.topk; ++s) {
    const bool any = ptx::vote_sync_any(keys[0] != 0);
    const TopLogit top = take_largest(keys);
    if (s == 0 && any && top.logit != -INFINITY) largest = top.logit;
    if (ptx::lane_index() == 0) {
      shared.candidates[warp * kMaxTopk + s] = any ? ordered_bits(top.logit) : 0;
      shared.experts[warp * kMaxTopk + s] = warp * 32 + top.index;
    }
  }
  const float sum = sum_of_warp(key == 0 ? 0 : std::exp(ordered_float(key) - largest));
  if (ptx::lane_index() == 0) {
    shared.largest[warp] = largest;
    shared.sums[warp] = sum;
  }
}

// One warp: the token's experts, of those that order_warp has left.
KB_DEVICE void choose_experts(const SharedStorage& shared, const Arguments& args, uint32_t token) {
  const uint32_t lane = ptx::lane_index();
  uint32_t keys[kCandidates / 32];
#pragma unroll
  for (uint32_t i = 0; i < kCandidates / 32; ++i) {
    const uint32_t candidate = i * 32 + lane;
    keys[i] = candidate % kMaxTopk < args.topk ? shared.candidates[candidate] : 0;
  }
  // Lane s keeps the s-th largest.
  uint32_t id = 0;
  float logit = 0;
  float largest = 0;
  for (uint32_t s = 0; s < args.topk; ++s) {
    const TopLogit top = take_largest(keys);
    if (s == 0) largest = top.logit;
    if (lane == s) {
      id = shared.experts[top.index];
      logit = top.logit;
    }
  }
  // A warp of logits that are all -infinity adds nothing, however low the largest one is.
  const float warp_sum = lane < kWarps ? shared.sums[lane] : 0;
  const float sum =
      sum_of_warp(warp_sum == 0 ? 0 : warp_sum * std::exp(shared.largest[lane] - largest));
  float weight = lane < args.topk ? std::exp(logit - largest) / sum : 0;
  if (args.renormalize) weight /= sum_of_warp(weight);
  if (lane < args.topk) {
    const uint32_t route = token * args.topk + lane;
    const uint32_t place = ptx::atom_relaxed_gpu_global_add_u32(&args.counts[id], 1);
    args.routes[uint64_t{id} * args.m + place] = route;
    args.expert_weights[route] = weight;
  }
}

// `blocks` blocks of a token, from `first` on.
KB_DEVICE void load_part(bf16 (&values)[kValues], const Arguments& args, uint32_t token,
                         uint32_t first) {
#pragma unroll
  for (uint32_t i = 0; i < kValues; ++i) {
    const uint32_t index = first * kFp8Block + i * kThreads + ptx::thread_index();
    values[i] = index < args.k ? args.hidden[uint64_t{token} * args.k + index] : bf16{};
  }
}

KB_DEVICE void quantize_part(SharedStorage& shared, const bf16 (&values)[kValues],
                             const Arguments& args, uint32_t token, uint32_t first) {
#pragma unroll
  for (uint32_t i = 0; i < kValues; ++i) {
    const uint32_t warp = (i * kThreads + ptx::thread_index()) / 32;
    const float amax = largest_of_warp(std::fabs(float_of(values[i])));
    if (ptx::lane_index() == 0) shared.amax[warp / kBlockWarps][warp % kBlockWarps] = amax;
  }
  ptx::bar_sync();
#pragma unroll
  for (uint32_t i = 0; i < kValues; ++i) {
    const uint32_t index = first * kFp8Block + i * kThreads + ptx::thread_index();
    const uint32_t block = index / kFp8Block;
    float amax = shared.amax[block - first][0];
    for (uint32_t warp = 1; warp < kBlockWarps; ++warp) {
      amax = std::fmax(amax, shared.amax[block - first][warp]);
    }
    const float scale = fp8_scale(amax);
    const float value = float_of(values[i]) / scale;
    const uint32_t word = word_of_codes(ptx::cvt_rn_satfinite_e4m3x2_f32(value, 0).lo);
    if (index < args.k) {
      auto* codes = reinterpret_cast<uint32_t*>(args.codes + uint64_t{token} * args.k);
      if (ptx::lane_index() % 4 == 0) codes[index / 4] = word;
      if (index % kFp8Block == 0) args.scales[uint64_t{block} * args.m + token] = scale;
    }
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) route_tokens(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  ptx::griddepcontrol_launch_dependents();
  const uint32_t token = ptx::cta_index().x;
  bf16 values[kValues];
  load_part(values, args, token, 0);  // on their way while the warps order their logits
  order_warp(shared, args, token);
  auto* output = reinterpret_cast<Vector*>(args.output + uint64_t{token} * args.n);
  for (uint32_t i = ptx::thread_index(); i < args.n * sizeof(float) / sizeof(Vector);
       i += kThreads) {
    output[i] = {};
  }
  ptx::bar_sync();
  if (ptx::warp_index() == 0) choose_experts(shared, args, token);
  const uint32_t blocks = args.k / kFp8Block;
  quantize_part(shared, values, args, token, 0);
  for (uint32_t first = kPartBlocks; first < blocks; first += kPartBlocks) {
    load_part(values, args, token, first);
    ptx::bar_sync();  // read by all, before the next part is written
    quantize_part(shared, values, args, token, first);
  }
}

}  // namespace kb::step::route_quantize
