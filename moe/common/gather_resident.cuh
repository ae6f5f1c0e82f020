// An item's tokens, gathered into slots where they stay: by the warps that gather. `args` has
// routes, codes and scales.
#pragma once

#include "fp8_tile.cuh"
#include "pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "select_tokens.cuh"
#include "wait.cuh"

namespace kb {

// Columns of the instruction that take `rows` tokens.
KB_DEVICE uint32_t columns_for(uint32_t rows) {
  return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

// The codes and scales of the item's tokens, block by block; tokens that do not exist become zero.
template <uint32_t kTokens, uint32_t kSlots, typename Shared, typename Arguments>
KB_DEVICE void gather_blocks(Shared& shared, const Arguments& args, PipelineState<kSlots>& slot,
                             const Item& item, uint32_t rows, const uint32_t (&tokens)[kTokens]) {
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

// Fills the next of shared.items, and slots with the item's tokens.
template <template <uint32_t> typename Shared, uint32_t kTokens, uint32_t kSlots,
          typename Arguments>
KB_DEVICE void gather_item(Shared<kTokens>& shared, const Arguments& args, PipelineState<2>& turn,
                           PipelineState<kSlots>& slot, const Item& item) {
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

// After the last item.
template <typename Shared>
KB_DEVICE void gather_no_more(Shared& shared, const PipelineState<2>& turn) {
  mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
  ptx::cp_async_mbarrier_arrive_noinc(&shared.item_full[turn.stage]);
  if (ptx::thread_index() == 32 * kGatherWarp) {
    shared.items[turn.stage].rows = kNoItem;
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.item_full[turn.stage]);
  }
}

}  // namespace kb
