// Which tokens an item has, found among all by the warps that gather. `args` has routes and m;
// `shared.matches` has a word for each of the warps.
#pragma once

#include "cta_roles.cuh"
#include "prefix_sum.cuh"
#include "resident_items.cuh"
#include "token_data.cuh"

namespace kb {

// The tokens of a sweep that have the expert: bit i of lane b's `bits` stands for token
// first + 32 b + i, and bit i of its `slots` for the expert's place among the token's.
struct Matches {
  uint32_t bits = 0;
  uint32_t slots[3] = {};
};

// Where an expert is in `ids`; kMaxTopk if it is not.
KB_DEVICE uint32_t find_expert(const ExpertIds& ids, uint32_t expert) {
  uint32_t slot = kMaxTopk;
#pragma unroll
  for (uint32_t s = 0; s < kMaxTopk; ++s) {
    if ((ids.words[s / 2] >> 16 * (s % 2) & 0xffff) == expert) slot = s;
  }
  return slot;
}

// The warp calls it.
template <typename Arguments>
KB_DEVICE Matches match_tokens(const Arguments& args, uint32_t expert, uint32_t first,
                               uint32_t batches) {
  constexpr uint32_t kAhead = 4;  // batches whose ids are on their way at a time
  Matches matches;
  for (uint32_t batch = 0; batch < batches; batch += kAhead) {
    ExpertIds ids[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t token = first + 32 * (batch + i) + ptx::lane_index();
      if (batch + i < batches && token < args.m) {
        ids[i] = args.routes[token].ids;
      } else {
        ids[i] = {~0u, ~0u, ~0u, ~0u};
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t slot = find_expert(ids[i], expert);
      const bool own = ptx::lane_index() == batch + i;
      const uint32_t bits = ptx::vote_sync_ballot(slot < kMaxTopk);
      if (own) matches.bits = bits;
#pragma unroll
      for (uint32_t b = 0; b < 3; ++b) {
        const uint32_t slots = ptx::vote_sync_ballot((slot >> b & 1) != 0);
        if (own) matches.slots[b] = slots;
      }
    }
  }
  return matches;
}

// Finds the item's tokens among those of its expert, which are in ascending order for every CTA.
// How many they are, kTokens at most.
template <uint32_t kTokens, typename Shared, typename Arguments>
KB_DEVICE uint32_t select_tokens(Shared& shared, const Arguments& args, const Item& item,
                                 ItemTokens<kTokens>& found) {
  constexpr uint32_t kBatches = 32 * kGatherWarps;  // of 32 tokens, of a sweep
  const uint32_t warp = ptx::warp_index() - kGatherWarp;
  uint32_t before = 0;  // tokens of the expert
  for (uint32_t first = 0; first < args.m; first += 32 * kBatches) {
    const uint32_t left = ceil_div(args.m - first, 32);
    const uint32_t batches = left < kBatches ? left : kBatches;
    const uint32_t share = ceil_div(batches, kGatherWarps);
    const uint32_t begin = warp * share < batches ? warp * share : batches;
    const uint32_t end = begin + share < batches ? begin + share : batches;
    const Matches matches = match_tokens(args, item.expert, first + 32 * begin, end - begin);
    const auto count = static_cast<uint32_t>(__builtin_popcount(matches.bits));
    const uint32_t sum = prefix_sum_of_warp(count);
    if (ptx::lane_index() == 31) shared.matches[warp] = sum;
    ptx::bar_sync(kGatherBarrier, kGatherThreads);
    uint32_t rank = before + sum - count;
#pragma unroll
    for (uint32_t w = 0; w < kGatherWarps; ++w) {
      before += shared.matches[w];
      if (w < warp) rank += shared.matches[w];
    }
    for (uint32_t bits = matches.bits; bits != 0; bits &= bits - 1, ++rank) {
      const auto bit = static_cast<uint32_t>(__builtin_popcount((bits & (0 - bits)) - 1));
      if (rank - item.first < kTokens) {
        found.tokens[rank - item.first] = first + 32 * (begin + ptx::lane_index()) + bit;
        found.slots[rank - item.first] = (matches.slots[0] >> bit & 1) |
                                         (matches.slots[1] >> bit & 1) << 1 |
                                         (matches.slots[2] >> bit & 1) << 2;
      }
    }
    ptx::bar_sync(kGatherBarrier, kGatherThreads);
  }
  const uint32_t rows = before > item.first ? before - item.first : 0;
  return rows < kTokens ? rows : kTokens;
}

}  // namespace kb
