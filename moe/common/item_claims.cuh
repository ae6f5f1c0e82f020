// CTAs claim the places of the list of items one after another; the load warp claims, and passes
// the place to the warps that gather.
//
// `args.cut` says how pieces are cut: coarse, covered. `args.grid->claims` counts the claims.
// From the step: listed_item(shared, args, place, item), the item at a place; false past the end.
#pragma once

#include "first_items.cuh"
#include "item_list.cuh"
#include "pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "wait.cuh"

namespace kb {

inline constexpr uint32_t kQueue = 4;  // claimed items that the gathering warps have not seen

// Whether the CTA has nothing to do when the list is complete: no first item, or an empty one.
template <typename Shared, typename Arguments>
KB_DEVICE bool is_idle(const Shared& shared, const Arguments& args) {
  return !has_first_item(args) || shared.counts[ptx::cta_index().x / args.cut.coarse.all] == 0;
}

// A place of the list that is nobody's yet: the idle CTAs have the first ones, the others claim.
template <typename Shared, typename Arguments>
KB_DEVICE uint32_t claim_place(const Shared& shared, const Arguments& args) {
  return shared.idle + ptx::atom_relaxed_gpu_global_add_u32(&args.grid->claims, 1);
}

// By the load warp's thread: passes an item to the warps that gather, or that there is none.
// Whether there is one.
template <typename Shared, typename Arguments>
KB_DEVICE bool hand_on(Shared& shared, const Arguments& args, PipelineState<kQueue>& turn,
                       uint32_t place, Item& item) {
  const bool some = listed_item(shared, args, place, item);
  mbarrier_wait_parity(&shared.place_empty[turn.stage], turn.phase ^ 1);
  shared.places[turn.stage] = some ? place : kNoItem;
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_full[turn.stage]);
  turn.advance();
  return some;
}

// By a warp that gathers: the next item that was handed on; false after the last.
template <typename Shared, typename Arguments>
KB_DEVICE bool next_item(Shared& shared, const Arguments& args, PipelineState<kQueue>& queued,
                         Item& item) {
  mbarrier_wait_parity(&shared.place_full[queued.stage], queued.phase);
  const uint32_t place = shared.places[queued.stage];
  ptx::bar_warp_sync();
  if (ptx::lane_index() == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_empty[queued.stage]);
  }
  queued.advance();
  return place != kNoItem && listed_item(shared, args, place, item);
}

}  // namespace kb
