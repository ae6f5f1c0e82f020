// The whole call in one kernel: persistent CTAs that route and quantize tokens, wait for each other
// once, and then multiply. See layout.cuh for the roles of the warps.
//
// What routing reads is requested first of all. Then each CTA's first weights are requested: their
// expert is known before any token has been routed.
#pragma once

#include "grid_barrier.cuh"
#include "load.cuh"
#include "multiply.cuh"
#include "route.cuh"
#include "zeroing.cuh"

namespace kb::step::fused {

template <uint32_t kTokens>
KB_DEVICE void init_barriers(SharedStorage<kTokens>& shared) {
  for (Mbarrier& bar : shared.full) ptx::mbarrier_init(&bar, 2);  // the weights, their scale
  for (Mbarrier& bar : shared.empty) ptx::mbarrier_init(&bar, kMultiplyWarps);
  for (Mbarrier& bar : shared.slot_full) ptx::mbarrier_init(&bar, kGatherThreads);
  for (Mbarrier& bar : shared.slot_empty) ptx::mbarrier_init(&bar, kMultiplyWarps);
  for (Mbarrier& bar : shared.item_full) ptx::mbarrier_init(&bar, kGatherThreads + 1);
  for (Mbarrier& bar : shared.item_empty) ptx::mbarrier_init(&bar, kMultiplyWarps);
  ptx::mbarrier_init(&shared.counted, 1);
  ptx::fence_mbarrier_init_release_cluster();
}

template <uint32_t kTokens>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) run_call(KB_GRID_CONSTANT(Arguments) args) {
  auto& shared = shared_storage<SharedStorage<kTokens>>();
  const uint32_t warp = ptx::warp_index();
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t thread = ptx::thread_index();
  const bool waits = thread == kThreads - 1;  // for the other CTAs
  float logits[kLogits];
  Vector values;
  uint32_t before = 0;
  if (warp >= kGatherWarp) {
    const uint32_t token = cta + (warp - kGatherWarp) * ptx::cta_count().x;
    if (token < args.m) load_logits(logits, args, token);
    if (waits) before = *args.barrier;
  } else if (warp < kMultiplyWarps) {
    const uint32_t units = tokens_of_cta(args) * (args.k / kFp8Block);
    const uint32_t own = thread / kGroup;
    if ((own & ~1u) < units) values = load_values(args, own < units ? own : own & ~1u);
    for (uint32_t e = thread; e < kMaxExperts; e += kMultiplyThreads) shared.counts[e] = 0;
    if (thread < 2) (thread == 0 ? shared.idle : shared.idle_below) = 0;
  } else if (ptx::lane_index() == 0) {
    init_barriers(shared);
    if (has_first_item(args)) {
      const Item item = first_item<kTokens>(args);
      load_first_blocks(shared, args, item, 0, early_blocks<kTokens>(args, item));
    }
  }
  ptx::bar_sync();

  if (warp == kLoadWarp) {
    if (ptx::lane_index() == 0) load_weights(shared, args);
    return;
  }
  if (warp >= kGatherWarp) {
    route_tokens(logits, args, warp - kGatherWarp);
  } else {
    quantize_tokens(values, args);
    clear_outputs(args);
  }
  ptx::bar_sync(kRouteBarrier, kRouteThreads);
  if (waits) grid_barrier(args.barrier, before);
  ptx::bar_sync(kRouteBarrier, kRouteThreads);
  if (warp >= kGatherWarp) {
    gather_tokens(shared, args);
  } else {
    list_items(shared, args);
    multiply_items(shared, args);
  }
}

}  // namespace kb::step::fused
