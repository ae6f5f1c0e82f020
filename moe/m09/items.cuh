// The list of items, which each CTA makes for itself from the tokens' experts.
//
// The first `covered` experts' first pieces are no part of it: CTA c takes the c-th in any case,
// before any token is routed. The list holds the others, expert by expert. CTAs whose first item
// turned out to be empty take their first of the list ahead of the others.
#pragma once

#include "layout.cuh"
#include "ptx/mbarrier.cuh"

namespace kb::step {

// The CTA's `i`-th item of the list, once `counted` is complete; false past its end.
template <uint32_t kTokens>
KB_DEVICE bool listed_item(const SharedStorage<kTokens>& shared, const Arguments& args, uint32_t i,
                           Item& item) {
  const uint32_t cta = ptx::cta_index().x;
  const bool idle = !has_first_item(args) || shared.counts[cta / args.cut.coarse.all] == 0;
  const uint32_t rank = idle ? shared.idle_below : shared.idle + cta - shared.idle_below;
  const uint32_t place = rank + i * ptx::cta_count().x;
  const uint32_t piece = place / args.cut.coarse.all;
  if (piece >= shared.starts[args.experts]) return false;
  const uint32_t expert = expert_of_piece(shared.starts, args.experts, piece);
  const uint32_t skipped = expert < args.cut.covered ? 1 : 0;
  item = item_of<kTokens>(args, args.cut.coarse, expert, piece - shared.starts[expert] + skipped,
                          place % args.cut.coarse.all);
  return true;
}

}  // namespace kb::step
