// Weights: one thread claims items, hands them on, and streams their weights through a ring of
// stages of 16 KB.
#pragma once

#include "items.cuh"
#include "pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "wait.cuh"

namespace kb::step {

// Passes a place of the list to the warps that gather, past its end too. Whether there is an item.
template <bool kFine, uint32_t kTokens>
KB_DEVICE bool hand_on(SharedStorage<kTokens>& shared, const Arguments& args,
                       PipelineState<kQueue>& turn, uint32_t place, Item& item) {
  mbarrier_wait_parity(&shared.place_empty[turn.stage], turn.phase ^ 1);
  shared.places[turn.stage] = place;
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_full[turn.stage]);
  turn.advance();
  return listed_item<kFine>(shared, args, place, item);
}

template <bool kFine, uint32_t kTokens>
class WeightRing {
 public:
  KB_DEVICE explicit WeightRing(SharedStorage<kTokens>& shared)
      : shared_(shared), policy_(ptx::createpolicy_fractional_l2_evict_first()) {}

  // Waits for the next stage, which will get so many bytes.
  KB_DEVICE void begin(uint32_t bytes) {
    mbarrier_wait_parity(&shared_.empty[state_.stage], state_.phase ^ 1);
    // What else the CTAs ask memory for, their code too, is not to queue behind rings of weights.
    if (begun_ < kInFlightOf<kTokens>) {
      ++begun_;
    } else {
      mbarrier_wait_parity(&shared_.full[landed_.stage], landed_.phase);
      landed_.advance();
    }
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared_.full[state_.stage],
                                   bytes);
  }
  // A box of `map`, to the stage from `offset` on. Weights are read once: they leave the L2 to the
  // output and to what CTAs pass to each other.
  KB_DEVICE void load(const TensorMap& map, uint32_t column, uint32_t group, uint32_t offset = 0) {
    ptx::cp_async_bulk_tensor_4d_shared_global(
        shared_.weights[state_.stage] + offset, &map, static_cast<int32_t>(column), 0, 0,
        static_cast<int32_t>(group), &shared_.full[state_.stage], policy_);
  }
  KB_DEVICE void advance() { state_.advance(); }

 private:
  SharedStorage<kTokens>& shared_;
  CachePolicy policy_;
  PipelineState<kStages<kTokens>> state_;
  PipelineState<kStages<kTokens>> landed_;  // the oldest load that is not known to be complete
  uint32_t begun_ = 0;                      // the first loads
};

// 128 columns: two halves of 64 columns of gate and up, block by block. 32 columns: two blocks a
// stage, one for each warpgroup.
template <bool kFine, uint32_t kTokens>
KB_DEVICE void load_columns(WeightRing<kFine, kTokens>& ring, const Arguments& args,
                            const Item& item) {
  const uint32_t group = item.expert * 32 * args.slices + item.part * (kItemColumns<kFine> / 8);
  if constexpr (kFine) {
    constexpr uint32_t kHalf = kStageBytes / 2;
    for (uint32_t block = 0; block < args.blocks; block += 2) {
      const bool both = block + 1 < args.blocks;
      ring.begin(both ? kStageBytes : kHalf);
      ring.load(args.w13, block * kBlock, group);
      if (both) ring.load(args.w13, (block + 1) * kBlock, group, kHalf);
      ring.advance();
    }
  } else {
    for (uint32_t half = 0; half < 2; ++half) {
      for (uint32_t block = 0; block < args.blocks; ++block) {
        ring.begin(kStageBytes);
        ring.load(args.w13, block * kBlock, group + half * 8);
        ring.advance();
      }
    }
  }
}

// When the list is complete. `before`: the meeting's barrier when the kernel started.
template <bool kFine, uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args,
                            uint32_t before) {
  WeightRing<kFine, kTokens> ring(shared);
  PipelineState<kQueue> queued;
  Item item;
  uint32_t place = ptx::cta_index().x;
  while (hand_on<kFine>(shared, args, queued, place, item)) {
    place = ptx::cta_count().x +
            ptx::atom_relaxed_gpu_global_add_u32(&args.meeting->claims[before >> 31], 1);
    if (!item.outputs) {
      load_columns(ring, args, item);
      continue;
    }
    const uint32_t first = item.expert * args.blocks + item.part * kItemOutputs<kFine, kTokens>;
    for (uint32_t block = first; block < first + outputs_of<kFine, kTokens>(args, item); ++block) {
      for (uint32_t slice = 0; slice < args.slices; ++slice) {
        ring.begin(kStageBytes);
        ring.load(args.w2, slice * kBlock, block * 8);
        ring.advance();
      }
    }
  }
}

}  // namespace kb::step
