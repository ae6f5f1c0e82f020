// Where an expert has many tokens: what comes before the products. Which warp routes and quantizes
// which tokens, and when.
#pragma once

#include "grid_barrier.cuh"
#include "ptx/cp_async.cuh"
#include "sorted_quantize.cuh"
#include "sorted_route.cuh"
#include "zeroing.cuh"

namespace kb::step::sorted {

// Of few tokens each warp has one at most. Where a CTA has more, the warps that gather route half
// of them; the others have the rest, while the first values that they quantize are on their way.
inline constexpr uint32_t kFewTokens = kRouteThreads / 32;

KB_DEVICE Turns turns_of(uint32_t tokens) {
  const uint32_t warp = ptx::warp_index();
  const bool gathers = warp >= kGatherWarp;
  if (tokens <= kFewTokens) {
    return {gathers ? warp - kGatherWarp : kFewTokens - 1 - warp, kFewTokens, tokens};
  }
  if (gathers) return {warp - kGatherWarp, kGatherWarps, tokens / 2};
  return {tokens / 2 + warp, kMultiplyWarps, tokens};
}

// As quantize_tokens, for many units of a thread: several at a time, while others are on their way
// to shared memory, where the tokens of the first stages will be. A thread reads what it has
// requested itself.
inline constexpr uint32_t kUnitsAtOnce = 4;
inline constexpr uint32_t kSlotBytes = kMultiplyThreads * sizeof(Vector);
template <uint32_t kTokens>
inline constexpr uint32_t kGroupsAhead =
    kStages<kTokens> * kTokens * kTileK / (kUnitsAtOnce * kSlotBytes);

template <uint32_t kTokens>
KB_DEVICE Vector* slot_of(SharedStorage<kTokens>& shared, uint32_t group, uint32_t i) {
  return reinterpret_cast<Vector*>(shared.codes) + (group * kUnitsAtOnce + i) * kMultiplyThreads +
         ptx::thread_index();
}

// Moves `unit` past the units that are requested.
template <uint32_t kTokens>
KB_DEVICE void request_units(SharedStorage<kTokens>& shared, const Arguments& args, uint32_t group,
                             Unit& unit) {
#pragma unroll
  for (uint32_t i = 0; i < kUnitsAtOnce; ++i) {
    const bool exists = unit.token < args.m;
    ptx::cp_async_cg_shared_global_16(slot_of(shared, group, i),
                                      args.hidden + (exists ? place_of(args, unit) : 0),
                                      exists ? sizeof(Vector) : 0);
    unit = advanced(args, unit, kGroups);
  }
  ptx::cp_async_commit_group();
}

template <uint32_t kTokens>
KB_DEVICE Unit request_first_units(SharedStorage<kTokens>& shared, const Arguments& args) {
  Unit unit = first_unit(args);
#pragma unroll 1
  for (uint32_t group = 0; group < kGroupsAhead<kTokens>; ++group) {
    request_units(shared, args, group, unit);
  }
  return unit;
}

template <uint32_t kTokens>
KB_DEVICE void quantize_many(SharedStorage<kTokens>& shared, const Arguments& args, Unit ahead) {
  Unit unit = first_unit(args);
  uint32_t group = 0;
#pragma unroll 1
  while (ptx::vote_sync_any(unit.token < args.m)) {
    Vector packed[kUnitsAtOnce];
    Unit units[kUnitsAtOnce];
    ptx::cp_async_wait_group<kGroupsAhead<kTokens> - 1>();
#pragma unroll
    for (uint32_t i = 0; i < kUnitsAtOnce; ++i) {
      packed[i] = *slot_of(shared, group, i);
      units[i] = unit;
      unit = advanced(args, unit, kGroups);
    }
    quantize_in_step(packed, args, units);
    request_units(shared, args, group, ahead);
    if (++group == kGroupsAhead<kTokens>) group = 0;
  }
  ptx::cp_async_wait_group<0>();  // the slots are the tokens' from here on
}

// All but the load warp: routes and quantizes the CTA's tokens and waits for the other CTAs.
// Returns the counts.
template <uint32_t kTokens>
KB_DEVICE const Count* prepare_tokens(SharedStorage<kTokens>& shared, const Arguments& args) {
  const uint32_t warp = ptx::warp_index();
  const bool multiplies = warp < kMultiplyWarps;
  float logits[kLogits];
  Unit ahead;
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t tokens = args.m > cta ? ceil_div(args.m - cta, ptx::cta_count().x) : 0;
  const Turns turns = turns_of(tokens);
  if (turns.first < turns.end && args.experts <= 32 * kLogits) {
    load_logits(logits, args, token_at(turns.first));
  }
  if (multiplies) {
    ahead = request_first_units(shared, args);
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
    quantize_many(shared, args, ahead);
    clear_counts(args.grid->counts[turn ^ 1]);
  }
  pending.write();
  ptx::bar_sync(kRouteBarrier, kThreads);
  if (ptx::thread_index() == 0) grid_barrier(&args.grid->barrier, before);
  ptx::bar_sync(kGridBarrier, kRouteThreads);
  return counts;
}

}  // namespace kb::step::sorted
