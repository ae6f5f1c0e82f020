// The list of items, which each CTA makes for itself from the experts' counts.
//
// The first `covered` experts' first pieces are no part of it: CTA c takes the c-th in any case,
// before any token is routed. The list holds the others, expert by expert, those with several
// pieces last, and CTAs claim its places one after another. The last pieces are cut finely. So all
// CTAs end at about one time.
#pragma once

#include "item_list.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "sorted_layout.cuh"

namespace kb::step::sorted {

KB_DEVICE Item item_of(const Arguments& args, const Parts& parts, uint32_t expert, uint32_t piece,
                       uint32_t part) {
  const uint32_t n_block = part % parts.along_n * parts.item_n;
  const uint32_t k_block = part / parts.along_n * parts.item_k;
  const uint32_t n_left = args.n / kTileN - n_block;
  const uint32_t k_left = args.k / kTileK - k_block;
  return {.expert = expert,
          .piece = piece,
          .n_block = n_block,
          .n_blocks = n_left < parts.item_n ? n_left : parts.item_n,
          .k_block = k_block,
          .k_blocks = k_left < parts.item_k ? k_left : parts.item_k};
}

KB_DEVICE Item first_item(const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  return item_of(args, args.cut.coarse, cta / args.cut.coarse.all, 0, cta % args.cut.coarse.all);
}

// Stages of an item's weights that are requested before the expert is known to have routes.
template <uint32_t kTokens>
KB_DEVICE uint32_t eager_blocks(const Item& item) {
  return item.k_blocks < kStages<kTokens> ? item.k_blocks : kStages<kTokens>;
}

// The expert of a listed piece, the last one that starts there or before. The warp looks for it.
KB_DEVICE uint32_t expert_of(const uint32_t (&starts)[kMaxExperts + 1], const Arguments& args,
                             uint32_t piece) {
  constexpr uint32_t kStride = kMaxExperts / 32;
  const uint32_t lane = ptx::lane_index();
  const uint32_t sampled = lane * kStride;
  const bool before = sampled < args.experts && starts[sampled] <= piece;
  const auto samples = static_cast<uint32_t>(__builtin_popcount(ptx::vote_sync_ballot(before)));
  const uint32_t first = (samples - 1) * kStride;
  const uint32_t mine = first + lane;
  const bool begins = lane < kStride && mine < args.experts && starts[mine] <= piece;
  return first + static_cast<uint32_t>(__builtin_popcount(ptx::vote_sync_ballot(begins))) - 1;
}

// The item at a place of the list, once `counted` is complete; false past its end. The warp.
template <uint32_t kTokens>
KB_DEVICE bool listed_item(const SharedStorage<kTokens>& shared, const Arguments& args,
                           uint32_t place, Item& item) {
  const uint32_t whole = shared.starts[0][args.experts];
  const uint32_t pieces = whole + shared.starts[1][args.experts];
  const uint32_t coarse = pieces > args.cut.fine_pieces ? pieces - args.cut.fine_pieces : 0;
  const bool fine = place >= coarse * args.cut.coarse.all;
  const Parts parts = fine ? args.cut.fine : args.cut.coarse;
  if (fine) place -= coarse * args.cut.coarse.all;
  uint32_t piece = place / parts.all + (fine ? coarse : 0);
  if (piece >= pieces) return false;
  const uint32_t part = piece < whole ? 0 : 1;
  if (part == 1) piece -= whole;
  const uint32_t expert = expert_of(shared.starts[part], args, piece);
  const uint32_t skipped = expert < args.cut.covered ? 1 : 0;
  item = item_of(args, parts, expert, piece - shared.starts[part][expert] + skipped,
                 place % parts.all);
  return true;
}

// By the warps that multiply, once all tokens are routed: for each part of the list, exclusive sums
// of the experts' pieces.
template <uint32_t kTokens>
KB_DEVICE void list_items(SharedStorage<kTokens>& shared, const Arguments& args,
                          const Count* counts) {
  constexpr uint32_t kExperts = kMaxExperts / kMultiplyThreads;  // of a thread
  const uint32_t warp = ptx::warp_index();
  const uint32_t first = kExperts * ptx::thread_index();
#pragma unroll
  for (uint32_t i = 0; i < kExperts; ++i) {
    if (first + i < args.experts) shared.counts[first + i] = counts[first + i].routes;
  }
  const auto pieces_in = [&](uint32_t part, uint32_t expert) -> uint32_t {
    if (expert >= args.experts || (shared.counts[expert] > kTokens) != (part == 1)) return 0;
    return listed_pieces(shared, args, expert);
  };
#pragma unroll
  for (uint32_t part = 0; part < kListParts; ++part) {
    uint32_t own = 0;
#pragma unroll
    for (uint32_t i = 0; i < kExperts; ++i) own += pieces_in(part, first + i);
    const uint32_t sum = prefix_sum_of_warps(own, warp, shared.warp_sums[part], kListBarrier);
    uint32_t start = sum - own;
#pragma unroll
    for (uint32_t i = 0; i < kExperts; ++i) {
      if (first + i < args.experts) shared.starts[part][first + i] = start;
      start += pieces_in(part, first + i);
    }
    if (ptx::thread_index() == kMultiplyThreads - 1) shared.starts[part][args.experts] = sum;
  }
  ptx::bar_sync(kListBarrier, kMultiplyThreads);
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.counted);
  }
}

}  // namespace kb::step::sorted
