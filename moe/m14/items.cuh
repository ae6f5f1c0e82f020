// The list of items, which each CTA makes for itself from the tokens' experts.
//
// The first `covered` experts' first pieces are no part of it: CTA c takes the c-th in any case,
// before any token is routed. The list holds the others, expert by expert, and CTAs claim its
// places one after another. The last pieces are cut finely, so that all CTAs end at about one time:
// less so where experts have several pieces each, which read their weights from the L2.
#pragma once

#include "layout.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"

namespace kb::step {

KB_DEVICE uint32_t first_items(const Arguments& args) {
  return args.covered * args.coarse.all;
}

KB_DEVICE bool has_first_item(const Arguments& args) {
  return ptx::cta_index().x < first_items(args);
}

template <uint32_t kTokens>
KB_DEVICE Item item_of(const Arguments& args, const Parts& parts, uint32_t expert, uint32_t piece,
                       uint32_t part) {
  const uint32_t n_block = part % parts.along_n * parts.item_n;
  const uint32_t k_block = part / parts.along_n * parts.item_k;
  const uint32_t n_left = args.n / kTileN - n_block;
  const uint32_t k_left = args.k / kTileK - k_block;
  return {.expert = expert,
          .first = piece * kTokens,
          .n_block = n_block,
          .n_blocks = n_left < parts.item_n ? n_left : parts.item_n,
          .k_block = k_block,
          .k_blocks = k_left < parts.item_k ? k_left : parts.item_k};
}

template <uint32_t kTokens>
KB_DEVICE Item first_item(const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  return item_of<kTokens>(args, args.coarse, cta / args.coarse.all, 0, cta % args.coarse.all);
}

// Stages of an item's weights that are requested before the expert is known to have tokens.
template <uint32_t kTokens>
KB_DEVICE uint32_t eager_blocks(const Item& item) {
  const uint32_t blocks = item.n_blocks * item.k_blocks;
  return blocks < kStages<kTokens> ? blocks : kStages<kTokens>;
}

// Whether the CTA has nothing to do when the list is complete: no first item, or an empty one.
template <uint32_t kTokens>
KB_DEVICE bool is_idle(const SharedStorage<kTokens>& shared, const Arguments& args) {
  return !has_first_item(args) || shared.counts[ptx::cta_index().x / args.coarse.all] == 0;
}

// A place of the list that is nobody's yet: the idle CTAs have the first ones, the others claim.
template <uint32_t kTokens>
KB_DEVICE uint32_t claim_place(const SharedStorage<kTokens>& shared, const Arguments& args) {
  return shared.idle + ptx::atom_relaxed_gpu_global_add_u32(&args.meeting->claims, 1);
}

// The item at a place of the list, once `counted` is complete; false past its end.
template <uint32_t kTokens>
KB_DEVICE bool listed_item(const SharedStorage<kTokens>& shared, const Arguments& args,
                           uint32_t place, Item& item) {
  const uint32_t pieces = shared.starts[args.experts];
  uint32_t coarse = pieces > args.fine_pieces ? pieces - args.fine_pieces : 0;
  if (pieces * args.coarse.all <= ptx::cta_count().x) coarse = pieces;  // no CTA takes a second one
  const bool fine = place >= coarse * args.coarse.all;
  const Parts& finely = shared.crowded ? args.crowded : args.fine;
  const Parts& parts = fine ? finely : args.coarse;
  if (fine) place -= coarse * args.coarse.all;
  const uint32_t piece = place / parts.all + (fine ? coarse : 0);
  if (piece >= pieces) return false;
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
  item = item_of<kTokens>(args, parts, expert, piece - shared.starts[expert] + skipped,
                          place % parts.all);
  return true;
}

template <uint32_t kTokens>
KB_DEVICE uint32_t listed_pieces(const SharedStorage<kTokens>& shared, const Arguments& args,
                                 uint32_t expert) {
  if (expert >= args.experts) return 0;
  const uint32_t pieces = ceil_div(shared.counts[expert], kTokens);
  return expert < args.covered && pieces != 0 ? pieces - 1 : pieces;
}

// Exclusive sums of the experts' pieces. Experts that have some are counted in the upper halves.
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
  uint32_t sum = own;
#pragma unroll
  for (uint32_t delta = 1; delta < 32; delta *= 2) {
    const uint32_t below = ptx::shfl_sync_up(sum, delta);
    if (ptx::lane_index() >= delta) sum += below;
  }
  if (ptx::lane_index() == 31) shared.warp_sums[warp] = sum;
  ptx::bar_sync(kListBarrier, kListThreads);
#pragma unroll
  for (uint32_t w = 0; w < kListWarps; ++w) {
    if (w < warp) sum += shared.warp_sums[w];
  }
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

// CTAs that have no first item, or an empty one.
template <uint32_t kTokens>
KB_DEVICE void count_idle(SharedStorage<kTokens>& shared, const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t with_first = first_items(args);
  const uint32_t expert = cta / args.coarse.all;
  for (uint32_t e = ptx::thread_index() - 32 * kListWarp; e < args.covered; e += kListThreads) {
    if (shared.counts[e] != 0) continue;
    ptx::red_relaxed_cta_shared_add_u32(&shared.idle, args.coarse.all);
    if (e <= expert) {
      const uint32_t below = e < expert ? args.coarse.all : cta % args.coarse.all;
      ptx::red_relaxed_cta_shared_add_u32(&shared.idle_below, below);
    }
  }
  if (ptx::thread_index() == 32 * kListWarp) {
    ptx::red_relaxed_cta_shared_add_u32(&shared.idle, ptx::cta_count().x - with_first);
    if (cta >= with_first) {
      ptx::red_relaxed_cta_shared_add_u32(&shared.idle_below, cta - with_first);
    }
  }
}

template <uint32_t kTokens>
KB_DEVICE void count_token(SharedStorage<kTokens>& shared, const ExpertIds& ids) {
#pragma unroll
  for (uint32_t s = 0; s < kMaxTopk; ++s) {
    const uint32_t expert = ids.words[s / 2] >> 16 * (s % 2) & 0xffff;
    if (expert != kNoExpert) ptx::red_relaxed_cta_shared_add_u32(&shared.counts[expert], 1);
  }
}

// By the warps that list, once all tokens are routed. The counts are zero before.
template <uint32_t kTokens>
KB_DEVICE void list_items(SharedStorage<kTokens>& shared, const Arguments& args) {
  const uint32_t thread = ptx::thread_index() - 32 * kListWarp;
  constexpr uint32_t kAhead = 4;  // tokens whose ids are on their way at a time
  for (uint32_t first = thread; first < args.m; first += kAhead * kListThreads) {
    ExpertIds ids[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t token = first + i * kListThreads;
      if (token < args.m) ids[i] = args.routes[token].ids;
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (first + i * kListThreads < args.m) count_token(shared, ids[i]);
    }
  }
  ptx::bar_sync(kListBarrier, kListThreads);
  count_idle(shared, args);
  sum_pieces(shared, args);
  ptx::bar_sync(kListBarrier, kListThreads);
  if (thread == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.counted);
  }
}

}  // namespace kb::step
