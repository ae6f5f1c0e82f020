// Products, item by item: two warpgroups, each 64 of a stage's 128 outputs.
#pragma once

#include "layout.cuh"
#include "ptx/fence.cuh"
#include "resident_products.cuh"
#include "wide.cuh"

namespace kb::step {

// `shared`: the shared storage, or what wide items see of it.
template <uint32_t kColumns, typename Shared, uint32_t kRing, uint32_t kTokenSlots>
KB_DEVICE void multiply_item(Shared& shared, const Arguments& args, PipelineState<kRing>& state,
                             PipelineState<kTokenSlots>& slots, const ItemTokens<kWide>& tokens) {
  const Item item = tokens.item;
  PipelineState<kTokenSlots> slot = slots;
  for (uint32_t i = 0; i < item.n_blocks; ++i) {
    slot = slots;
    const uint32_t row = item.expert * (args.n / kTileN) + item.n_block + i;
    const uint32_t scale = scale_of(args, row, item.k_block);
    float sums[kAccumulators<kColumns>] = {};
    for (uint32_t block = 0; block < item.k_blocks; ++block) {
      mbarrier_wait_parity(&shared.full[state.stage], state.phase);
      if (i == 0) {
        mbarrier_wait_parity(&shared.slot_full[slot.stage], slot.phase);
        ptx::fence_proxy_async(ptx::space_shared_cta);  // of the codes; weights need none
      }
      multiply_block<kColumns>(shared, sums, state.stage, (scale + block) % kScaleBox, slot.stage,
                               i + 1 == item.n_blocks);
      state.advance();
      slot.advance();
    }
    add_to_output<kColumns>(sums, args, tokens, item.n_block + i);
  }
  slots = slot;
}

template <uint32_t kTokens>
KB_DEVICE void multiply_narrow(SharedStorage<kTokens>& shared, const Arguments& args,
                               PipelineState<kStages<kTokens>>& state, PipelineState<kSlots>& slots,
                               const ItemTokens<kWide>& tokens) {
  if (tokens.rows <= 8) {
    multiply_item<8>(shared, args, state, slots, tokens);
  } else if (tokens.rows <= 16) {
    multiply_item<16>(shared, args, state, slots, tokens);
  } else if constexpr (kTokens >= 32) {
    multiply_item<32>(shared, args, state, slots, tokens);
  }
}

template <uint32_t kTokens>
KB_DEVICE void multiply_wide(SharedStorage<kTokens>& shared, const Arguments& args,
                             PipelineState<kStages<kTokens>>& state,
                             PipelineState<kWideSlots<kTokens>>& slots,
                             const ItemTokens<kWide>& tokens) {
  WideView<kTokens> wide = wide_view(shared);
  switch (wide_columns(tokens.rows)) {
    case 16:
      return multiply_item<16>(wide, args, state, slots, tokens);
    case 32:
      return multiply_item<32>(wide, args, state, slots, tokens);
    case 64:
      return multiply_item<64>(wide, args, state, slots, tokens);
    default:
      return multiply_item<kWide>(wide, args, state, slots, tokens);
  }
}

template <uint32_t kTokens>
KB_DEVICE void multiply_items(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  PipelineState<kSlots> slots;
  PipelineState<kWideSlots<kTokens>> wide_slots;
  bool first = has_first_item(args);
  for (PipelineState<2> turn;; turn.advance(), first = false) {
    mbarrier_wait_parity(&shared.item_full[turn.stage], turn.phase);
    const ItemTokens<kWide>& tokens = shared.items[turn.stage];
    if (tokens.rows == kNoItem) return;
    if (tokens.rows == 0) {
      drain(shared, state, eager_blocks<kStages<kTokens>>(tokens.item));
    } else if (!first && shared.crowded) {
      multiply_wide(shared, args, state, wide_slots, tokens);
    } else {
      multiply_narrow(shared, args, state, slots, tokens);
    }
    ptx::bar_warp_sync();
    release(shared.item_empty[turn.stage]);
  }
}

}  // namespace kb::step
