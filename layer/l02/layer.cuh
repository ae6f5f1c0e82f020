// The whole layer in one kernel: persistent CTAs that count the routes, quantize the tokens of
// their items, and multiply twice, with h in shared memory between. They wait for each other once,
// before the first sums are added to the output, which they have set to zero.
#pragma once

#include "load.cuh"
#include "multiply.cuh"

namespace kb::step {

// One warp: each lane has some.
template <uint32_t kTokens>
KB_DEVICE void init_barriers(SharedStorage<kTokens>& shared) {
  const uint32_t lane = ptx::lane_index();
  if (lane < kStages<kTokens>) {
    ptx::mbarrier_init(&shared.full[lane], 1);
    ptx::mbarrier_init(&shared.empty[lane], kMultiplyWarps);
  }
  if (lane < 2) {
    ptx::mbarrier_init(&shared.item_full[lane], 2 * kGatherThreads);
    ptx::mbarrier_init(&shared.item_empty[lane], kMultiplyWarps);
  }
  if (lane < kBuffers<kTokens>) ptx::mbarrier_init(&shared.codes_empty[lane], kMultiplyWarps);
  if (lane < kQueue) {
    ptx::mbarrier_init(&shared.place_full[lane], 1);
    ptx::mbarrier_init(&shared.place_empty[lane], kGatherWarps);
  }
  if (lane == 0) ptx::mbarrier_init(&shared.routed, 1);
  ptx::fence_mbarrier_init_release_cluster();
}

// What the first items need is cold: asked for before any weights.
KB_DEVICE void prefetch(const Arguments& args) {
  const uint32_t bytes = args.blocks * kBlock * sizeof(bf16);
  for (uint32_t token = ptx::cta_index().x; token < args.m; token += ptx::cta_count().x) {
    ptx::cp_async_bulk_prefetch_l2_global(args.hidden + uint64_t{token} * args.blocks * kBlock,
                                          bytes);
  }
  const uint32_t weights = args.m * args.topk * sizeof(float) / 16 * 16;
  if (ptx::cta_index().x == 0 && weights != 0) {
    ptx::cp_async_bulk_prefetch_l2_global(args.expert_weights, weights);
  }
}

struct alignas(16) Zeros {
  float values[4];
};

// By the threads that gather: the CTA's share of the output.
KB_DEVICE void clear_outputs(const Arguments& args, uint32_t thread) {
  const uint32_t count = args.m * args.blocks * (kBlock / 4);
  auto* output = reinterpret_cast<Zeros*>(args.output);
  for (uint32_t i = ptx::cta_index().x * kGatherThreads + thread; i < count;
       i += ptx::cta_count().x * kGatherThreads) {
    output[i] = {};
  }
}

// One thread of each CTA, after its others have come. The CTAs' shares add up to bit 31: it changes
// when all have come, and nothing has to be set back.
KB_DEVICE void arrive_at_meeting(const Arguments& args, uint32_t before) {
  constexpr uint32_t kTurn = 1u << 31;
  const bool leads = ptx::cta_index().x == 0;
  if (leads) args.meeting->claims[before >> 31 ^ 1] = 0;  // for the next call
  ptx::red_release_gpu_global_add_u32(&args.meeting->barrier,
                                      leads ? kTurn - (ptx::cta_count().x - 1) : 1);
}

template <uint32_t kTokens>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) run_layer(KB_GRID_CONSTANT(Arguments) args) {
  auto& shared = shared_storage<SharedStorage<kTokens>>();
  const uint32_t warp = ptx::warp_index();
  const uint32_t before = args.meeting->barrier;
  if (warp == kLoadWarp) init_barriers(shared);
  if (ptx::thread_index() == 32 * kGatherWarp) prefetch(args);
  for (uint32_t e = ptx::thread_index(); e < kMaxExperts; e += kThreads) shared.counts[e] = 0;
  ptx::bar_sync();
  if (warp == kLoadWarp) {
    if (ptx::lane_index() == 0) load_weights(shared, args, before);
    return;
  }
  const uint32_t route_warp = warp < kLoadWarp ? warp : warp - 1;
  const uint32_t thread = 32 * route_warp + ptx::lane_index();
  count_routes(shared, args, thread);
  if (warp >= kGatherWarp) clear_outputs(args, thread - kMultiplyThreads);
  ptx::bar_sync(kRouteBarrier, kRouteThreads);
  if (thread == kRouteThreads - 1) arrive_at_meeting(args, before);
  if (warp == 0) {
    sum_pieces(shared, args);
    ptx::bar_warp_sync();
    if (thread == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.routed);
  }
  ptx::bar_sync(kRouteBarrier, kRouteThreads);
  gather_first(shared, args, route_warp);
  if (warp < kMultiplyWarps) {
    multiply_items(shared, args, before);
  } else {
    gather_items(shared, args);
  }
}

}  // namespace kb::step
