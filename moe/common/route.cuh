// Route: softmax over a token's logits, its `topk` largest. One warp for each token.
#pragma once

#include <cmath>

#include "ptx/warp.cuh"
#include "top_k.cuh"
#include "warp_values.cuh"

namespace kb::step::route {

inline constexpr uint32_t kThreads = 32;

struct Arguments {
  const float* gating;    // [m, experts]
  uint32_t* ids;          // [m, topk]
  float* expert_weights;  // [m, topk]
  uint32_t experts;
  uint32_t topk;
  bool renormalize;
  float softcap;
};

// One warp; up to 32 kCount experts.
template <uint32_t kCount>
KB_DEVICE void route_token(const Arguments& args, uint32_t token) {
  const uint32_t lane = ptx::lane_index();
  const float* gating = args.gating + uint64_t{token} * args.experts;
  uint32_t keys[kCount];
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint32_t expert = i * 32 + lane;
    keys[i] = 0;
    if (expert < args.experts) {
      const float logit = gating[expert];
      keys[i] =
          ordered_bits(args.softcap > 0 ? args.softcap * std::tanh(logit / args.softcap) : logit);
    }
  }
  uint32_t all_keys[kCount];
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) all_keys[i] = keys[i];

  TopLogit top = take_largest(keys);
  const float largest = top.logit;
  float sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    if (all_keys[i] != 0) sum += std::exp(ordered_float(all_keys[i]) - largest);
  }
  sum = sum_of_warp(sum);

  // Lane s keeps the s-th largest.
  uint32_t id = 0;
  float weight = 0;
  for (uint32_t s = 0; s < args.topk; ++s) {
    if (s != 0) top = take_largest(keys);
    if (lane == s) {
      id = top.index;
      weight = std::exp(top.logit - largest) / sum;
    }
  }
  if (args.renormalize) weight /= sum_of_warp(weight);
  if (lane < args.topk) {
    args.ids[uint64_t{token} * args.topk + lane] = id;
    args.expert_weights[uint64_t{token} * args.topk + lane] = weight;
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) route_tokens(KB_GRID_CONSTANT(Arguments) args) {
  constexpr uint32_t kHalf = kMaxExperts / 2;
  const uint32_t token = ptx::cta_index().x;
  if (args.experts <= kHalf) {
    route_token<kHalf / 32>(args, token);
  } else {
    route_token<kMaxExperts / 32>(args, token);
  }
}

}  // namespace kb::step::route
