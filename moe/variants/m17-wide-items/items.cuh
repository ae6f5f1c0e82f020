// The list of items: which pieces are cut finely, and how.
//
// CTA c takes the c-th item of the first `covered` experts in any case, before any token is routed.
// The list holds the others, expert by expert, and CTAs claim its places one after another. The
// last pieces are cut finely, so that all CTAs end at about one time. Where experts have several
// pieces each, pieces are wide instead, and all of them cut finely: an expert's weights are read
// about once, by many CTAs.
#pragma once

#include "layout.cuh"

namespace kb::step {

// An expert's listed tokens as wide pieces of about equal size.
struct WidePieces {
  uint32_t before;  // tokens of the expert's first item
  uint32_t pieces;
  uint32_t tokens;  // of a piece; the last one may have fewer
};
template <uint32_t kTokens>
KB_DEVICE WidePieces wide_pieces(const SharedStorage<kTokens>& shared, const Arguments& args,
                                 uint32_t expert) {
  const uint32_t count = expert < args.experts ? shared.counts[expert] : 0;
  const uint32_t covered = expert < args.cut.covered ? kTokens : 0;
  const uint32_t before = count < covered ? count : covered;
  const uint32_t pieces = ceil_div(count - before, kWide);
  return {before, pieces, pieces == 0 ? 0 : ceil_div(count - before, pieces)};
}

// The item at a place of the list, once `counted` is complete; false past its end.
template <uint32_t kTokens>
KB_DEVICE bool listed_item(const SharedStorage<kTokens>& shared, const Arguments& args,
                           uint32_t place, Item& item) {
  const Cut& cut = args.cut;
  const uint32_t pieces = shared.starts[args.experts];
  uint32_t coarse = pieces > cut.fine_pieces ? pieces - cut.fine_pieces : 0;
  if (pieces * cut.coarse.all <= ptx::cta_count().x) coarse = pieces;  // no CTA takes a second one
  if (shared.crowded) coarse = 0;
  const bool fine = place >= coarse * cut.coarse.all;
  const Parts& parts = fine ? cut.fine : cut.coarse;
  if (fine) place -= coarse * cut.coarse.all;
  const uint32_t piece = place / parts.all + (fine ? coarse : 0);
  if (piece >= pieces) return false;
  const uint32_t expert = expert_of_piece(shared.starts, args.experts, piece);
  const uint32_t listed = piece - shared.starts[expert];
  const uint32_t skipped = expert < cut.covered ? 1 : 0;
  item = item_of<kTokens>(args, parts, expert, listed + skipped, place % parts.all);
  if (shared.crowded) {
    const WidePieces wide = wide_pieces(shared, args, expert);
    item.first = wide.before + listed * wide.tokens;
  }
  return true;
}

// Sums of one thread's experts and those before: pieces of either kind, and experts that have some.
// A word has room for all three: no kernel here has 2048 pieces, or as many experts as 1024.
struct Sums {
  static constexpr uint32_t kBits = 11;
  uint32_t word;

  KB_DEVICE uint32_t pieces(bool wide) const {
    return (wide ? word >> kBits : word) & ((1u << kBits) - 1);
  }
  KB_DEVICE bool crowded() const { return pieces(false) >= 2 * (word >> 2 * kBits); }
};

template <uint32_t kTokens>
KB_DEVICE uint32_t sums_of(const SharedStorage<kTokens>& shared, const Arguments& args,
                           uint32_t expert) {
  const uint32_t pieces = listed_pieces(shared, args, expert);
  if (pieces == 0) return 0;
  return pieces + (wide_pieces(shared, args, expert).pieces << Sums::kBits) +
         (1u << 2 * Sums::kBits);
}

// As kb::sum_pieces, of the pieces that the call has.
template <uint32_t kTokens>
KB_DEVICE void sum_pieces(SharedStorage<kTokens>& shared, const Arguments& args) {
  constexpr uint32_t kExperts = kMaxExperts / kListThreads;  // of a thread
  const uint32_t warp = ptx::warp_index() - kListWarp;
  const uint32_t thread = ptx::thread_index() - 32 * kListWarp;
  Sums own{0};
  for (uint32_t i = 0; i < kExperts; ++i) own.word += sums_of(shared, args, kExperts * thread + i);
  const Sums sum{prefix_sum_of_warps(own.word, warp, shared.warp_sums, kListBarrier)};
  Sums all{0};
  for (const uint32_t of_warp : shared.warp_sums) all.word += of_warp;
  const bool crowded = all.crowded();
  uint32_t start = sum.pieces(crowded) - own.pieces(crowded);
  for (uint32_t i = 0; i < kExperts; ++i) {
    const uint32_t expert = kExperts * thread + i;
    if (expert < args.experts) shared.starts[expert] = start;
    start += Sums{sums_of(shared, args, expert)}.pieces(crowded);
  }
  if (thread == kListThreads - 1) {
    shared.starts[args.experts] = start;
    shared.crowded = crowded && start != 0;
  }
}

// By the warps that list, once all tokens are routed. The counts are zero before.
template <uint32_t kTokens>
KB_DEVICE void list_items(SharedStorage<kTokens>& shared, const Arguments& args) {
  const uint32_t thread = ptx::thread_index() - 32 * kListWarp;
  count_tokens(shared, args, thread);
  ptx::bar_sync(kListBarrier, kListThreads);
  count_idle(shared, args);
  sum_pieces(shared, args);
  ptx::bar_sync(kListBarrier, kListThreads);
  if (thread == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.counted);
  }
}

}  // namespace kb::step
