// The tokens of the items that a CTA claims, one item after another: by the warps that gather.
#pragma once

#include "gather_resident.cuh"
#include "items.cuh"
#include "wide.cuh"

namespace kb::step {

// As gather_blocks, block by block through wide slots.
template <uint32_t kTokens>
KB_DEVICE void gather_wide_blocks(SharedStorage<kTokens>& shared, const Arguments& args,
                                  PipelineState<kWideSlots<kTokens>>& slot, const Item& item,
                                  uint32_t rows, const uint32_t (&tokens)[kWide]) {
  constexpr uint32_t kCopyRows = kGatherThreads / kRowChunks;
  const WideView<kTokens> wide = wide_view(shared);
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  const uint32_t columns = wide_columns(rows);
  const uint32_t chunk = thread % kRowChunks;
  const e4m3* codes[ceil_div(kWide, kCopyRows)];
  uint32_t row = thread / kRowChunks;
#pragma unroll
  for (const e4m3*& code : codes) {
    code = args.codes + uint64_t{row < rows ? tokens[row] : 0} * args.k + item.k_block * kTileK +
           chunk * kChunkBytes;
    row += kCopyRows;
  }
  const uint32_t own = thread < rows ? tokens[thread] : 0;
  const SectorScale* scale = args.scales + uint64_t{own} * (args.k / kTileK) + item.k_block;
  for (uint32_t block = 0; block < item.k_blocks; ++block) {
    const uint32_t at = slot.stage;
    mbarrier_wait_parity(&wide.slot_empty[at], slot.phase ^ 1);
    row = thread / kRowChunks;
#pragma unroll
    for (const e4m3* code : codes) {
      if (row < columns) {
        ptx::cp_async_cg_shared_global_16(wide.codes[at] + swizzle_128b(row, chunk),
                                          code + block * kTileK, row < rows ? kChunkBytes : 0);
      }
      row += kCopyRows;
    }
    if (thread < columns) {
      ptx::cp_async_ca_shared_global_4(&wide.scales[at][thread], scale[block].copies,
                                       thread < rows ? sizeof(float) : 0);
    }
    ptx::cp_async_mbarrier_arrive_noinc(&wide.slot_full[at]);
    slot.advance();
  }
}

// Fills the next of shared.items with up to `most` tokens. How many there are.
template <uint32_t kTokens>
KB_DEVICE uint32_t gather_item_tokens(SharedStorage<kTokens>& shared, const Arguments& args,
                                      const PipelineState<2>& turn, const Item& item,
                                      uint32_t most) {
  static_assert(kWide <= kGatherThreads, "a thread copies a token's weight");
  const uint32_t thread = ptx::thread_index() - 32 * kGatherWarp;
  ItemTokens<kWide>& to = shared.items[turn.stage];
  mbarrier_wait_parity(&shared.item_empty[turn.stage], turn.phase ^ 1);
  const uint32_t found = select_tokens(shared, args, item, to);
  const uint32_t rows = found < most ? found : most;
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
  return rows;
}

template <uint32_t kTokens>
KB_DEVICE void gather_items(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<2> turn;
  PipelineState<kSlots> slot;
  PipelineState<kWideSlots<kTokens>> wide_slot;
  PipelineState<kQueue> queued;
  const bool has_first = has_first_item(args);
  bool narrow_before = has_first;
  for (bool first = has_first;; first = false) {
    Item item;
    if (first) {
      item = first_item<kTokens>(args);
    } else if (!next_item(shared, args, queued, item)) {
      break;
    }
    const bool wide = !first && shared.crowded;
    const uint32_t most = wide ? wide_pieces(shared, args, item.expert).tokens : kTokens;
    const uint32_t rows = gather_item_tokens(shared, args, turn, item, most);
    const uint32_t (&tokens)[kWide] = shared.items[turn.stage].tokens;
    if (wide) {
      // The first item's tokens have been read: its slots are the wide ones' from here on.
      if (narrow_before) mbarrier_wait_parity(&shared.item_empty[0], 0);
      narrow_before = false;
      gather_wide_blocks(shared, args, wide_slot, item, rows, tokens);
    } else if (rows != 0) {
      gather_blocks(shared, args, slot, item, rows,
                    reinterpret_cast<const uint32_t (&)[kTokens]>(tokens));
    }
    turn.advance();
  }
  gather_no_more(shared, turn);
}

}  // namespace kb::step
