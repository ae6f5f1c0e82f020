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

// A block of the item's weights and its scale, to a stage that is empty.
template <uint32_t kTokens>
KB_DEVICE void load_block(SharedStorage<kTokens>& shared, const Arguments& args, const Item& item,
                          uint32_t block, uint32_t stage) {
  const uint32_t row = item.expert * (args.n / kTileN) + item.n_block + block / item.k_blocks;
  const uint32_t column = item.k_block + block % item.k_blocks;
  Mbarrier* full = &shared.full[stage];
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full, kTileN * kTileK);
  ptx::cp_async_bulk_tensor_2d_shared_global(shared.weights[stage], &args.weights, column * kTileK,
                                             row * kTileN, full);
  const float* scale = args.weight_scales + uint64_t{row} * (args.k / kTileK) + column;
  ptx::cp_async_ca_shared_global_4(&shared.weight_scales[stage], scale);
  ptx::cp_async_mbarrier_arrive_noinc(full);
}

// The first item's first blocks [from, to), no more than `pace` of them on their way at a time:
// the loads that routing waits for are not to queue behind megabytes of weights.
template <uint32_t kTokens>
KB_DEVICE void load_first_blocks(SharedStorage<kTokens>& shared, const Arguments& args,
                                 const Item& item, uint32_t from, uint32_t to) {
  for (uint32_t block = from; block < to; ++block) {
    if (block >= args.pace) mbarrier_wait_parity(&shared.full[block - args.pace], 0);
    load_block(shared, args, item, block, block);
  }
}

// Blocks of the first item that are requested before the CTA's threads have met.
template <uint32_t kTokens>
KB_DEVICE uint32_t early_blocks(const Arguments& args, const Item& item) {
  const uint32_t eager = eager_blocks<kStages<kTokens>>(item);
  return args.pace < eager ? args.pace : eager;
}

template <uint32_t kTokens>
KB_DEVICE void load_weights(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  const auto load = [&](const Item& item, uint32_t from) {
    for (uint32_t block = from; block < item.n_blocks * item.k_blocks; ++block) {
      mbarrier_wait_parity(&shared.empty[state.stage], state.phase ^ 1);
      load_block(shared, args, item, block, state.stage);
      state.advance();
    }
  };
  if (has_first_item(args)) {
    const Item item = first_item<kTokens>(args);
    const uint32_t eager = eager_blocks<kStages<kTokens>>(item);
    load_first_blocks(shared, args, item, early_blocks<kTokens>(args, item), eager);
    for (uint32_t block = 0; block < eager; ++block) state.advance();
    mbarrier_wait_parity(&shared.counted, 0);
    if (shared.counts[item.expert] != 0) load(item, eager);
  }
  mbarrier_wait_parity(&shared.counted, 0);
  Item item;
  for (uint32_t i = 0; listed_item(shared, args, i, item); ++i) load(item, 0);
}

// ---- Tokens: three warps.

// The tokens of a sweep that have the expert: bit i of lane b's answer stands for token
// first + 32 b + i. The warp calls it.
KB_DEVICE uint32_t match_tokens(const Arguments& args, uint32_t expert, uint32_t first,
                                uint32_t batches) {
  constexpr uint32_t kAhead = 4;  // batches whose ids are on their way at a time
  const uint32_t wanted = expert | expert << 16;
  uint32_t bits = 0;
  for (uint32_t batch = 0; batch < batches; batch += kAhead) {
    ExpertIds ids[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t token = first + 32 * (batch + i) + ptx::lane_index();
      if (batch + i < batches && token < args.m) {
        ids[i] = args.ids[token];
      } else {
        ids[i] = {~0u, ~0u, ~0u, ~0u};
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      bool match = false;
#pragma unroll
      for (const uint32_t word : ids[i].words) {
        const uint32_t differs = word ^ wanted;
        match = match || (differs & 0xffff) == 0 || differs >> 16 == 0;
      }
      const uint32_t lanes = ptx::vote_sync_ballot(match);
      if (ptx::lane_index() == batch + i) bits = lanes;
    }
  }
  return bits;
}

// Finds the item's tokens among those of its expert, which are in ascending order for every CTA,
// and writes them to `found`. How many they are; the first of them are kTokens at most.
template <uint32_t kTokens>
KB_DEVICE uint32_t select_tokens(SharedStorage<kTokens>& shared, const Arguments& args,
                                 const Item& item, uint32_t (&found)[kTokens]) {
  constexpr uint32_t kBatches = 32 * kGatherWarps;  // of 32 tokens, of a sweep
  const uint32_t warp = ptx::warp_index() - kGatherWarp;
  uint32_t before = 0;  // tokens of the expert
  for (uint32_t first = 0; first < args.m; first += 32 * kBatches) {
    const uint32_t left = ceil_div(args.m - first, 32);
    const uint32_t batches = left < kBatches ? left : kBatches;
    const uint32_t share = ceil_div(batches, kGatherWarps);
    const uint32_t begin = warp * share < batches ? warp * share : batches;
    const uint32_t end = begin + share < batches ? begin + share : batches;
    uint32_t bits = match_tokens(args, item.expert, first + 32 * begin, end - begin);
    const auto count = static_cast<uint32_t>(__builtin_popcount(bits));
    const uint32_t sum = prefix_sum_of_warp(count);
    if (ptx::lane_index() == 31) shared.matches[warp] = sum;
    ptx::bar_sync(kGatherBarrier, kGatherThreads);
    uint32_t rank = before + sum - count;
#pragma unroll
    for (uint32_t w = 0; w < kGatherWarps; ++w) {
      before += shared.matches[w];
      if (w < warp) rank += shared.matches[w];
    }
    for (; bits != 0; bits &= bits - 1, ++rank) {
      const auto bit = static_cast<uint32_t>(__builtin_popcount((bits & (0 - bits)) - 1));
      if (rank - item.first < kTokens) {
        found[rank - item.first] = first + 32 * (begin + ptx::lane_index()) + bit;
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
  const float* scale = args.scales + uint64_t{own} * (args.k / kTileK) + item.k_block;
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
      ptx::cp_async_ca_shared_global_4(&shared.scales[at][thread], scale + block,
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
  const uint32_t rows = select_tokens(shared, args, item, to.tokens);
  if (thread < rows) {
    ptx::cp_async_ca_shared_global_4(
        &to.weights[thread],
        args.expert_weights + uint64_t{item.expert} * args.m + to.tokens[thread]);
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

template <uint32_t kTokens>
KB_DEVICE void gather_tokens(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<2> turn;
  PipelineState<kSlots> slot;
  if (has_first_item(args)) gather_item(shared, args, turn, slot, first_item<kTokens>(args));
  mbarrier_wait_parity(&shared.counted, 0);
  Item item;
  for (uint32_t i = 0; listed_item(shared, args, i, item); ++i) {
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
