// The list of items: which pieces are cut finely, and how.
//
// CTA c takes the c-th item of the first `covered` experts in any case, before any token is routed.
// The list holds the others, expert by expert, and CTAs claim its places one after another. The
// last pieces are cut finely, so that all CTAs end at about one time.
#pragma once

#include "layout.cuh"

namespace kb::step {

// The item at a place of the list, once `counted` is complete; false past its end.
template <uint32_t kTokens>
KB_DEVICE bool listed_item(const SharedStorage<kTokens>& shared, const Arguments& args,
                           uint32_t place, Item& item) {
  const Cut& cut = args.cut;
  const uint32_t pieces = shared.starts[args.experts];
  uint32_t coarse = pieces > cut.fine_pieces ? pieces - cut.fine_pieces : 0;
  if (pieces * cut.coarse.all <= ptx::cta_count().x) coarse = pieces;  // no CTA takes a second one
  const bool fine = place >= coarse * cut.coarse.all;
  const Parts& parts = fine ? cut.fine : cut.coarse;
  if (fine) place -= coarse * cut.coarse.all;
  const uint32_t piece = place / parts.all + (fine ? coarse : 0);
  if (piece >= pieces) return false;
  const uint32_t expert = expert_of_piece(shared.starts, args.experts, piece);
  const uint32_t skipped = expert < cut.covered ? 1 : 0;
  item = item_of<kTokens>(args, parts, expert, piece - shared.starts[expert] + skipped,
                          place % parts.all);
  return true;
}

}  // namespace kb::step
