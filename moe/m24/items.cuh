// The list of items: which pieces are cut finely, and how.
//
// CTA c takes the c-th item of the first `covered` experts in any case, before any token is routed.
// The list holds the others, expert by expert, and CTAs claim its places one after another. The
// last pieces are cut finely, so that all CTAs end at about one time: less so where experts have
// several pieces each, which read their weights from the L2.
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
  // No CTA takes a second item: they are as small as that allows.
  if (pieces * cut.coarse.all <= ptx::cta_count().x) coarse = pieces;
  const Parts* finely = &cut.fine;
  if (shared.crowded) {
    finely = pieces * cut.crowded.all <= shared.idle ? &cut.crowded : &cut.thirds;
    if (pieces * finely->all <= shared.idle) coarse = 0;
  }
  const bool fine = place >= coarse * cut.coarse.all;
  const Parts& parts = fine ? *finely : cut.coarse;
  if (fine) place -= coarse * cut.coarse.all;
  const uint32_t piece = place / parts.all + (fine ? coarse : 0);
  if (piece >= pieces) return false;
  const uint32_t expert = expert_of_piece(shared.starts, args.experts, piece);
  const uint32_t skipped = expert < cut.covered ? 1 : 0;
  item = item_of<kTokens>(args, parts, expert, piece - shared.starts[expert] + skipped,
                          place % parts.all);
  if (parts.all == 3 && item.k_block != 0) item.n_blocks = args.n / kTileN;  // the last of thirds
  return true;
}

// As kb::sum_pieces. Experts that have some are counted in the upper halves.
template <uint32_t kTokens>
KB_DEVICE void sum_pieces(SharedStorage<kTokens>& shared, const Arguments& args) {
  constexpr uint32_t kExperts = kMaxExperts / kListThreads;  // of a thread
  constexpr uint32_t kOneExpert = 1 << 16;
  const uint32_t warp = ptx::warp_index() - kListWarp;
  const uint32_t thread = ptx::thread_index() - 32 * kListWarp;
  uint32_t own = 0;
  for (uint32_t i = 0; i < kExperts; ++i) {
    const uint32_t pieces = listed_pieces(shared, args, kExperts * thread + i);
    own += pieces != 0 ? kOneExpert + pieces : 0;
  }
  const uint32_t sum = prefix_sum_of_warps(own, warp, shared.warp_sums, kListBarrier);
  uint32_t start = (sum - own) % kOneExpert;
  for (uint32_t i = 0; i < kExperts; ++i) {
    const uint32_t expert = kExperts * thread + i;
    if (expert < args.experts) shared.starts[expert] = start;
    start += listed_pieces(shared, args, expert);
  }
  if (thread == kListThreads - 1) {
    shared.starts[args.experts] = start;
    shared.crowded = start >= 2 * (sum / kOneExpert);
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
