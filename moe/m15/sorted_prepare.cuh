// Where an expert has many tokens: what comes before the products. Which warp routes and quantizes
// which tokens, and when.
#pragma once

#include "grid_barrier.cuh"
#include "quantize_units.cuh"
#include "sorted_route.cuh"
#include "zeroing.cuh"

namespace kb::step::sorted {

// Of few tokens each warp has one at most, first of all. Where a CTA has more, the warps that
// gather route half of them while the others quantize; these have the rest, afterwards.
inline constexpr uint32_t kFewTokens = kRouteThreads / 32;

KB_DEVICE Turns first_turns(uint32_t tokens) {
  const uint32_t warp = ptx::warp_index();
  if (warp >= kGatherWarp) {
    const bool few = tokens <= kFewTokens;
    return {warp - kGatherWarp, few ? kFewTokens : kGatherWarps, few ? tokens : tokens / 2};
  }
  return {kFewTokens - 1 - warp, kFewTokens, tokens <= kFewTokens ? tokens : 0};
}

// What the warps that quantized have left to route. Apart: most calls have few tokens.
KB_DEVICE_APART void list_rest(const Arguments& args, Count* counts, uint32_t tokens) {
  const Turns turns{tokens / 2 + ptx::warp_index(), kMultiplyWarps, tokens};
  float logits[kLogits];
  if (turns.first < turns.end && args.experts <= 32 * kLogits) {
    load_logits(logits, args, token_at(turns.first));
  }
  Pending pending;
  list_tokens(logits, args, counts, turns, pending);
  pending.write();
}

inline constexpr uint32_t kUnitsAtOnce = 4;
inline constexpr uint32_t kUnitsAhead = 8;

// All but the load warp: routes and quantizes the CTA's tokens and waits for the other CTAs.
// Returns the counts.
template <uint32_t kTokens>
KB_DEVICE const Count* prepare_tokens(SharedStorage<kTokens>& /*shared*/, const Arguments& args) {
  const uint32_t warp = ptx::warp_index();
  const bool multiplies = warp < kMultiplyWarps;
  float logits[kLogits];
  Vector values[kUnitsAhead];
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t tokens = args.m > cta ? ceil_div(args.m - cta, ptx::cta_count().x) : 0;
  const Turns turns = first_turns(tokens);
  if (turns.first < turns.end && args.experts <= 32 * kLogits) {
    load_logits(logits, args, token_at(turns.first));
  }
  if (multiplies) {
    load_first_units(values, args);
    clear_outputs(args);
  }
  // Each warp looks for itself: the barrier has not been passed yet, so that bit 31 is still.
  const uint32_t before = args.grid->barrier;
  const uint32_t turn = before >> 31;
  Count* counts = args.grid->counts[turn];
  if (cta == 0 && ptx::thread_index() == 0) args.grid->claims = 0;
  Pending pending;
  list_tokens(logits, args, counts, turns, pending);
  if (multiplies) {
    quantize_in_batches<kUnitsAtOnce>(values, args);
    clear_counts(args.grid->counts[turn ^ 1]);
  }
  pending.write();
  if (multiplies && tokens > kFewTokens) [[unlikely]]
    list_rest(args, counts, tokens);
  ptx::bar_sync(kRouteBarrier, kThreads);
  if (ptx::thread_index() == 0) grid_barrier(&args.grid->barrier, before);
  ptx::bar_sync(kGridBarrier, kRouteThreads);
  return counts;
}

}  // namespace kb::step::sorted
