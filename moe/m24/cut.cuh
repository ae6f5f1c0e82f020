// How a call is cut into items whose tokens stay resident.
#pragma once

#include "layout.cuh"
#include "resident_cut.cuh"

namespace kb::step {

inline Grid<Cut> cut_call(const FusedMoeCall& call, uint32_t tokens) {
  constexpr uint32_t kFineK = 8;  // blocks of K of a fine item
  constexpr uint32_t kEvenN = 2;  // blocks of outputs of an item, where all CTAs are to end evenly
  Pieces of = resident_pieces(call, tokens, kSlots);
  const bool even = tokens == 16 || of.routes <= 5 * uint64_t(call.e);
  if (even) of.item_n = std::min(of.item_n, kEvenN);
  const uint32_t fine_k = of.cut_k ? std::min(of.item_k, kFineK) : of.item_k;
  Cut cut;
  cut.coarse = parts_of(of.blocks_n, of.blocks_k, of.item_n, of.item_k);
  cut.fine = parts_of(of.blocks_n, of.blocks_k, 1, fine_k);
  cut.crowded = parts_of(of.blocks_n, of.blocks_k, of.item_n, fine_k);
  // Two items have half of the outputs each and two thirds of K, the last one all of the rest.
  cut.thirds = cut.crowded;
  if (cut.crowded.all == 4 && of.item_n * 2 == of.blocks_n) {
    cut.thirds.item_k = ceil_div(2 * of.blocks_k, 3);
    cut.thirds.all = 3;
  }
  const uint32_t ctas = resident_ctas(call, of.pieces * cut.coarse.all);
  // About one coarse item of each CTA, or two thirds of that where items have up to 32 tokens. Many
  // tokens cost more to gather once more than an even end gains.
  const uint32_t fine_items = tokens == 32 ? ceil_div(2 * ctas, 3) : ctas;
  cut.fine_pieces = even ? ceil_div(fine_items, cut.coarse.all) : 0;
  // Weights are requested ahead of the routing where many experts will have tokens.
  const bool eager = of.routes >= uint64_t(call.e);
  cut.covered = eager ? std::min<uint32_t>(call.e, ctas / cut.coarse.all) : 0;
  constexpr uint32_t kAhead = 5;  // where tokens and outputs are many, which queue behind weights
  cut.ahead = even ? kStages<32> : kAhead;
  return {ctas, cut};
}

}  // namespace kb::step
