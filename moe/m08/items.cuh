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

// Exclusive sums of the experts' pieces; each thread has two experts.
template <uint32_t kTokens>
KB_DEVICE void sum_pieces(SharedStorage<kTokens>& shared, const Arguments& args) {
  static_assert(kMaxExperts == 2 * kMultiplyThreads, "a thread has two experts");
  const uint32_t expert = 2 * ptx::thread_index();
  const uint32_t first = listed_pieces(shared, args, expert);
  const uint32_t both = first + listed_pieces(shared, args, expert + 1);
  const uint32_t sum =
      prefix_sum_of_warps(both, ptx::warp_index(), shared.warp_sums, kMultiplyBarrier);
  if (expert < args.experts) shared.starts[expert] = sum - both;
  if (expert + 1 < args.experts) shared.starts[expert + 1] = sum - both + first;
  if (ptx::thread_index() == kMultiplyThreads - 1) shared.starts[args.experts] = sum;
}

// CTAs that have no first item, or an empty one.
template <uint32_t kTokens>
KB_DEVICE void count_idle(SharedStorage<kTokens>& shared, const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t with_first = args.cut.covered * args.cut.coarse.all;
  const uint32_t expert = cta / args.cut.coarse.all;
  for (uint32_t e = ptx::thread_index(); e < args.cut.covered; e += kMultiplyThreads) {
    if (shared.counts[e] != 0) continue;
    ptx::red_relaxed_cta_shared_add_u32(&shared.idle, args.cut.coarse.all);
    if (e <= expert) {
      const uint32_t below = e < expert ? args.cut.coarse.all : cta % args.cut.coarse.all;
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
