// How a call is cut into pieces of an expert's tokens and, where those are few, further: on the
// host.
#pragma once

#include <algorithm>

#include "cta_roles.cuh"
#include "fused_moe.cuh"
#include "item_parts.cuh"
#include "rt.cuh"

namespace kb {

// A grid, and how its CTAs share the call.
template <typename Cut>
struct Grid {
  uint32_t ctas;
  Cut cut;
};

// Blocks of K of an item, so that `items` of all blocks become about as many as there are CTAs.
// K is cut only where a token's sums of several experts meet in any case: their order shows in the
// last bits.
inline bool may_cut_k(const FusedMoeCall& call) {
  return call.topk > 2;
}
inline uint32_t item_blocks_k(const FusedMoeCall& call, uint64_t items) {
  const uint32_t blocks_k = call.k / kTileK;
  const auto sms = static_cast<uint32_t>(rt::sm_count());
  if (!may_cut_k(call) || items >= sms) return blocks_k;
  return ceil_div(blocks_k, std::min(static_cast<uint32_t>(sms / items), blocks_k));
}

struct Pieces {
  uint32_t blocks_n, blocks_k;  // of a piece
  uint64_t routes, pieces;      // of the call
  uint32_t item_n, item_k;      // blocks of an item
  bool cut_k;                   // whether K may be cut
};

// Of up to `tokens` tokens: one piece for each active expert, more for those that are full. Tokens
// stay resident for several blocks of outputs only if all their blocks of K fit into `slots`.
inline Pieces resident_pieces(const FusedMoeCall& call, uint32_t tokens, uint32_t slots) {
  Pieces of;
  of.blocks_n = call.n / kTileN;
  of.blocks_k = call.k / kTileK;
  of.routes = uint64_t(call.m) * call.topk;
  of.pieces = std::min<uint64_t>(call.e, of.routes) + of.routes / tokens;
  const uint32_t wanted_n = tokens == 16 ? 2 : 4;
  const bool resident = of.blocks_k <= slots && of.pieces * ceil_div(of.blocks_n, wanted_n) >=
                                                    static_cast<uint32_t>(rt::sm_count());
  of.item_n = resident ? std::min(wanted_n, of.blocks_n) : 1;
  of.item_k = item_blocks_k(call, of.pieces * ceil_div(of.blocks_n, of.item_n));
  of.cut_k = may_cut_k(call);
  return of;
}

// As many CTAs as SMs, but for few `items` and few tokens to route.
inline uint32_t resident_ctas(const FusedMoeCall& call, uint64_t items) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(rt::sm_count(), std::max<uint64_t>(items, ceil_div(call.m, 4))));
}

}  // namespace kb
