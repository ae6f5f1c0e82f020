// The whole call in one kernel, where an expert has many tokens: persistent CTAs that route and
// quantize tokens, wait for each other once, and then multiply expert by expert. See
// sorted_layout.cuh.
#pragma once

#include "barrier_init.cuh"
#include "sorted_gather.cuh"
#include "sorted_load.cuh"
#include "sorted_multiply.cuh"
#include "sorted_prepare.cuh"

namespace kb::step::sorted {

// One warp.
template <uint32_t kTokens>
KB_DEVICE void init_barriers(SharedStorage<kTokens>& shared) {
  const uint32_t lane = ptx::lane_index();
  init_by_lanes(lane, shared.full, 1, shared.codes_full, kGatherThreads, shared.empty,
                kMultiplyWarps);
  init_by_lanes(lane, shared.item_full, 1, shared.item_empty, kMultiplyWarps);
  init_by_lanes(lane, shared.place_full, 1, shared.place_empty, kGatherWarps);
  if (lane == 0) ptx::mbarrier_init(&shared.counted, 1);
  ptx::fence_mbarrier_init_release_cluster();
  ptx::bar_warp_sync();
}

inline constexpr uint32_t kTokens = 144;  // of an item, at most

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
