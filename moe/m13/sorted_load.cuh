// Where an expert has many tokens: one warp streams the items' weights, three gather their tokens.
#pragma once

#include "fp8_tile.cuh"
#include "pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/tma.cuh"
#include "sorted_items.cuh"
#include "wait.cuh"

namespace kb::step::sorted {

// ---- Weights: one warp, whose first lane requests them.

// Where the scale of a block of 128 x 128 weights is, and the box that holds it.
KB_DEVICE uint32_t scale_of(const Arguments& args, uint32_t row, uint32_t column) {
  return row * (args.k / kTileK) + column;
}
KB_DEVICE uint32_t aligned_scale(uint32_t scale) {
  return scale / kScaleBox * kScaleBox;
}

// The item's weights of a block of K and their scales, to a stage that is empty.
template <uint32_t kTokens>
KB_DEVICE void load_block(SharedStorage<kTokens>& shared, const Arguments& args, const Item& item,
                          uint32_t block, uint32_t stage) {
  const uint32_t column = item.k_block + block;
  Mbarrier* full = &shared.full[stage];
  ptx::mbarrier_arrive_expect_tx(
      ptx::sem_release, ptx::scope_cta, full,
      item.n_blocks * (kTileN * kTileK + kScaleBox * static_cast<uint32_t>(sizeof(float))));
  for (uint32_t i = 0; i < item.n_blocks; ++i) {
    const uint32_t row = item.expert * (args.n / kTileN) + item.n_block + i;
#pragma unroll
    for (uint32_t box = 0; box < kTileN / kBoxRows; ++box) {
      ptx::cp_async_bulk_tensor_3d_shared_global(shared.weights[stage][i] + box * kBoxRows * kTileK,
                                                 &args.weights, column * kTileK,
                                                 row * (kTileN / 4) + box * kRowGroup, 0, full);
    }
    ptx::cp_async_bulk_tensor_2d_shared_global(shared.weight_scales[stage][i], &args.weight_scales,
                                               aligned_scale(scale_of(args, row, column)), 0, full);
  }
}

// Of the CTA's first item, as much is requested as there are stages before its expert is known to
// have routes, no more than `pace` stages at a time: the loads that routing waits for are not to
// queue behind megabytes of weights. One thread.
template <uint32_t kTokens>
KB_DEVICE void load_first_blocks(SharedStorage<kTokens>& shared, const Arguments& args) {
  if (!has_first_item(args)) return;
  const Item item = first_item(args);
  for (uint32_t block = 0; block < eager_blocks<kTokens>(item); ++block) {
    if (block >= args.pace) mbarrier_wait_parity(&shared.full[block - args.pace], 0);
    load_block(shared, args, item, block, block);
  }
}

// Passes an item to the warps that gather; `some`: there is one.
template <uint32_t kTokens>
KB_DEVICE void hand_on(SharedStorage<kTokens>& shared, PipelineState<kQueue>& turn,
                       const Item& item, bool some) {
  mbarrier_wait_parity(&shared.place_empty[turn.stage], turn.phase ^ 1);
  ptx::bar_warp_sync();  // all lanes have seen the phase
  if (ptx::lane_index() == 0) {
    shared.queue[turn.stage] = item;
    if (!some) shared.queue[turn.stage].k_blocks = 0;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_full[turn.stage]);
  }
  turn.advance();
}

// The warp: a place of the list that is nobody's yet. Lane 0 alone knows it.
KB_DEVICE uint32_t claim_place(const Arguments& args) {
  if (ptx::lane_index() != 0) return 0;
  return ptx::atom_relaxed_gpu_global_add_u32(&args.meeting->claims, 1);
}

// The next item is claimed and handed on while an item's weights are requested, not before: the
// later, the more evenly all CTAs end.
inline constexpr uint32_t kBlocksBefore = 2;

// The warp, after load_first_blocks.
template <uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  PipelineState<kQueue> turn;
  Item item;
  Item next;
  uint32_t block = 0;
  bool some = has_first_item(args);
  mbarrier_wait_parity(&shared.counted, 0);
  if (some) {
    item = first_item(args);
    block = eager_blocks<kTokens>(item);
    for (uint32_t i = 0; i < block; ++i) state.advance();
    some = shared.counts[item.expert] != 0;
  }
  if (!some) {
    some = listed_item(shared, args, ptx::shfl_sync_idx(claim_place(args), 0), item);
    hand_on(shared, turn, item, some);
    block = 0;
  }
  for (; some; item = next, block = 0) {
    const uint32_t place = claim_place(args);
    const uint32_t left = item.k_blocks - block;
    const uint32_t hand = block + (kBlocksBefore < left ? kBlocksBefore : left);
    for (;; ++block) {
      if (block == hand) {
        some = listed_item(shared, args, ptx::shfl_sync_idx(place, 0), next);
        hand_on(shared, turn, next, some);
      }
      if (block == item.k_blocks) break;
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      ptx::bar_warp_sync();  // all lanes have seen the phase
      if (ptx::lane_index() == 0) load_block(shared, args, item, block, state.stage);
      state.advance();
    }
  }
}

