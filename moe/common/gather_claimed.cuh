// The tokens of the items that a CTA claims, one item after another: by the warps that gather.
// kSlots: the blocks of K that an item's tokens stay resident for.
#pragma once

#include "gather_resident.cuh"
#include "item_claims.cuh"

namespace kb {

template <uint32_t kSlots, template <uint32_t> typename Shared, uint32_t kTokens,
          typename Arguments>
KB_DEVICE void gather_claimed(Shared<kTokens>& shared, const Arguments& args) {
  PipelineState<2> turn;
  PipelineState<kSlots> slot;
  PipelineState<kQueue> queued;
  for (bool first = has_first_item(args);; first = false) {
    Item item;
    if (first) {
      item = first_item<kTokens>(args);
    } else if (!next_item(shared, args, queued, item)) {
      break;
    }
    gather_item(shared, args, turn, slot, item);
  }
  gather_no_more(shared, turn);
}

}  // namespace kb
