// The whole layer in one kernel: persistent CTAs that count the routes, quantize tokens, and meet
// once. Then they multiply items: first all columns of h, then all outputs. An item of outputs
// waits for its own h only, which is there but for the last experts'.
#pragma once

#include "load.cuh"
#include "multiply.cuh"

namespace kb::step {

// By one lane of each warp: a lane after the other would initialize a warp's.
template <uint32_t kTokens>
KB_DEVICE void init_barriers(SharedStorage<kTokens>& shared) {
  constexpr uint32_t kWarps = kThreads / 32;
  if (ptx::lane_index() != 0) return;
  const uint32_t warp = ptx::warp_index();
  for (uint32_t i = warp; i < kStages<kTokens>; i += kWarps) {
    ptx::mbarrier_init(&shared.full[i], 1);
    ptx::mbarrier_init(&shared.empty[i], kMultiplyWarps);
  }
  for (uint32_t i = warp; i < kSlots<kTokens>; i += kWarps) {
    ptx::mbarrier_init(&shared.slot_full[i], kGatherThreads);
    ptx::mbarrier_init(&shared.slot_empty[i], kMultiplyWarps);
  }
  if (warp < 2) {
    ptx::mbarrier_init(&shared.item_full[warp], kGatherThreads + 1);
    ptx::mbarrier_init(&shared.item_empty[warp], kMultiplyWarps);
  }
  if (warp < kQueue) {
    ptx::mbarrier_init(&shared.place_full[warp], 1);
    ptx::mbarrier_init(&shared.place_empty[warp], kGatherWarps);
  }
  if (warp == kQueue) ptx::mbarrier_init(&shared.routed, 1);
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

// The next call's counters, by the threads of the first CTA that gather.
KB_DEVICE void clear_counters(const Arguments& args, uint32_t before, uint32_t thread) {
  const uint32_t next = before >> 31 ^ 1;
  if (thread == 0) args.meeting->claims[next] = 0;
  for (uint32_t i = thread; i < kMaxPieces; i += kGatherThreads) args.meeting->done[next][i] = 0;
}

// One thread of each CTA, after its others have come. The CTAs' shares add up to bit 31: it changes
// when all have come, and nothing has to be set back.
KB_DEVICE void arrive_at_meeting(const Arguments& args) {
  constexpr uint32_t kTurn = 1u << 31;
  const uint32_t share = ptx::cta_index().x == 0 ? kTurn - (ptx::cta_count().x - 1) : 1;
  ptx::red_release_gpu_global_add_u32(&args.meeting->barrier, share);
}

// By all warps but the one that loads: the list of items, tokens quantized, outputs zero. Then the
// CTA is at the meeting.
template <uint32_t kTokens>
KB_DEVICE void prepare(SharedStorage<kTokens>& shared, const Arguments& args, uint32_t before,
                       uint32_t thread) {
  const uint32_t warp = ptx::warp_index();
  const uint32_t gather_thread = thread - kMultiplyThreads;
  if (warp == kGatherWarp) {
    sum_pieces(shared, args);
    ptx::bar_warp_sync();
    if (gather_thread == 0) {
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.routed);
    }
  }
  if constexpr (kLists<kTokens>) {
    ptx::bar_sync(kRouteBarrier, kRouteThreads);
    list_routes(shared, args, thread);
  }
  if (warp >= kGatherWarp) {
    clear_outputs(args, gather_thread);
    if (ptx::cta_index().x == 0) clear_counters(args, before, gather_thread);
  } else {
    quantize_tokens<kTokens>(args);
  }
  ptx::bar_sync(kRouteBarrier, kRouteThreads);
  if (thread == kRouteThreads - 1) arrive_at_meeting(args);
}

// The roles, when the list of items is complete. `before`: the meeting's barrier at the start.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void run_role(SharedStorage<kTokens>& shared, const Arguments& args, uint32_t before) {
  const uint32_t warp = ptx::warp_index();
  if (warp < kMultiplyWarps) {
    multiply_items<kCut>(shared, args, before);
  } else if (warp == kLoadWarp) {
    load_weights<kCut>(shared, args, before);
  } else {
    gather_items<kCut>(shared, args, before);
  }
}

// The same of many tokens: the warps that multiply take over registers of the others.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void run_role_of_many(SharedStorage<kTokens>& shared, const Arguments& args,
                                uint32_t before) {
  const uint32_t warp = ptx::warp_index();
  if (warp < kMultiplyWarps) {
    ptx::setmaxnreg_inc<kMultiplyRegisters>();
    multiply_items<kCut>(shared, args, before);
  } else {
    ptx::setmaxnreg_dec<kOtherRegisters>();
    if (warp != kLoadWarp) return gather_items<kCut>(shared, args, before);
    if (ptx::lane_index() != 0) return;
    mbarrier_wait_parity(&shared.routed, 0);
    load_weights<kCut>(shared, args, before);
  }
}

template <Cut kCut, uint32_t kTokens>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) run_layer(KB_GRID_CONSTANT(Arguments) args) {
  auto& shared = shared_storage<SharedStorage<kTokens>>();
  const uint32_t warp = ptx::warp_index();
  const uint32_t before = args.meeting->barrier;
  init_barriers(shared);
  if (ptx::thread_index() == 32 * kGatherWarp) prefetch(args);
  const uint32_t thread = 32 * (warp < kLoadWarp ? warp : warp - 1) + ptx::lane_index();
  if (warp != kLoadWarp) {
    count_routes(shared, args, thread);
  } else if (ptx::lane_index() == 0) {
    ptx::prefetch_tensormap(&args.w13);
    ptx::prefetch_tensormap(&args.w2);
  }
  ptx::bar_sync();  // all barriers are initialized, too
  if constexpr (kMany<kTokens>) {
    if (warp != kLoadWarp) prepare(shared, args, before, thread);
    return run_role_of_many<kCut>(shared, args, before);
  }
  if (warp == kLoadWarp) {
    if (ptx::lane_index() != 0) return;
    mbarrier_wait_parity(&shared.routed, 0);
    return run_role<kCut>(shared, args, before);
  }
  prepare(shared, args, before, thread);
  run_role<kCut>(shared, args, before);
}

}  // namespace kb::step
