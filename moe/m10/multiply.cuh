// Products: two warpgroups, each 64 of a stage's 128 outputs.
//
// The weights are the instruction's A and the tokens its B. Register v of a thread belongs to
// output 16 w + t / 4 + 8 (v / 2 % 2), where w is its warp in the warpgroup and t its lane, and to
// token 8 (v / 4) + 2 (t % 4) + v % 2. The tensor cores keep about 14 bits while they add, so that
// they add up one block only; the block's sum, times both scales, goes to float32 sums.
#pragma once

#include "descriptors.cuh"
#include "load.cuh"
#include "ptx/fence.cuh"
#include "ptx/wgmma.cuh"

namespace kb::step {

inline constexpr uint32_t kMmaK = 32;

template <uint32_t kColumns>
inline constexpr uint32_t kAccumulators = kPartN * kColumns / 128;

// The i-th token that a thread has sums of: two of each eight.
KB_DEVICE uint32_t token_of(uint32_t i) {
  return 8 * (i / 2) + 2 * (ptx::lane_index() % 4) + i % 2;
}

KB_DEVICE void release(Mbarrier& bar) {
  if (ptx::lane_index() == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &bar);
}

template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_block(SharedStorage<kTokens>& shared,
                              float (&sums)[kAccumulators<kColumns>], uint32_t stage,
                              uint32_t weight_scale, uint32_t slot, bool last_use) {
  const uint8_t* weights = shared.weights[stage] + ptx::warp_index() / 4 * kPartN * kTileK;
  const uint64_t a = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(weights));
  const uint64_t b = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.codes[slot]));
  float products[kAccumulators<kColumns>];
  ptx::wgmma_fence(products);
#pragma unroll
  for (uint32_t i = 0; i < kTileK / kMmaK; ++i) {
    ptx::wgmma_mma_async_f32_e4m3_e4m3(products, smem_descriptor_advance(a, i * kMmaK),
                                       smem_descriptor_advance(b, i * kMmaK), i != 0);
  }
  ptx::wgmma_commit_group();
  float scales[kColumns / 4];
#pragma unroll
  for (uint32_t i = 0; i < kColumns / 4; ++i) {
    scales[i] = shared.scales[slot][token_of(i)] * shared.weight_scales[stage][weight_scale];
  }
  ptx::wgmma_wait_group<0>(products);
  ptx::bar_warp_sync();  // scales are read by all lanes
  release(shared.empty[stage]);
  if (last_use) release(shared.slot_empty[slot]);
#pragma unroll
  for (uint32_t v = 0; v < kAccumulators<kColumns>; ++v) {
    sums[v] += products[v] * scales[2 * (v / 4) + v % 2];
  }
}

template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void add_to_output(const float (&sums)[kAccumulators<kColumns>], const Arguments& args,
                             const ItemTokens<kTokens>& tokens, uint32_t n_block) {
  const uint32_t column = n_block * kTileN + ptx::warp_index() * 16 + ptx::lane_index() / 4;
#pragma unroll
  for (uint32_t i = 0; i < kColumns / 4; ++i) {
    if (token_of(i) >= tokens.rows) continue;
    const float weight = tokens.weights[token_of(i)];
    float* output = args.output + uint64_t{tokens.tokens[token_of(i)]} * args.n + column;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      ptx::red_relaxed_gpu_global_add_f32(output + 8 * half,
                                          sums[4 * (i / 2) + 2 * half + i % 2] * weight);
    }
  }
}

template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_item(SharedStorage<kTokens>& shared, const Arguments& args,
                             PipelineState<kStages<kTokens>>& state, PipelineState<kSlots>& slots,
                             const ItemTokens<kTokens>& tokens) {
  const Item item = tokens.item;
  PipelineState<kSlots> slot = slots;
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

// The first item's expert has no tokens: its weights are let go.
template <uint32_t kTokens>
KB_DEVICE void drain(SharedStorage<kTokens>& shared, PipelineState<kStages<kTokens>>& state,
                     uint32_t blocks) {
  for (uint32_t block = 0; block < blocks; ++block) {
    mbarrier_wait_parity(&shared.full[state.stage], state.phase);
    ptx::bar_warp_sync();  // all lanes have seen the phase
    release(shared.empty[state.stage]);
    state.advance();
  }
}

template <uint32_t kTokens>
KB_DEVICE void multiply_items(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  PipelineState<kSlots> slots;
  for (PipelineState<2> turn;; turn.advance()) {
    mbarrier_wait_parity(&shared.item_full[turn.stage], turn.phase);
    const ItemTokens<kTokens>& tokens = shared.items[turn.stage];
    if (tokens.rows == kNoItem) return;
    if (tokens.rows == 0) {
      drain(shared, state, eager_blocks<kTokens>(tokens.item));
    } else if (tokens.rows <= 8) {
      multiply_item<8>(shared, args, state, slots, tokens);
    } else if (tokens.rows <= 16) {
      multiply_item<16>(shared, args, state, slots, tokens);
    } else if constexpr (kTokens >= 32) {
      if (kTokens == 32 || tokens.rows <= 32) {
        multiply_item<32>(shared, args, state, slots, tokens);
      } else if constexpr (kTokens >= 64) {
        multiply_item<64>(shared, args, state, slots, tokens);
      }
    }
    ptx::bar_warp_sync();
    release(shared.item_empty[turn.stage]);
  }
}

}  // namespace kb::step
