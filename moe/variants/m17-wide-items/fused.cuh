// The whole call in one kernel: persistent CTAs that route and quantize tokens, wait for each other
// once, and then multiply. See cta_roles.cuh for the roles of the warps.
//
// What routing reads is requested first of all. Then each CTA's first weights are requested: their
// expert is known before any token has been routed.
#pragma once

#include "barrier_init.cuh"
#include "grid_barrier.cuh"
#include "load.cuh"
#include "multiply.cuh"
#include "quantize_units.cuh"
#include "route_tokens.cuh"
#include "wide_gather.cuh"
#include "zeroing.cuh"

namespace kb::step::fused {

// One warp.
template <uint32_t kTokens>
KB_DEVICE void init_barriers(SharedStorage<kTokens>& shared) {
  const uint32_t lane = ptx::lane_index();
  init_by_lanes(lane, shared.full, 1, shared.empty, kMultiplyWarps);
  init_by_lanes(lane, shared.slot_full, kGatherThreads, shared.slot_empty, kMultiplyWarps);
  init_by_lanes(lane, shared.wide_full, kGatherThreads, shared.wide_empty, kMultiplyWarps);
  init_by_lanes(lane, shared.item_full, kGatherThreads + 1, shared.item_empty, kMultiplyWarps);
  init_by_lanes(lane, shared.place_full, 1, shared.place_empty, kGatherWarps);
  if (lane == 0) ptx::mbarrier_init(&shared.counted, 1);
  ptx::fence_mbarrier_init_release_cluster();
  ptx::bar_warp_sync();
}

// The load warp starts at once: no other one waits for it before the routing is done.
template <uint32_t kTokens>
KB_DEVICE void run_load_warp(SharedStorage<kTokens>& shared, const Arguments& args) {
  init_barriers(shared);
  ptx::bar_arrive(kRouteBarrier, kThreads);
  if (ptx::lane_index() == 0) load_weights(shared, args);
}

inline constexpr uint32_t kUnitsAhead = 4;  // of a thread that quantizes

template <uint32_t kTokens>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) run_call(KB_GRID_CONSTANT(Arguments) args) {
  auto& shared = shared_storage<SharedStorage<kTokens>>();
  const uint32_t warp = ptx::warp_index();
  if (warp == kLoadWarp) return run_load_warp(shared, args);

  const uint32_t thread = ptx::thread_index();
  const bool multiplies = warp < kMultiplyWarps;
  const bool waits = thread == 32 * kListWarp - 1;  // for the other CTAs
  float logits[kLogits];
  Vector values[kUnitsAhead];
  uint32_t before = 0;
  const uint32_t token = first_token(kRouteWarps);
  if (token < args.m && args.experts <= 32 * kLogits) load_logits(logits, args, token);
  if (waits) {
    before = args.grid->barrier;
    if (ptx::cta_index().x == 0) args.grid->claims = 0;
  }
  if (multiplies) {
    load_first_units(values, args);
    for (uint32_t e = thread; e < kMaxExperts; e += kMultiplyThreads) shared.counts[e] = 0;
    if (thread < 2) (thread == 0 ? shared.idle : shared.idle_below) = 0;
  }
  route_tokens(logits, args, KeepRoutes<kRouteWarps>{args.routes});
  if (multiplies) {
    quantize_tokens(values, args);
    clear_outputs(args);
  }
  ptx::bar_sync(kRouteBarrier, kThreads);
  if (waits) grid_barrier(&args.grid->barrier, before);
  ptx::bar_sync(kGridBarrier, kRouteThreads);
  if (multiplies) {
    multiply_items(shared, args);
  } else if (warp >= kListWarp) {
    list_items(shared, args);
  } else {
    gather_items(shared, args);
  }
}

}  // namespace kb::step::fused
