// Where an expert has many tokens: three warps gather the items' tokens.
#pragma once

#include "sorted_load.cuh"

namespace kb::step::sorted {

// The first item does not wait for the list of the others: its expert's count is enough.
template <uint32_t kTokens>
KB_DEVICE void gather_tokens(SharedStorage<kTokens>& shared, const Arguments& args,
                             const Count* counts) {
  PipelineState<2> turn;
  PipelineState<kStages<kTokens>> state;
  PipelineState<kQueue> queued;
  for (bool first = has_first_item(args);; first = false) {
    Item item;
    uint32_t count;
    if (first) {
      item = first_item(args);
      count = counts[item.expert].routes;
    } else {
      mbarrier_wait_parity(&shared.counted, 0);
      if (!next_item(shared, queued, item)) break;
      count = shared.counts[item.expert];
    }
    gather_routes(shared, args, turn, state, item, count);
  }
  gather_no_more_routes(shared, turn);
}

}  // namespace kb::step::sorted
