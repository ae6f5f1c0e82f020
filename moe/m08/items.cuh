// The list of items, which each CTA makes for itself from the tokens' experts.
//
// The first `covered` experts' first pieces are no part of it: CTA c takes the c-th in any case,
// before any token is routed. The list holds the others, expert by expert. CTAs whose first item
// turned out to be empty take their first of the list ahead of the others.
#pragma once

#include "layout.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb::step {

KB_DEVICE bool has_first_item(const Arguments& args) {
  return ptx::cta_index().x < args.covered * args.parts;
}

template <uint32_t kTokens>
KB_DEVICE Item item_of(const Arguments& args, uint32_t expert, uint32_t piece, uint32_t part) {
  const uint32_t n_block = part % args.parts_n * args.item_n;
  const uint32_t k_block = part / args.parts_n * args.item_k;
  const uint32_t n_left = args.n / kTileN - n_block;
  const uint32_t k_left = args.k / kTileK - k_block;
  return {.expert = expert,
          .first = piece * kTokens,
          .n_block = n_block,
          .n_blocks = n_left < args.item_n ? n_left : args.item_n,
          .k_block = k_block,
          .k_blocks = k_left < args.item_k ? k_left : args.item_k};
}

template <uint32_t kTokens>
KB_DEVICE Item first_item(const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  return item_of<kTokens>(args, cta / args.parts, 0, cta % args.parts);
}

// Stages of an item's weights that are requested before the expert is known to have tokens.
template <uint32_t kTokens>
KB_DEVICE uint32_t eager_blocks(const Item& item) {
  const uint32_t blocks = item.n_blocks * item.k_blocks;
  return blocks < kStages<kTokens> ? blocks : kStages<kTokens>;
}

// The CTA's `i`-th item of the list, once `counted` is complete; false past its end.
template <uint32_t kTokens>
KB_DEVICE bool listed_item(const SharedStorage<kTokens>& shared, const Arguments& args, uint32_t i,
                           Item& item) {
  const uint32_t cta = ptx::cta_index().x;
  const bool idle = !has_first_item(args) || shared.counts[cta / args.parts] == 0;
  const uint32_t rank = idle ? shared.idle_below : shared.idle + cta - shared.idle_below;
  const uint32_t place = rank + i * ptx::cta_count().x;
  const uint32_t piece = place / args.parts;
  if (piece >= shared.starts[args.experts]) return false;
  uint32_t expert = 0;  // the last one that starts at `piece` or before
  uint32_t end = args.experts;
  while (end - expert > 1) {
    const uint32_t middle = (expert + end) / 2;
    if (shared.starts[middle] <= piece) {
      expert = middle;
    } else {
      end = middle;
    }
  }
  const uint32_t skipped = expert < args.covered ? 1 : 0;
  item =
      item_of<kTokens>(args, expert, piece - shared.starts[expert] + skipped, place % args.parts);
  return true;
}

template <uint32_t kTokens>
KB_DEVICE uint32_t listed_pieces(const SharedStorage<kTokens>& shared, const Arguments& args,
                                 uint32_t expert) {
  if (expert >= args.experts) return 0;
  const uint32_t pieces = ceil_div(shared.counts[expert], kTokens);
  return expert < args.covered && pieces != 0 ? pieces - 1 : pieces;
}

// Exclusive sums of the experts' pieces; each thread has two experts.
template <uint32_t kTokens>
KB_DEVICE void sum_pieces(SharedStorage<kTokens>& shared, const Arguments& args) {
  static_assert(kMaxExperts == 2 * kMultiplyThreads, "a thread has two experts");
  const uint32_t expert = 2 * ptx::thread_index();
  const uint32_t first = listed_pieces(shared, args, expert);
  const uint32_t both = first + listed_pieces(shared, args, expert + 1);
  uint32_t sum = both;
#pragma unroll
  for (uint32_t delta = 1; delta < 32; delta *= 2) {
    const uint32_t below = ptx::shfl_sync_up(sum, delta);
    if (ptx::lane_index() >= delta) sum += below;
  }
  if (ptx::lane_index() == 31) shared.warp_sums[ptx::warp_index()] = sum;
  ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);
#pragma unroll
  for (uint32_t warp = 0; warp < kMultiplyWarps; ++warp) {
    if (warp < ptx::warp_index()) sum += shared.warp_sums[warp];
  }
  if (expert < args.experts) shared.starts[expert] = sum - both;
  if (expert + 1 < args.experts) shared.starts[expert + 1] = sum - both + first;
  if (ptx::thread_index() == kMultiplyThreads - 1) shared.starts[args.experts] = sum;
}

// CTAs that have no first item, or an empty one.
template <uint32_t kTokens>
KB_DEVICE void count_idle(SharedStorage<kTokens>& shared, const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t with_first = args.covered * args.parts;
  const uint32_t expert = cta / args.parts;
  for (uint32_t e = ptx::thread_index(); e < args.covered; e += kMultiplyThreads) {
    if (shared.counts[e] != 0) continue;
    ptx::red_relaxed_cta_shared_add_u32(&shared.idle, args.parts);
    if (e <= expert) {
      const uint32_t below = e < expert ? args.parts : cta % args.parts;
      ptx::red_relaxed_cta_shared_add_u32(&shared.idle_below, below);
    }
  }
  if (ptx::thread_index() == 0) {
    ptx::red_relaxed_cta_shared_add_u32(&shared.idle, ptx::cta_count().x - with_first);
    if (cta >= with_first) {
      ptx::red_relaxed_cta_shared_add_u32(&shared.idle_below, cta - with_first);
    }
  }
}

// By the warps that multiply, once all tokens are routed. The counts are zero before.
template <uint32_t kTokens>
KB_DEVICE void list_items(SharedStorage<kTokens>& shared, const Arguments& args) {
  for (uint32_t token = ptx::thread_index(); token < args.m; token += kMultiplyThreads) {
    const ExpertIds ids = args.ids[token];
#pragma unroll
    for (uint32_t s = 0; s < kMaxTopk; ++s) {
      const uint32_t expert = ids.words[s / 2] >> 16 * (s % 2) & 0xffff;
      if (expert != kNoExpert) ptx::red_relaxed_cta_shared_add_u32(&shared.counts[expert], 1);
    }
  }
  ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);
  count_idle(shared, args);
  sum_pieces(shared, args);
  ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.counted);
  }
}

}  // namespace kb::step
