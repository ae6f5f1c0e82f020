// How a call is cut into items whose tokens stay resident.
#pragma once

#include "layout.cuh"
#include "resident_cut.cuh"

namespace kb::step {

inline Grid<Cut> cut_call(const FusedMoeCall& call, uint32_t tokens) {
  const Pieces of = resident_pieces(call, tokens, kSlots);
  Cut cut;
  cut.coarse = parts_of(of.blocks_n, of.blocks_k, of.item_n, of.item_k);
  const uint32_t ctas = resident_ctas(call, of.pieces * cut.coarse.all);
  // Weights are requested ahead of the routing where many experts will have tokens.
  const bool eager = 2 * of.routes >= uint64_t(call.e);
  cut.covered = eager ? std::min<uint32_t>(call.e, ctas / cut.coarse.all) : 0;
  return {ctas, cut};
}

}  // namespace kb::step
