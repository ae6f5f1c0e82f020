// The whole call in one kernel: persistent CTAs that route and quantize tokens, meet once, and then
// multiply. See layout.cuh for the roles of the warps.
//
// What routing reads is requested first of all. Then each CTA's first weights are requested: their
// expert is known before any token has been routed.
#pragma once

#include "multiply.cuh"
#include "route.cuh"

namespace kb::step::fused {

// Keeps a token's experts together, as TokenRoutes.
struct KeepRoutes {
  static constexpr uint32_t kWarps = kRouteWarps;
  TokenRoutes* routes;

  // Lanes 0 to 3 write the ids, 4 to 7 the padding, 8 to 15 the weights: whole sectors at a time.
  // Lane s + 8 has the same expert as lane s.
  KB_DEVICE void operator()(uint32_t token, uint32_t id, float weight) const {
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

// One warp: each lane has some.
template <uint32_t kTokens>
KB_DEVICE void init_barriers(SharedStorage<kTokens>& shared) {
  static_assert(kStages<kTokens> <= 32 && kSlots <= 32, "a lane has one of each");
  const uint32_t lane = ptx::lane_index();
  if (lane < kStages<kTokens>) {
    ptx::mbarrier_init(&shared.full[lane], 1);
    ptx::mbarrier_init(&shared.empty[lane], kMultiplyWarps);
  }
  if (lane < kSlots) {
    ptx::mbarrier_init(&shared.slot_full[lane], kGatherThreads);
    ptx::mbarrier_init(&shared.slot_empty[lane], kMultiplyWarps);
  }
  if (lane < 2) {
    ptx::mbarrier_init(&shared.item_full[lane], kGatherThreads + 1);
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
  const bool meets = thread == 32 * kListWarp - 1;
  float logits[kLogits];
  Vector values[kUnitsAhead];
  uint32_t before = 0;
  const uint32_t token = first_token<KeepRoutes>();
  if (token < args.m && args.experts <= 32 * kLogits) load_logits(logits, args, token);
  if (meets) {
    before = args.meeting->barrier;
    if (ptx::cta_index().x == 0) args.meeting->claims = 0;
  }
  if (multiplies) {
    load_first_units(values, args);
    for (uint32_t e = thread; e < kMaxExperts; e += kMultiplyThreads) shared.counts[e] = 0;
    if (thread < 2) (thread == 0 ? shared.idle : shared.idle_below) = 0;
  }
  route_tokens(logits, args, KeepRoutes{args.routes});
  if (multiplies) {
    quantize_tokens(values, args);
    clear_outputs(args);
  }
  ptx::bar_sync(kRouteBarrier, kThreads);
  if (meets) meet_all(&args.meeting->barrier, before);
  ptx::bar_sync(kMetBarrier, kRouteThreads);
  if (multiplies) {
    multiply_items(shared, args);
  } else if (warp >= kListWarp) {
    list_items(shared, args);
  } else {
    gather_tokens(shared, args);
  }
}

}  // namespace kb::step::fused
