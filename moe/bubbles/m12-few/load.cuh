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
// need the time; what was claimed is on its way while the two blocks are requested.
template <uint32_t kTokens>
inline constexpr uint32_t kBlocksBefore = kTokens == 16 ? UINT32_MAX : 2;

// Of the CTA's first item, as much is requested as there are stages before its expert is known to
// have tokens, no more than `pace` stages at a time: the loads that routing waits for are not to
// queue behind megabytes of weights.
template <uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  PipelineState<kQueue> turn;
  uint32_t place = 0;
  bool first = has_first_item(args);
  Item item;
  Item next;
  if (first) {
    item = first_item<kTokens>(args);
  } else {
    mbarrier_wait_parity(&shared.counted, 0);
    if (!hand_on(shared, args, turn, shared.idle_below, item)) return;
  }
  for (bool some = true; some; item = next, first = false) {
    const uint32_t eager = first ? eager_blocks<kStages<kTokens>>(item) : 0;
    uint32_t blocks = item.n_blocks * item.k_blocks;
    for (uint32_t block = 0; block <= blocks; ++block) {
      if (block == eager) {
        mbarrier_wait_parity(&shared.counted, 0);
        const bool empty = first && is_idle(shared, args);
        place = empty ? shared.idle_below : claim_place(shared, args);
        if (empty) blocks = eager;
      }
      const uint32_t most = blocks - eager;
      const uint32_t before = kBlocksBefore<kTokens> < most ? kBlocksBefore<kTokens> : most;
      if (block == eager + before) some = hand_on(shared, args, turn, place, next);
      if (block == blocks) break;
      if (block >= eager) {
        mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      } else if (block >= args.pace) {
        mbarrier_wait_parity(&shared.full[block - args.pace], 0);
      }
      load_block(shared, args, few(item), block, state.stage);
      state.advance();
    }
  }
}

}  // namespace kb::step
