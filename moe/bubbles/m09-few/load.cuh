// Loads: one thread streams the items' weights, three warps gather their tokens.
#pragma once

#include "gather_resident.cuh"
#include "items.cuh"
#include "weight_stream.cuh"

namespace kb::step {

KB_DEVICE Item few(Item item) {
  item.expert %= 8;
  return item;
}

// ---- Weights: one thread.

// Of the CTA's first item, as much is requested as there are stages before its expert is known to
// have tokens, no more than `pace` stages at a time: the loads that routing waits for are not to
// queue behind megabytes of weights.
template <uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  uint32_t listed = 0;
  for (bool first = has_first_item(args);; first = false) {
    Item item;
    if (first) {
      item = first_item<kTokens>(args);
    } else {
      mbarrier_wait_parity(&shared.counted, 0);
      if (!listed_item(shared, args, listed++, item)) return;
    }
    const uint32_t eager = first ? eager_blocks<kStages<kTokens>>(item) : 0;
    for (uint32_t block = 0; block < item.n_blocks * item.k_blocks; ++block) {
      if (first && block == eager) {
        mbarrier_wait_parity(&shared.counted, 0);
        if (shared.counts[item.expert] == 0) break;
      }
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

// ---- Tokens: three warps.

template <uint32_t kTokens>
KB_DEVICE void gather_tokens(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<2> turn;
  PipelineState<kSlots> slot;
  uint32_t listed = 0;
  for (bool first = has_first_item(args);; first = false) {
    Item item;
    if (first) {
      item = first_item<kTokens>(args);
    } else {
      mbarrier_wait_parity(&shared.counted, 0);
      if (!listed_item(shared, args, listed++, item)) break;
    }
    gather_item(shared, args, turn, slot, item);
  }
  gather_no_more(shared, turn);
}

}  // namespace kb::step
