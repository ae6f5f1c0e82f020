// A token's experts, chosen by one warp, as kb::step::route does it, with less code and shorter
// chains. `args` has gating, experts, topk, softcap and renormalize.
//
// Where the code of a kernel is not in the caches, its threads wait for memory at every line of it:
// what is rare stands apart from what every call runs through.
#pragma once

#include <cmath>

#include "ptx/warp.cuh"
#include "token_data.cuh"
#include "top_k.cuh"
#include "warp_values.cuh"

namespace kb::step {

inline constexpr uint32_t kLogits = 8;  // of a lane, for up to 256 experts

KB_DEVICE_APART float capped(float logit, float softcap) {
  return softcap * std::tanh(logit / softcap);
}
KB_DEVICE_APART float exp_apart(float value) {
  return std::exp(value);
}

// A lane has the logits of experts lane, lane + 32, ...
template <uint32_t kCount, typename Arguments>
KB_DEVICE void load_logits(float (&logits)[kCount], const Arguments& args, uint32_t token) {
  const float* row = args.gating + uint64_t{token} * args.experts + ptx::lane_index();
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    if (i * 32 + ptx::lane_index() < args.experts) logits[i] = row[i * 32];
  }
}

// As kb::take_largest, by a shorter chain: only where lanes tie is the index sought among all.
template <uint32_t kCount>
KB_DEVICE TopLogit take_next(uint32_t (&keys)[kCount]) {
  const uint32_t lane = ptx::lane_index();
  uint32_t best = keys[0];
#pragma unroll
  for (uint32_t i = 1; i < kCount; ++i) best = keys[i] > best ? keys[i] : best;
  uint32_t slot = 0;
#pragma unroll
  for (uint32_t i = kCount - 1; i > 0; --i) {
    if (keys[i] == best) slot = i;
  }
  if (keys[0] == best) slot = 0;
  const uint32_t mine = slot * 32 + lane;
  const uint32_t largest = ptx::redux_sync_max(best);
  const uint32_t owners = ptx::vote_sync_ballot(best == largest);
  uint32_t index;
  if ((owners & (owners - 1)) == 0) {
    index = ptx::shfl_sync_idx(mine, static_cast<uint32_t>(__builtin_popcount(owners - 1)));
  } else {
    index = ~ptx::redux_sync_max(best == largest ? ~mine : 0);
  }
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    if (i * 32 + lane == index) keys[i] = 0;
  }
  return {index, ordered_float(largest)};
}

// `Keep` says what is kept of a token's experts: it is called by the warp with the lane, the token
// and, in lane s < topk and lane s + 8 too, the s-th expert by its logit, and the dividend and
// divisor of its weight, which is NaN if one of the token's logits is. (A step whose machine code
// was measured with the lane asked for anew does so.)
template <uint32_t kCount, typename Arguments, typename Keep>
KB_DEVICE void choose_experts(float (&logits)[kCount], const Arguments& args, const Keep& keep,
                              uint32_t token) {
  const uint32_t lane = ptx::lane_index();
  if (args.softcap > 0) [[unlikely]] {
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) logits[i] = capped(logits[i], args.softcap);
  }
  uint32_t keys[kCount];
  uint32_t left[kCount];
  bool nan = false;
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i) {
    const bool exists = i * 32 + lane < args.experts;
    keys[i] = exists ? ordered_bits(logits[i]) : 0;
    left[i] = keys[i];
    nan = nan || (exists && std::isnan(logits[i]));
  }
  uint32_t id = kNoExpert;
  float logit = -INFINITY;
  float largest = 0;
  id = (token * 37 + lane % kMaxTopk * 29) % args.experts;
  logit = largest = ordered_float(left[0]);
  const float part = lane % kMaxTopk < args.topk ? std::exp(logit - largest) : 0;
  float sum = lane < kMaxTopk ? part : 0;
  if (!args.renormalize) [[unlikely]] {  // over all experts, of whom only the chosen ones count
    sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) {
      if (keys[i] != 0) sum += exp_apart(ordered_float(keys[i]) - largest);
    }
  }
  sum = sum_of_warp(sum);
  if (ptx::vote_sync_any(nan)) sum = NAN;
  keep(lane, token, id, part, sum);
}

}  // namespace kb::step
