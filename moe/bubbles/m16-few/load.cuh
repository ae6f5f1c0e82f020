// One thread streams the items' weights.
#pragma once

#include "items.cuh"
#include "pipeline.cuh"
#include "wait.cuh"
#include "weight_stream.cuh"

namespace kb::step {

KB_DEVICE Item few(Item item) {
  item.expert %= 8;
  return item;
}

// Blocks of an item that are requested before the item after it is handed on. Few tokens are there
// before the stages on their way have been used up: the later, the more evenly all CTAs end. Many
// need the time.
template <uint32_t kTokens>
inline constexpr uint32_t kBlocksBefore = kTokens == 16 ? UINT32_MAX : 8;

// Blocks of the first item, beside those that are requested before its expert is known to have
// tokens, before the list of the others is waited for: it is complete later than the first products
// begin.
inline constexpr uint32_t kBlocksUnlisted = 4;

KB_DEVICE uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

// Of the CTA's first item, as much is requested as there are stages before its expert is known to
// have tokens, no more than `pace` stages at a time: the loads that routing waits for are not to
// queue behind megabytes of weights.
template <uint32_t kTokens>
KB_DEVICE void load_first_blocks(SharedStorage<kTokens>& shared, const Arguments& args) {
  const Item item = first_item<kTokens>(args);
  for (uint32_t block = 0; block < eager_blocks<kStages<kTokens>>(item); ++block) {
    if (block >= args.pace) mbarrier_wait_parity(&shared.full[block - args.pace], 0);
    load_block(shared, args, few(item), block, block);
  }
}

// Whether the first item's expert has no tokens: known when its first stage is let go.
template <uint32_t kTokens>
KB_DEVICE bool first_is_empty(const SharedStorage<kTokens>& shared) {
  mbarrier_wait_parity(&shared.empty[0], 0);
  return shared.items[0].rows == 0;
}

template <uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  PipelineState<kQueue> turn;
  bool first = has_first_item(args);
  Item item;
  Item next;
  if (first) {
    load_first_blocks(shared, args);
    item = first_item<kTokens>(args);
  } else {
    mbarrier_wait_parity(&shared.counted, 0);
    if (!hand_on(shared, args, turn, shared.idle_below, item)) return;
  }
  for (bool some = true; some; item = next, first = false) {
    uint32_t block = first ? eager_blocks<kStages<kTokens>>(item) : 0;
    for (uint32_t i = 0; i < block; ++i) state.advance();
    const bool empty = first && first_is_empty(shared);
    const uint32_t blocks = empty ? block : item.n_blocks * item.k_blocks;
    const uint32_t hand = block + least(kBlocksBefore<kTokens>, blocks - block);
    const uint32_t claim = first ? least(block + kBlocksUnlisted, hand) : block;
    uint32_t place = 0;
    for (;; ++block) {
      if (block == claim) {
        mbarrier_wait_parity(&shared.counted, 0);
        place = empty ? shared.idle_below : claim_place(shared, args);
      }
      if (block == hand) some = hand_on(shared, args, turn, place, next);
      if (block == blocks) break;
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      load_block(shared, args, few(item), block, state.stage);
      state.advance();
    }
  }
}

}  // namespace kb::step