// ---- Tokens: three warps.

// Columns of the product that take `rows` routes.
KB_DEVICE uint32_t columns_for(uint32_t rows) {
  return ceil_div(rows, 16) * 16;
}

// The codes and scales of the item's tokens, block by block. Of a row without a route the scale
// becomes zero; its codes are what they were, and its sums go nowhere.
template <uint32_t kTokens>
KB_DEVICE void gather_blocks(SharedStorage<kTokens>& shared, const Arguments& args,
                             PipelineState<kStages<kTokens>>& state, const Item& item,
                             uint32_t rows, const uint32_t (&tokens)[kTokens]) {
  constexpr uint32_t kCopyRows = kGatherThreads / kRowChunks;
  constexpr uint32_t kCopies = (kTokens + kCopyRows - 1) / kCopyRows;
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  const uint32_t row = thread / kRowChunks;
  const uint32_t chunk = thread % kRowChunks;
  uint32_t from[kCopies];  // rows of codes
#pragma unroll
  for (uint32_t i = 0; i < kCopies; ++i) {
    from[i] = row + i * kCopyRows < rows ? tokens[row + i * kCopyRows] : 0;
  }
  const uint32_t blocks = args.k / kTileK;
  const e4m3* codes = args.codes + item.k_block * kTileK + chunk * kChunkBytes;
  for (uint32_t block = 0; block < item.k_blocks; ++block, codes += kTileK) {
    const uint32_t at = state.stage;
    mbarrier_wait_parity(&shared.empty[at], state.phase ^ 1);
#pragma unroll
    for (uint32_t i = 0; i < kCopies; ++i) {
      if (row + i * kCopyRows < rows) {
        ptx::cp_async_cg_shared_global_16(
            shared.codes[at] + swizzle_128b(row + i * kCopyRows, chunk),
            codes + uint64_t{from[i]} * args.k);
      }
    }
    for (uint32_t r = thread; r < columns_for(rows); r += kGatherThreads) {
      const uint32_t token = r < rows ? tokens[r] : 0;
      const SectorScale& scale = args.scales[uint64_t{token} * blocks + item.k_block + block];
      ptx::cp_async_ca_shared_global_4(&shared.scales[at][r / 2].even + r % 2, scale.copies,
                                       r < rows ? sizeof(float) : 0);
    }
    ptx::cp_async_mbarrier_arrive_noinc(&shared.codes_full[at]);
    state.advance();
  }
}

template <uint32_t kTokens>
KB_DEVICE void gather_item(SharedStorage<kTokens>& shared, const Arguments& args,
                           PipelineState<2>& turn, PipelineState<kStages<kTokens>>& state,
                           const Item& item, uint32_t count) {
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  ItemRoutes<kTokens>& to = shared.items[turn.stage];
  const Span span = span_of<kTokens>(count, item.piece);
  const Route* routes = args.routes + uint64_t{item.expert} * args.m + span.first;
  mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
  for (uint32_t r = thread; r < span.rows; r += kGatherThreads) {
    const Route route = routes[r];
    to.tokens[r] = route.token;
    to.weights[r] = route.weight;
  }
  if (thread == 0) {
    to.item = item;
    to.rows = span.rows;
    if (span.rows == 0) to.item.k_blocks = eager_blocks<kTokens>(item);  // requested, and of no use
  }
  ptx::bar_sync(kGatherBarrier, kGatherThreads);
  if (thread == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
  }
  gather_blocks(shared, args, state, to.item, span.rows, to.tokens);
  turn.advance();
}

// The next item that load_weights has claimed; false after the last.
template <uint32_t kTokens>
KB_DEVICE bool next_item(SharedStorage<kTokens>& shared, PipelineState<kQueue>& queued,
                         Item& item) {
  mbarrier_wait_parity(&shared.place_full[queued.stage], queued.phase);
  item = shared.queue[queued.stage];
  ptx::bar_warp_sync();
  if (ptx::lane_index() == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.place_empty[queued.stage]);
  }
  queued.advance();
  return item.k_blocks != 0;
}

// The first item does not wait for the list of the others: its expert's count is enough.
template <uint32_t kTokens>
KB_DEVICE void gather_tokens(SharedStorage<kTokens>& shared, const Arguments& args,
                             const Count* counts) {
  PipelineState<2> turn;
  PipelineState<kStages<kTokens>> state;
  PipelineState<kQueue> queued;
  for (bool first = has_first_item(args);; first = false) {
    Item item;
    uint32_t count;
    if (first) {
      item = first_item(args);
      count = counts[item.expert].routes;
    } else {
      mbarrier_wait_parity(&shared.counted, 0);
      if (!next_item(shared, queued, item)) break;
      count = shared.counts[item.expert];
    }
    gather_item(shared, args, turn, state, item, count);
  }
  mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
  if (ptx::thread_index() == 32 * kGatherWarp) {
    shared.items[turn.stage].rows = kNoItem;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
  }
}

}  // namespace kb::step::sorted
