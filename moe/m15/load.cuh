// Loads: one thread streams the items' weights, three warps gather their tokens.
#pragma once

#include "fp8_tile.cuh"
#include "items.cuh"
#include "pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/tma.cuh"
#include "wait.cuh"

namespace kb::step {

// ---- Weights: one thread.

// Where the scale of a block of 128 x 128 weights is, and the box that holds it.
KB_DEVICE uint32_t scale_of(const Arguments& args, uint32_t row, uint32_t column) {
  return row * (args.k / kTileK) + column;
}
KB_DEVICE uint32_t aligned_scale(uint32_t scale) {
  return scale / kScaleBox * kScaleBox;
}

// A block of the item's weights and its scale, to a stage that is empty.
template <uint32_t kTokens>
KB_DEVICE void load_block(SharedStorage<kTokens>& shared, const Arguments& args, const Item& item,
                          uint32_t block, uint32_t stage) {
  const uint32_t row = item.expert * (args.n / kTileN) + item.n_block + block / item.k_blocks;
  const uint32_t column = item.k_block + block % item.k_blocks;
  Mbarrier* full = &shared.full[stage];
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full,
                                 kTileN * kTileK + kScaleBox * sizeof(float));
  ptx::cp_async_bulk_tensor_2d_shared_global(shared.weights[stage], &args.weights, column * kTileK,
                                             row * kTileN, full);
  ptx::cp_async_bulk_tensor_2d_shared_global(shared.weight_scales[stage], &args.weight_scales,
                                             aligned_scale(scale_of(args, row, column)), 0, full);
}

// Passes an item to the warps that gather, or that there is none. Whether there is one.
template <uint32_t kTokens>
KB_DEVICE bool hand_on(SharedStorage<kTokens>& shared, const Arguments& args,
                       PipelineState<kQueue>& turn, uint32_t place, Item& item) {
  const bool some = listed_item(shared, args, place, item);
  mbarrier_wait_parity(&shared.place_empty[turn.stage], turn.phase ^ 1);
  shared.places[turn.stage] = some ? place : kNoItem;
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_full[turn.stage]);
  turn.advance();
  return some;
}

// Blocks of an item that are requested before the item after it is handed on. Few tokens are there
// before the stages on their way have been used up: the later, the more evenly all CTAs end. Many
// need the time.
template <uint32_t kTokens>
inline constexpr uint32_t kBlocksBefore = kTokens == 16 ? UINT32_MAX : 8;

// Blocks of the first item, beside those that are requested before its expert is known to have
// tokens, before the list of the others is waited for: it is complete later than the first products
// begin.
inline constexpr uint32_t kBlocksUnlisted = 4;

KB_DEVICE uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

// Of the CTA's first item, as much is requested as there are stages before its expert is known to
// have tokens, no more than `pace` stages at a time: the loads that routing waits for are not to
// queue behind megabytes of weights.
template <uint32_t kTokens>
KB_DEVICE void load_first_blocks(SharedStorage<kTokens>& shared, const Arguments& args) {
  const Item item = first_item<kTokens>(args);
  for (uint32_t block = 0; block < eager_blocks<kTokens>(item); ++block) {
    if (block >= args.pace) mbarrier_wait_parity(&shared.full[block - args.pace], 0);
    load_block(shared, args, item, block, block);
  }
}

// Whether the first item's expert has no tokens: known when its first stage is let go.
template <uint32_t kTokens>
KB_DEVICE bool first_is_empty(const SharedStorage<kTokens>& shared) {
  mbarrier_wait_parity(&shared.empty[0], 0);
  return shared.items[0].rows == 0;
}

template <uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  PipelineState<kQueue> turn;
  bool first = has_first_item(args);
  Item item;
  Item next;
  if (first) {
    load_first_blocks(shared, args);
    item = first_item<kTokens>(args);
  } else {
    mbarrier_wait_parity(&shared.counted, 0);
    if (!hand_on(shared, args, turn, shared.idle_below, item)) return;
  }
  for (bool some = true; some; item = next, first = false) {
    uint32_t block = first ? eager_blocks<kTokens>(item) : 0;
    for (uint32_t i = 0; i < block; ++i) state.advance();
    const bool empty = first && first_is_empty(shared);
    const uint32_t blocks = empty ? block : item.n_blocks * item.k_blocks;
    const uint32_t hand = block + least(kBlocksBefore<kTokens>, blocks - block);
    const uint32_t claim = first ? least(block + kBlocksUnlisted, hand) : block;
    uint32_t place = 0;
    for (;; ++block) {
      if (block == claim) {
        mbarrier_wait_parity(&shared.counted, 0);
        place = empty ? shared.idle_below : claim_place(shared, args);
      }
      if (block == hand) some = hand_on(shared, args, turn, place, next);
      if (block == blocks) break;
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      load_block(shared, args, item, block, state.stage);
      state.advance();
    }
  }
}

