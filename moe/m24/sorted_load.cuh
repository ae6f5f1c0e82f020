// Where an expert has many tokens: one warp streams the items' weights.
#pragma once

#include "pipeline.cuh"
#include "ptx/tma.cuh"
#include "sorted_items.cuh"
#include "wait.cuh"

namespace kb::step::sorted {

// The item's weights of a block of K and their scales, to a stage that is empty. Weights are read
// once or a few times at about one time: they leave the L2 to the output.
template <uint32_t kTokens>
KB_DEVICE void load_block(SharedStorage<kTokens>& shared, const Arguments& args, const Item& item,
                          uint32_t block, uint32_t stage) {
  const CachePolicy policy = ptx::createpolicy_fractional_l2_evict_first();
  const uint32_t column = item.k_block + block;
  Mbarrier* full = &shared.full[stage];
  ptx::mbarrier_arrive_expect_tx(
      ptx::sem_release, ptx::scope_cta, full,
      item.n_blocks * (kTileN * kTileK + kScaleBox * static_cast<uint32_t>(sizeof(float))));
  for (uint32_t i = 0; i < item.n_blocks; ++i) {
    const uint32_t row = item.expert * (args.n / kTileN) + item.n_block + i;
#pragma unroll
    for (uint32_t box = 0; box < kTileN / kBoxRows; ++box) {
      ptx::cp_async_bulk_tensor_3d_shared_global(
          shared.weights[stage][i] + box * kBoxRows * kTileK, &args.weights, column * kTileK,
          row * (kTileN / 4) + box * kRowGroup, 0, full, policy);
    }
    ptx::cp_async_bulk_tensor_2d_shared_global(shared.weight_scales[stage][i], &args.weight_scales,
                                               aligned_scale(scale_of(args, row, column)), 0, full);
  }
}

// Of the CTA's first item, as much is requested as there are stages before its expert is known to
// have routes, no more than `pace` stages at a time: the loads that routing waits for are not to
// queue behind megabytes of weights. One thread.
template <uint32_t kTokens>
KB_DEVICE void load_first_blocks(SharedStorage<kTokens>& shared, const Arguments& args) {
  if (!has_first_item(args)) return;
  const Item item = first_item(args);
  for (uint32_t block = 0; block < eager_blocks<kTokens>(item); ++block) {
    if (block >= args.pace) mbarrier_wait_parity(&shared.full[block - args.pace], 0);
    load_block(shared, args, item, block, block);
  }
}

// Passes an item to the warps that gather; `some`: there is one.
template <uint32_t kTokens>
KB_DEVICE void hand_on(SharedStorage<kTokens>& shared, PipelineState<kQueue>& turn,
                       const Item& item, bool some) {
  mbarrier_wait_parity(&shared.place_empty[turn.stage], turn.phase ^ 1);
  ptx::bar_warp_sync();  // all lanes have seen the phase
  if (ptx::lane_index() == 0) {
    shared.queue[turn.stage] = item;
    if (!some) shared.queue[turn.stage].k_blocks = 0;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_full[turn.stage]);
  }
  turn.advance();
}

// By a warp that gathers: the next item that was handed on; false after the last.
template <uint32_t kTokens>
KB_DEVICE bool next_item(SharedStorage<kTokens>& shared, PipelineState<kQueue>& queued,
                         Item& item) {
  mbarrier_wait_parity(&shared.place_full[queued.stage], queued.phase);
  item = shared.queue[queued.stage];
  ptx::bar_warp_sync();
  if (ptx::lane_index() == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_empty[queued.stage]);
  }
  queued.advance();
  return item.k_blocks != 0;
}

// The warp: a place of the list that is nobody's yet. Lane 0 alone knows it.
KB_DEVICE uint32_t claim_place(const Arguments& args) {
  if (ptx::lane_index() != 0) return 0;
  return ptx::atom_relaxed_gpu_global_add_u32(&args.grid->claims, 1);
}

// The next item is claimed and handed on while an item's weights are requested, not before: the
// later, the more evenly all CTAs end.
inline constexpr uint32_t kBlocksBefore = 2;

// Stages of weights on their way, of items of up to kMostPaced tokens: others hardly wait for them.
inline constexpr uint32_t kAhead = 2;
inline constexpr uint32_t kMostPaced = 80;

// The warp, after load_first_blocks.
template <uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  PipelineState<kStages<kTokens>> landed;
  uint32_t ahead = 0;  // stages since the last one that has landed
  PipelineState<kQueue> turn;
  Item item;
  Item next;
  uint32_t block = 0;
  bool some = has_first_item(args);
  mbarrier_wait_parity(&shared.counted, 0);
  if (some) {
    item = first_item(args);
    block = eager_blocks<kTokens>(item);
    for (uint32_t i = 0; i < block; ++i) state.advance();
    ahead += block;
    some = shared.counts[item.expert] != 0;
  }
  if (!some) {
    some = listed_item(shared, args, ptx::shfl_sync_idx(claim_place(args), 0), item);
    hand_on(shared, turn, item, some);
    block = 0;
  }
  for (; some; item = next, block = 0) {
    const uint32_t place = claim_place(args);
    const uint32_t left = item.k_blocks - block;
    const uint32_t hand = block + (kBlocksBefore < left ? kBlocksBefore : left);
    for (;; ++block) {
      if (block == hand) {
        some = listed_item(shared, args, ptx::shfl_sync_idx(place, 0), next);
        hand_on(shared, turn, next, some);
      }
      if (block == item.k_blocks) break;
      if constexpr (kTokens <= kMostPaced) {
        for (; ahead >= kAhead; --ahead, landed.advance()) {
          mbarrier_wait_parity(&shared.full[landed.stage], landed.phase);
        }
        ++ahead;
      }
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      ptx::bar_warp_sync();  // all lanes have seen the phase
      if (ptx::lane_index() == 0) load_block(shared, args, item, block, state.stage);
      state.advance();
    }
  }
}

}  // namespace kb::step::sorted
