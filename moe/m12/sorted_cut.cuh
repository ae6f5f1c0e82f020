// How a call is cut into items of lists of routes.
#pragma once

#include "resident_cut.cuh"
#include "sorted_layout.cuh"

namespace kb::step::sorted {

inline Grid<Cut> cut_call(const FusedMoeCall& call, uint32_t tokens) {
  const uint32_t blocks_n = call.n / kTileN;
  const uint32_t blocks_k = call.k / kTileK;
  const auto ctas = static_cast<uint32_t>(rt::sm_count());
  // Pieces at least: an expert's routes are cut only if they are too many.
  const auto experts = static_cast<uint32_t>(call.e);
  const uint32_t item_k = item_blocks_k(call, uint64_t{experts} * ceil_div(blocks_n, kItemN));
  const uint32_t fine_k = may_cut_k(call) ? std::min(item_k, ceil_div(blocks_k, 2)) : item_k;
  Cut cut;
  cut.coarse = parts_of(blocks_n, blocks_k, kItemN, item_k);
  cut.fine = parts_of(blocks_n, blocks_k, kItemN, fine_k);
  // Where items last long, the last quarter of a round is cut for an even end.
  cut.fine_pieces = tokens > 64 ? ceil_div(ctas, 4 * cut.coarse.all) : 0;
  cut.covered = std::min(experts, ctas / cut.coarse.all);
  return {ctas, cut};
}

}  // namespace kb::step::sorted
