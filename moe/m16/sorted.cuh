// The whole call in one kernel, where an expert has many tokens: persistent CTAs that route and
// quantize tokens, meet once, and then multiply expert by expert. See sorted_layout.cuh.
#pragma once

#include "route.cuh"
#include "sorted_multiply.cuh"

namespace kb::step::sorted {

// A route whose place in its expert's list is on its way.
struct Pending {
  Route* list = nullptr;  // null: there is none
  uint32_t place;
  Route route;

  KB_DEVICE void write() {
    if (list != nullptr) list[place] = route;
    list = nullptr;
  }
};

// Adds a token to the lists of its experts. The route is written with the next token's, or at the
// end: a place takes about as long to come as the choice of experts.
struct ListRoutes {
  Route* routes;  // [experts, m]
  Count* counts;
  uint32_t m, topk;
  Pending& pending;

  KB_DEVICE void operator()(uint32_t token, uint32_t id, float weight) const {
    pending.write();
    if (ptx::lane_index() >= topk) return;
    const uint32_t place = ptx::atom_relaxed_gpu_global_add_u32(&counts[id].routes, 1);
    pending = {routes + uint64_t{id} * m, place, {token, weight}};
  }
};

// As choose_among_many: a reference to `pending` would put it in memory.
KB_DEVICE_APART void list_among_many(const Arguments& args, Count* counts, uint32_t token) {
  float logits[kMaxExperts / 32];
  load_logits(logits, args, token);
  Pending pending;
  choose_experts(logits, args, ListRoutes{args.routes, counts, args.m, args.topk, pending}, token);
  pending.write();
}

// The CTA's tokens that a warp routes, by their index in the CTA: first, first + stride, ...
struct Turns {
  uint32_t first, stride, end;
};

// Of few tokens each warp has one at most, first of all. Where a CTA has more, the warps that
// gather route half of them while the others quantize; these have the rest, afterwards.
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

KB_DEVICE uint32_t token_at(uint32_t index) {
  return ptx::cta_index().x + index * ptx::cta_count().x;
}

// The first token's logits are loaded before, if the experts are few.
KB_DEVICE void list_tokens(float (&logits)[kLogits], const Arguments& args, Count* counts,
                           const Turns& turns, Pending& pending) {
  const ListRoutes keep{args.routes, counts, args.m, args.topk, pending};
#pragma unroll 1
  for (uint32_t i = turns.first; i < turns.end; i += turns.stride) {
    if (args.experts > 32 * kLogits) [[unlikely]] {
      list_among_many(args, counts, token_at(i));
      continue;
    }
    choose_experts(logits, args, keep, token_at(i));
    if (i + turns.stride < turns.end) load_logits(logits, args, token_at(i + turns.stride));
  }
}

// One warp.
template <uint32_t kTokens>
KB_DEVICE void init_barriers(SharedStorage<kTokens>& shared) {
  static_assert(kStages<kTokens> <= 32 && kQueue <= 32, "a lane has one of each");
  const uint32_t lane = ptx::lane_index();
  if (lane < kStages<kTokens>) {
    ptx::mbarrier_init(&shared.full[lane], 1);
    ptx::mbarrier_init(&shared.codes_full[lane], kGatherThreads);
    ptx::mbarrier_init(&shared.empty[lane], kMultiplyWarps);
  }
  if (lane < 2) {
    ptx::mbarrier_init(&shared.item_full[lane], 1);
    ptx::mbarrier_init(&shared.item_empty[lane], kMultiplyWarps);
  }
  if (lane < kQueue) {
    ptx::mbarrier_init(&shared.place_full[lane], 1);
    ptx::mbarrier_init(&shared.place_empty[lane], kGatherWarps);
  }
  if (lane == 0) ptx::mbarrier_init(&shared.counted, 1);
  ptx::fence_mbarrier_init_release_cluster();
  ptx::bar_warp_sync();
}

// One thread of each CTA, after its others have come. The CTAs' shares add up to bit 31: it changes
// when all have come, and nothing has to be set back. `before` is the word at the kernel's start.
KB_DEVICE void meet_all(uint32_t* barrier, uint32_t before) {
  constexpr uint32_t kTurn = 1u << 31;
  const uint32_t share = ptx::cta_index().x == 0 ? kTurn - (ptx::cta_count().x - 1) : 1;
  ptx::red_release_gpu_global_add_u32(barrier, share);
  global_wait_changed(barrier, before, kTurn);
}

// The counts of the next call, by the warps that multiply.
KB_DEVICE void clear_counts(Count* counts) {
  const uint32_t first = ptx::cta_index().x * kMultiplyThreads + ptx::thread_index();
  for (uint32_t e = first; e < kMaxExperts; e += ptx::cta_count().x * kMultiplyThreads) {
    counts[e].routes = 0;
  }
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
    quantize_units(packed, args, units);
    request_units(shared, args, group, ahead);
    if (++group == kGroupsAhead<kTokens>) group = 0;
  }
  ptx::cp_async_wait_group<0>();  // the slots are the tokens' from here on
}

// All but the load warp: routes and quantizes the CTA's tokens and meets the other CTAs. Returns
// the counts.
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
  // Each warp looks for itself: its CTA has not met the others yet, so that bit 31 is still.
  const uint32_t before = args.meeting->barrier;
  const uint32_t turn = before >> 31;
  Count* counts = args.meeting->counts[turn];
  if (cta == 0 && ptx::thread_index() == 0) args.meeting->claims = 0;
  Pending pending;
  const bool routes_first = !multiplies || tokens <= kFewTokens;
#pragma unroll 1
  for (uint32_t phase = 0; phase < 2; ++phase) {  // a loop, so that the code is there once
    if ((phase == 0) == routes_first) {
      list_tokens(logits, args, counts, turns, pending);
    } else if (multiplies) {
      quantize_many(shared, args, ahead);
      clear_counts(args.meeting->counts[turn ^ 1]);
    }
  }
  pending.write();
  ptx::bar_sync(kRouteBarrier, kThreads);
  if (ptx::thread_index() == 0) meet_all(&args.meeting->barrier, before);
  ptx::bar_sync(kMetBarrier, kRouteThreads);
  return counts;
}

template <uint32_t kTokens>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) run_call(KB_GRID_CONSTANT(Arguments) args) {
  auto& shared = shared_storage<SharedStorage<kTokens>>();
  const uint32_t warp = ptx::warp_index();
  const Count* counts = nullptr;
  if (warp == kLoadWarp) {  // starts at once: no other one waits for it before the routing is done
    init_barriers(shared);
    ptx::bar_arrive(kRouteBarrier, kThreads);
    if (ptx::lane_index() == 0) load_first_blocks(shared, args);
    ptx::bar_warp_sync();
  } else {
    counts = prepare_tokens(shared, args);
  }
  if (warp < kMultiplyWarps) {
    ptx::setmaxnreg_inc<kMultiplyRegisters>();
    list_items(shared, args, counts);
    multiply_items(shared, args);
  } else {
    ptx::setmaxnreg_dec<kLoadRegisters>();
    if (warp != kLoadWarp) {
      gather_tokens(shared, args, counts);
    } else {
      load_weights(shared, args);
    }
  }
}

}  // namespace kb::step::sorted