// ---- Tokens: three warps.

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
template <uint32_t kTokens>
KB_DEVICE uint32_t select_tokens(SharedStorage<kTokens>& shared, const Arguments& args,
                                 const Item& item, ItemTokens<kTokens>& found) {
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
    uint32_t sum = count;
#pragma unroll
    for (uint32_t delta = 1; delta < 32; delta *= 2) {
      const uint32_t below = ptx::shfl_sync_up(sum, delta);
      if (ptx::lane_index() >= delta) sum += below;
    }
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

// Columns of the instruction that take `rows` tokens.
KB_DEVICE uint32_t columns_for(uint32_t rows) {
  return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

// The codes and scales of the item's tokens, block by block; tokens that do not exist become zero.
template <uint32_t kTokens>
KB_DEVICE void gather_blocks(SharedStorage<kTokens>& shared, const Arguments& args,
                             PipelineState<kSlots>& slot, const Item& item, uint32_t rows,
                             const uint32_t (&tokens)[kTokens]) {
  constexpr uint32_t kCopyRows = kGatherThreads / kRowChunks;
  constexpr uint32_t kCopies = (kTokens + kCopyRows - 1) / kCopyRows;
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  const uint32_t columns = columns_for(rows);
  const uint32_t chunk = thread % kRowChunks;
  const e4m3* codes[kCopies];
#pragma unroll
  for (uint32_t i = 0; i < kCopies; ++i) {
    const uint32_t row = i * kCopyRows + thread / kRowChunks;
    const uint32_t token = row < rows ? tokens[row] : 0;
    codes[i] = args.codes + uint64_t{token} * args.k + item.k_block * kTileK + chunk * kChunkBytes;
  }
  const uint32_t own = thread < rows ? tokens[thread] : 0;
  const SectorScale* scale = args.scales + uint64_t{own} * (args.k / kTileK) + item.k_block;
  for (uint32_t block = 0; block < item.k_blocks; ++block) {
    const uint32_t at = slot.stage;
    mbarrier_wait_parity(&shared.slot_empty[at], slot.phase ^ 1);
#pragma unroll
    for (uint32_t i = 0; i < kCopies; ++i) {
      const uint32_t row = i * kCopyRows + thread / kRowChunks;
      if (row < columns) {
        ptx::cp_async_cg_shared_global_16(shared.codes[at] + swizzle_128b(row, chunk),
                                          codes[i] + block * kTileK, row < rows ? kChunkBytes : 0);
      }
    }
    if (thread < columns) {
      ptx::cp_async_ca_shared_global_4(&shared.scales[at][thread], scale[block].copies,
                                       thread < rows ? sizeof(float) : 0);
    }
    ptx::cp_async_mbarrier_arrive_noinc(&shared.slot_full[at]);
    slot.advance();
  }
}

template <uint32_t kTokens>
KB_DEVICE void gather_item(SharedStorage<kTokens>& shared, const Arguments& args,
                           PipelineState<2>& turn, PipelineState<kSlots>& slot, const Item& item) {
  static_assert(kTokens <= kGatherThreads, "a thread copies a token's weight");
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  ItemTokens<kTokens>& to = shared.items[turn.stage];
  mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
  const uint32_t rows = select_tokens(shared, args, item, to);
  if (thread < rows) {
    const TokenRoutes& routes = args.routes[to.tokens[thread]];
    ptx::cp_async_ca_shared_global_4(&to.weights[thread], &routes.weights[to.slots[thread]]);
  }
  ptx::cp_async_mbarrier_arrive_noinc(&shared.item_full[turn.stage]);
  if (thread == 0) {
    to.item = item;
    to.rows = rows;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
  }
  if (rows != 0) gather_blocks(shared, args, slot, item, rows, to.tokens);
  turn.advance();
}

// The next item that load_weights has claimed; false after the last.
template <uint32_t kTokens>
KB_DEVICE bool next_item(SharedStorage<kTokens>& shared, const Arguments& args,
                         PipelineState<kQueue>& queued, Item& item) {
  mbarrier_wait_parity(&shared.place_full[queued.stage], queued.phase);
  const uint32_t place = shared.places[queued.stage];
  ptx::bar_warp_sync();
  if (ptx::lane_index() == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_empty[queued.stage]);
  }
  queued.advance();
  return place != kNoItem && listed_item(shared, args, place, item);
}

template <uint32_t kTokens>
KB_DEVICE void gather_tokens(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<2> turn;
  PipelineState<kSlots> slot;
  PipelineState<kQueue> queued;
  for (bool first = has_first_item(args);; first = false) {
    Item item;
    if (first) {
      item = first_item<kTokens>(args);
    } else if (!next_item(shared, args, queued, item)) {
      break;
    }
    gather_item(shared, args, turn, slot, item);
  }
  mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
  ptx::cp_async_mbarrier_arrive_noinc(&shared.item_full[turn.stage]);
  if (ptx::thread_index() == 32 * kGatherWarp) {
    shared.items[turn.stage].rows = kNoItem;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
  }
}

}  // namespace kb::step
