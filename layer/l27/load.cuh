// Weights: one thread claims items, hands them on, and streams their weights through a ring of
// stages of 16 KB.
#pragma once

#include "items.cuh"
#include "pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "wait.cuh"

namespace kb::step {

// Stages of an item that are still to be asked for when the next item is handed on, so that its
// tokens and scales come meanwhile. Lists of routes take longer, and gain nothing.
template <uint32_t kTokens>
inline constexpr uint32_t kHandOn = kTokens == 24 || kTokens == 40 ? 3 : 0;
inline constexpr uint32_t kHandOnOfMany = 12;  // where items are large

// Passes a place of the list to the warps that gather, past its end too. Whether there is an item.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE bool hand_on(SharedStorage<kTokens>& shared, const Arguments& args,
                       PipelineState<kQueue>& turn, uint32_t place, Item& item) {
  mbarrier_wait_parity(&shared.place_empty[turn.stage], turn.phase ^ 1);
  shared.places[turn.stage] = place;
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_full[turn.stage]);
  turn.advance();
  return listed_item<kCut>(shared, args, place, item);
}

template <uint32_t kTokens>
class WeightRing {
 public:
  KB_DEVICE WeightRing(SharedStorage<kTokens>& shared, uint32_t in_flight)
      : shared_(shared),
        policy_(ptx::createpolicy_fractional_l2_evict_first()),
        in_flight_(in_flight) {}

  // Waits for the next stage, which will get so many bytes.
  KB_DEVICE void begin(uint32_t bytes) {
    mbarrier_wait_parity(&shared_.empty[state_.stage], state_.phase ^ 1);
    // What else the CTAs ask memory for, their code too, is not to queue behind rings of weights.
    if (begun_ < in_flight_) {
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
  uint32_t in_flight_;  // stages on their way at a time
  PipelineState<kStages<kTokens>> state_;
  PipelineState<kStages<kTokens>> landed_;  // the oldest load that is not known to be complete
  uint32_t begun_ = 0;                      // the first loads
};

// 32 columns: two blocks a stage, one for each warpgroup.
template <uint32_t kTokens>
KB_DEVICE void load_few_columns(WeightRing<kTokens>& ring, const Arguments& args,
                                const Item& item) {
  constexpr uint32_t kHalf = kStageBytes / 2;
  const uint32_t group =
      item.expert * 32 * args.slices + item.part * (kItemColumns<Cut::kFine> / 8);
  for (uint32_t block = 0; block < args.blocks; block += 2) {
    const bool both = block + 1 < args.blocks;
    ring.begin(both ? kStageBytes : kHalf);
    ring.load(args.w13, block * kBlock, group);
    if (both) ring.load(args.w13, (block + 1) * kBlock, group, kHalf);
    ring.advance();
  }
}

// Blocks of columns, each two halves of 64 columns of gate and up, or of outputs: row by row, block
// by block, but of many tokens both halves of each block. `loaded` is called after each stage with
// the number of those left.
template <Cut kCut, uint32_t kTokens, typename Loaded>
KB_DEVICE void load_item(WeightRing<kTokens>& ring, const Arguments& args, const Item& item,
                         const Loaded& loaded) {
  const TensorMap& map = item.outputs ? args.w2 : args.w13;
  const uint32_t rows = item.outputs ? item.count : 2 * item.count;
  const OutputPart part = output_part<kCut>(args, item);
  const uint32_t first = item.outputs ? part.first : 0;
  const uint32_t blocks = item.outputs ? part.count : args.blocks;
  const uint32_t output = item.expert * args.blocks + part.block;
  const uint32_t column = item.expert * 4 * args.slices + item.part * (kBlock / 64);
  const uint32_t group = 8 * (item.outputs ? output : column);
  const bool by_block = kMany<kTokens> && !item.outputs;  // both halves of a block
  const uint32_t outer = by_block ? blocks : rows;
  const uint32_t inner = by_block ? rows : blocks;
  uint32_t left = rows * blocks;
  for (uint32_t i = 0; i < outer; ++i) {
    for (uint32_t j = 0; j < inner; ++j) {
      ring.begin(kStageBytes);
      ring.load(map, (first + (by_block ? i : j)) * kBlock, group + (by_block ? j : i) * 8);
      ring.advance();
      loaded(--left);
    }
  }
}

// When the list is complete. `before`: the meeting's barrier when the kernel started.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args,
                            uint32_t before) {
  const bool large = has_large<kCut>(shared, args);
  const uint32_t early = large ? kHandOnOfMany : kHandOn<kTokens>;
  WeightRing<kTokens> ring(shared, large ? kInFlightOfMany : kInFlightOf<kTokens>);
  PipelineState<kQueue> queued;
  Item item;
  bool some = hand_on<kCut>(shared, args, queued, ptx::cta_index().x, item);
  while (some) {
    const uint32_t place = ptx::cta_count().x + ptx::atom_relaxed_gpu_global_add_u32(
                                                    &args.meeting->claims[before >> 31], 1);
    Item next;
    bool handed = false;
    const auto loaded = [&](uint32_t left) {
      if (handed || left > early) return;
      some = hand_on<kCut>(shared, args, queued, place, next);
      handed = true;
    };
    if (kCut == Cut::kFine && !item.outputs) {
      if constexpr (kCut == Cut::kFine) load_few_columns(ring, args, item);
      loaded(0);
    } else {
      load_item<kCut>(ring, args, item, loaded);
    }
    item = next;
  }
}

}  // namespace kb::step
