// Routing, token by token: CTA c has the tokens c, c + CTAs, ... and a warp chooses a token's
// experts: the warps that gather first, those that multiply where a CTA has more tokens.
//
// `Keep` is as for choose_experts, and has kWarps, the number of warps that route.
#pragma once

#include "choose_experts.cuh"
#include "cta_roles.cuh"

namespace kb::step {

// Keeps a token's experts together, as TokenRoutes.
template <uint32_t kRouteWarps>
struct KeepRoutes {
  static constexpr uint32_t kWarps = kRouteWarps;
  TokenRoutes* routes;

  // Lanes 0 to 3 write the ids, 4 to 7 the padding, 8 to 15 the weights: whole sectors at a time.
  // Lane s + 8 has the same expert as lane s.
  KB_DEVICE void operator()(uint32_t /*lane*/, uint32_t token, uint32_t id, float part,
                            float sum) const {
    const float weight = part / sum;
    const uint32_t lane = ptx::lane_index();
    const uint32_t even = ptx::shfl_sync_idx(id, 2 * lane % 32);
    const uint32_t odd = ptx::shfl_sync_idx(id, (2 * lane + 1) % 32);
    uint32_t word = __builtin_bit_cast(uint32_t, weight);
    if (lane < 8) word = lane < 4 ? even | odd << 16 : 0;
    if (lane < sizeof(TokenRoutes) / sizeof(word)) {
      reinterpret_cast<uint32_t*>(routes + token)[lane] = word;
    }
  }
};

// The first token whose experts the warp chooses, of `warps` that route: those that multiply come
// last.
KB_DEVICE uint32_t first_token(uint32_t warps) {
  const uint32_t warp = ptx::warp_index();
  const uint32_t turn = warp < kMultiplyWarps ? warps - 1 - warp : warp - kGatherWarp;
  return ptx::cta_index().x + turn * ptx::cta_count().x;
}

template <typename Arguments, typename Keep>
KB_DEVICE_APART void route_among_many(const Arguments& args, Keep keep, uint32_t token) {
  float logits[kMaxExperts / 32];
  load_logits(logits, args, token);
  choose_experts(logits, args, keep, token);
}

// The first token's logits are loaded before, if the experts are few.
template <typename Arguments, typename Keep>
KB_DEVICE void route_tokens(float (&logits)[kLogits], const Arguments& args, const Keep& keep) {
  const uint32_t stride = Keep::kWarps * ptx::cta_count().x;
#pragma unroll 1
  for (uint32_t token = first_token(Keep::kWarps); token < args.m; token += stride) {
    if (args.experts > 32 * kLogits) [[unlikely]] {
      route_among_many(args, keep, token);
      continue;
    }
    choose_experts(logits, args, keep, token);
    if (token + stride < args.m) load_logits(logits, args, token + stride);
  }
}

}  // namespace kb::step
