// Where an expert has many tokens: three warps gather the items' tokens.
#pragma once

#include "gather_routes.cuh"
#include "sorted_load.cuh"

namespace kb::step::sorted {

template <uint32_t kTokens>
KB_DEVICE void gather_tokens(SharedStorage<kTokens>& shared, const Arguments& args,
                             const Count* /*counts*/) {
  PipelineState<2> turn;
  PipelineState<kStages<kTokens>> state;
  PipelineState<kQueue> queued;
  mbarrier_wait_parity(&shared.counted, 0);
  for (bool first = has_first_item(args);; first = false) {
    Item item;
    if (first) {
      item = first_item(args);
    } else if (!next_item(shared, queued, item)) {
      break;
    }
    gather_routes(shared, args, turn, state, item, shared.counts[item.expert]);
  }
  gather_no_more_routes(shared, turn);
}

}  // namespace kb::step::sorted
