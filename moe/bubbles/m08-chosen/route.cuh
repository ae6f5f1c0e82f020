// Routing and quantization, token by token: CTA c has the tokens c, c + CTAs, ...
//
// The warps that gather choose experts, one token each; those that multiply quantize, 16 threads a
// block of 128.
#pragma once

#include <cmath>

#include "layout.cuh"
#include "ptx/cvt.cuh"
#include "ptx/warp.cuh"
#include "top_k.cuh"
#include "warp_values.cuh"

namespace kb::step {

inline constexpr uint32_t kLogits = kMaxExperts / 32;  // of a lane
inline constexpr uint32_t kGroup = 16;                 // threads that have a block of 128
inline constexpr uint32_t kGroups = kMultiplyThreads / kGroup;

// ---- Experts

// A lane has the logits of experts lane, lane + 32, ...
KB_DEVICE void load_logits(float (&logits)[kLogits], const Arguments& args, uint32_t token) {
#pragma unroll
  for (uint32_t i = 0; i < kLogits; ++i) {
    const uint32_t expert = i * 32 + ptx::lane_index();
    if (expert < args.experts) logits[i] = args.gating[uint64_t{token} * args.experts + expert];
  }
}

// The weights' common divisor: over the chosen experts, or over all. NaN if one logit is.
template <uint32_t kCount>
KB_DEVICE float weights_divisor(const uint32_t (&keys)[kCount], const Arguments& args,
                                float largest, float chosen) {
  const uint32_t least_nan = ordered_bits(INFINITY) + 1;  // a NaN without sign; with it: the least
  bool nan = false;
  float sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    if (keys[i] == 0) continue;
    nan = nan || keys[i] >= least_nan || keys[i] < ordered_bits(-INFINITY);
    if (!args.renormalize) sum += std::exp(ordered_float(keys[i]) - largest);
  }
  if (ptx::vote_sync_any(nan)) return NAN;
  return sum_of_warp(args.renormalize ? chosen : sum);
}

template <uint32_t kCount>
KB_DEVICE void choose_experts(const float (&logits)[kLogits], const Arguments& args,
                              uint32_t token) {
  const uint32_t lane = ptx::lane_index();
  uint32_t keys[kCount];
  uint32_t left[kCount];
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    keys[i] = 0;
    if (i * 32 + lane < args.experts) {
      const float logit = logits[i];
      keys[i] =
          ordered_bits(args.softcap > 0 ? args.softcap * std::tanh(logit / args.softcap) : logit);
    }
    left[i] = keys[i];
  }
  // Lane s keeps the s-th largest.
  uint32_t id = kNoExpert;
  float logit = -INFINITY;
  float largest = 0;
  id = (token * 37 + lane % kMaxTopk * 29) % args.experts;
  logit = largest = ordered_float(left[0]);
  const float chosen = lane < args.topk ? std::exp(logit - largest) : 0;
  const float weight = chosen / weights_divisor(keys, args, largest, chosen);
  const uint32_t next = ptx::shfl_sync_bfly(id, 1);
  if (lane < kMaxTopk && lane % 2 == 0) args.ids[token].words[lane / 2] = id | next << 16;
  if (lane < args.topk) args.expert_weights[uint64_t{id} * args.m + token] = weight;
}

// The first token's logits are loaded before.
KB_DEVICE void route_tokens(float (&logits)[kLogits], const Arguments& args, uint32_t warp) {
  const uint32_t ctas = ptx::cta_count().x;
  for (uint32_t token = ptx::cta_index().x + warp * ctas; token < args.m;
       token += kGatherWarps * ctas) {
    if (args.experts <= kMaxExperts / 2) {
      choose_experts<kLogits / 2>(logits, args, token);
    } else {
      choose_experts<kLogits>(logits, args, token);
    }
    const uint32_t next = token + kGatherWarps * ctas;
    if (next < args.m) load_logits(logits, args, next);
  }
}

// ---- Quantization: units of work are the blocks of the CTA's tokens.

KB_DEVICE uint32_t tokens_of_cta(const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  return cta < args.m ? ceil_div(args.m - cta, ptx::cta_count().x) : 0;
}

// Where a thread's eight values of a unit start.
KB_DEVICE uint64_t place_of(const Arguments& args, uint32_t unit) {
  const uint32_t blocks = args.k / kFp8Block;
  const uint64_t token = ptx::cta_index().x + unit / blocks * ptx::cta_count().x;
  return token * args.k + unit % blocks * kFp8Block + ptx::thread_index() % kGroup * 8;
}

KB_DEVICE Vector load_values(const Arguments& args, uint32_t unit) {
  return *reinterpret_cast<const Vector*>(args.hidden + place_of(args, unit));
}

KB_DEVICE void quantize_unit(const Vector& packed, const Arguments& args, uint32_t unit) {
  float values[8];
  float amax = 0;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    values[i] = float_of(bf16{static_cast<uint16_t>(packed.words[i / 2] >> 16 * (i % 2))});
    amax = std::fmax(amax, std::fabs(values[i]));
  }
#pragma unroll
  for (uint32_t mask = kGroup / 2; mask != 0; mask /= 2) {
    amax = std::fmax(amax, ptx::shfl_sync_bfly(amax, mask));
  }
  const float scale = fp8_scale(amax);
  struct alignas(8) Codes {
    e4m3x2 pairs[4];
  } codes;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    codes.pairs[i] =
        ptx::cvt_rn_satfinite_e4m3x2_f32(values[2 * i] / scale, values[2 * i + 1] / scale);
  }
  const uint64_t place = place_of(args, unit);
  *reinterpret_cast<Codes*>(args.codes + place) = codes;
  if (ptx::thread_index() % kGroup == 0) args.scales[place / kFp8Block] = scale;
}

// The first unit's values are loaded before.
KB_DEVICE void quantize_tokens(const Vector& first, const Arguments& args) {
  constexpr uint32_t kAhead = 4;  // units whose values are on their way at a time
  const uint32_t units = tokens_of_cta(args) * (args.k / kFp8Block);
  // Whole warps: both groups of a warp go through the loops as often.
  const uint32_t own = ptx::thread_index() / kGroup;
  const uint32_t even = own & ~1u;
  if (even < units) quantize_unit(first, args, own < units ? own : even);
  for (uint32_t unit = even + kGroups; unit < units; unit += kAhead * kGroups) {
    Vector values[kAhead];
    uint32_t places[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t wanted = unit + i * kGroups + own % 2;
      places[i] = wanted < units ? wanted : units - 1;
      values[i] = load_values(args, places[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) quantize_unit(values[i], args, places[i]);
  }
}

}  // namespace kb::step
