// Weights: one thread claims items, hands them on, and streams their blocks of 128 x 128 through a
// ring: of each slice the gate and up matrices, in two halves of 64 columns, then all slices' part
// of the down matrix.
#pragma once

#include "items.cuh"
#include "pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "wait.cuh"

namespace kb::step {

// Passes a place of the list to the warps that gather, past its end too. Whether there is an item.
template <uint32_t kTokens>
KB_DEVICE bool hand_on(SharedStorage<kTokens>& shared, const Arguments& args,
                       PipelineState<kQueue>& turn, uint32_t place, Item& item) {
  mbarrier_wait_parity(&shared.place_empty[turn.stage], turn.phase ^ 1);
  shared.places[turn.stage] = place;
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_full[turn.stage]);
  turn.advance();
  return listed_item(shared, args, place, item);
}

template <uint32_t kTokens>
class WeightRing {
 public:
  KB_DEVICE explicit WeightRing(SharedStorage<kTokens>& shared)
      : shared_(shared), policy_(ptx::createpolicy_fractional_l2_evict_first()) {}

  // The next stage, from a box of `map`. Weights are read once: they leave the L2 to the output.
  KB_DEVICE void load(const TensorMap& map, uint32_t column, uint32_t group) {
    const uint32_t stage = state_.stage;
    mbarrier_wait_parity(&shared_.empty[stage], state_.phase ^ 1);
    // What the first tokens wait for is not to queue behind a ring full of weights.
    if (filled_ < kStages<kTokens>) {
      if (filled_ >= kPace) mbarrier_wait_parity(&shared_.full[filled_ - kPace], 0);
      ++filled_;
    }
    Mbarrier* full = &shared_.full[stage];
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full, kStageBytes);
    ptx::cp_async_bulk_tensor_4d_shared_global(shared_.weights[stage], &map,
                                               static_cast<int32_t>(column), 0, 0,
                                               static_cast<int32_t>(group), full, policy_);
    state_.advance();
  }

 private:
  SharedStorage<kTokens>& shared_;
  CachePolicy policy_;
  PipelineState<kStages<kTokens>> state_;
  uint32_t filled_ = 0;
};

// `turn`: bit 31 of the meeting's barrier when the kernel started.
template <uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args, uint32_t turn) {
  WeightRing<kTokens> ring(shared);
  PipelineState<kQueue> queued;
  mbarrier_wait_parity(&shared.routed, 0);
  Item item;
  uint32_t place = ptx::cta_index().x;
  while (hand_on(shared, args, queued, place, item)) {
    place = ptx::cta_count().x +
            ptx::atom_relaxed_gpu_global_add_u32(&args.meeting->claims[turn >> 31], 1);
    for (uint32_t half = 2 * item.slice; half < 2 * (item.slice + item.slices); ++half) {
      for (uint32_t block = 0; block < args.blocks; ++block) {
        ring.load(args.w13, block * kBlock, item.expert * 32 * args.slices + half * 8);
      }
    }
    for (uint32_t block = 0; block < args.blocks; ++block) {
      for (uint32_t slice = item.slice; slice < item.slice + item.slices; ++slice) {
        ring.load(args.w2, slice * kBlock, (item.expert * args.blocks + block) * 8);
      }
    }
  }
}

}  // namespace kb::step
