// The list of items, which each CTA makes for itself from the tokens' experts: `shared.counts` has
// the tokens of each expert, `shared.starts` where an expert's pieces start in the list. The first
// `covered` experts' first pieces are no part of it (first_items.cuh).
//
// count_tokens, count_idle, sum_pieces and list_items are called by all threads of the warps that
// list.
#pragma once

#include "first_items.cuh"
#include "prefix_sum.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "token_data.cuh"

namespace kb {

template <template <uint32_t> typename Shared, uint32_t kTokens, typename Arguments>
KB_DEVICE uint32_t listed_pieces(const Shared<kTokens>& shared, const Arguments& args,
                                 uint32_t expert) {
  if (expert >= args.experts) return 0;
  const uint32_t pieces = ceil_div(shared.counts[expert], kTokens);
  return expert < args.cut.covered && pieces != 0 ? pieces - 1 : pieces;
}

// The expert of a listed piece: the last one that starts there or before.
KB_DEVICE uint32_t expert_of_piece(const uint32_t* starts, uint32_t experts, uint32_t piece) {
  uint32_t expert = 0;
  uint32_t end = experts;
  while (end - expert > 1) {
    const uint32_t middle = (expert + end) / 2;
    if (starts[middle] <= piece) {
      expert = middle;
    } else {
      end = middle;
    }
  }
  return expert;
}

template <typename Shared>
KB_DEVICE void count_token(Shared& shared, const ExpertIds& ids) {
#pragma unroll
  for (uint32_t s = 0; s < kMaxTopk; ++s) {
    const uint32_t expert = ids.words[s / 2] >> 16 * (s % 2) & 0xffff;
    if (expert != kNoExpert) ptx::red_relaxed_cta_shared_add_u32(&shared.counts[expert], 1);
  }
}

// Counts all tokens' experts. The counts are zero before; `thread` is that of the ones that list.
template <typename Shared, typename Arguments>
KB_DEVICE void count_tokens(Shared& shared, const Arguments& args, uint32_t thread) {
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
}

// Counts the CTAs that have no first item, or an empty one: all of them, and those before this CTA.
template <typename Shared, typename Arguments>
KB_DEVICE void count_idle(Shared& shared, const Arguments& args) {
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t with_first = first_items(args);
  const uint32_t expert = cta / args.cut.coarse.all;
  for (uint32_t e = ptx::thread_index() - 32 * kListWarp; e < args.cut.covered; e += kListThreads) {
    if (shared.counts[e] != 0) continue;
    ptx::red_relaxed_cta_shared_add_u32(&shared.idle, args.cut.coarse.all);
    if (e <= expert) {
      const uint32_t below = e < expert ? args.cut.coarse.all : cta % args.cut.coarse.all;
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

// Sums up the pieces of the experts before each one: where its own start in the list.
template <template <uint32_t> typename Shared, uint32_t kTokens, typename Arguments>
KB_DEVICE void sum_pieces(Shared<kTokens>& shared, const Arguments& args) {
  constexpr uint32_t kExperts = kMaxExperts / kListThreads;  // of a thread
  const uint32_t warp = ptx::warp_index() - kListWarp;
  const uint32_t thread = ptx::thread_index() - 32 * kListWarp;
  uint32_t own = 0;
  for (uint32_t i = 0; i < kExperts; ++i) own += listed_pieces(shared, args, kExperts * thread + i);
  const uint32_t sum = prefix_sum_of_warps(own, warp, shared.warp_sums, kListBarrier);
  uint32_t start = sum - own;
  for (uint32_t i = 0; i < kExperts; ++i) {
    const uint32_t expert = kExperts * thread + i;
    if (expert < args.experts) shared.starts[expert] = start;
    start += listed_pieces(shared, args, expert);
  }
  if (thread == kListThreads - 1) shared.starts[args.experts] = sum;
}

// By the warps that list, once all tokens are routed. The counts are zero before.
template <typename Shared, typename Arguments>
KB_DEVICE void list_items(Shared& shared, const Arguments& args) {
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

}  // namespace kb
