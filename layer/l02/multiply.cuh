// Products: two warpgroups, each 64 of a stage's 128 rows of weights.
//
// The weights are the instruction's A and the tokens its B. Register v of a thread belongs to row
// 16 w + t / 4 + 8 (v / 2 % 2), where w is its warp in the warpgroup and t its lane, and to token
// 8 (v / 4) + 2 (t % 4) + v % 2. The boxes are such that rows 16 w + t / 4 and that + 8 are a
// column's gate and up, or two neighbouring outputs. The tensor cores keep about 14 bits while they
// add, so that they add up one block only; the block's sum, times both scales, goes to float32
// sums.
#pragma once

#include <cmath>

#include "descriptors.cuh"
#include "fp8_wgmma.cuh"
#include "gather.cuh"
#include "ptx/red.cuh"

namespace kb::step {

template <uint32_t kColumns>
inline constexpr uint32_t kAccumulators = kColumns / 2;

// The i-th token that a thread has sums of: two of each eight.
KB_DEVICE uint32_t token_of(uint32_t i) {
  return 8 * (i / 2) + 2 * (ptx::lane_index() % 4) + i % 2;
}

KB_DEVICE void release(Mbarrier& bar) {
  if (ptx::lane_index() == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &bar);
}

// Multiplies the next stage with `tokens`, [kColumns, 128] codes, and lets it go.
template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_stage(SharedStorage<kTokens>& shared,
                              PipelineState<kStages<kTokens>>& state,
                              float (&products)[kAccumulators<kColumns>], const uint8_t* tokens) {
  mbarrier_wait_parity(&shared.full[state.stage], state.phase);
  const uint8_t* weights = shared.weights[state.stage] + ptx::warp_index() / 4 * (kStageBytes / 2);
  multiply_fp8_block(products, wgmma_smem_descriptor(kTileSw128, ptx::smem_address(weights)),
                     wgmma_smem_descriptor(kTileSw128, ptx::smem_address(tokens)));
  ptx::bar_warp_sync();  // all lanes have seen the phase
  release(shared.empty[state.stage]);
  state.advance();
}

KB_DEVICE float silu(float x) {
  return x / (1.0f + std::exp(-x));
}

// Gate and up of 64 columns of a slice, and their h to `shared.sums`.
template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void gate_up(SharedStorage<kTokens>& shared, const Arguments& args,
                       PipelineState<kStages<kTokens>>& state, const ItemTokens<kTokens>& tokens,
                       uint32_t buffer, uint32_t slice, uint32_t half) {
  float sums[kAccumulators<kColumns>] = {};
  for (uint32_t block = 0; block < args.blocks; ++block) {
    float products[kAccumulators<kColumns>];
    multiply_stage<kColumns>(shared, state, products, shared.codes[buffer][block]);
    const float gate = tokens.gate_scales[slice][block];
    const float up = tokens.up_scales[slice][block];
#pragma unroll
    for (uint32_t i = 0; i < kColumns / 4; ++i) {
      const float scale = tokens.scales[block][token_of(i)];
      sums[4 * (i / 2) + i % 2] += products[4 * (i / 2) + i % 2] * (scale * gate);
      sums[4 * (i / 2) + 2 + i % 2] += products[4 * (i / 2) + 2 + i % 2] * (scale * up);
    }
  }
  const uint32_t column = half * 64 + ptx::warp_index() * 8 + ptx::lane_index() / 4;
#pragma unroll
  for (uint32_t i = 0; i < kColumns / 4; ++i) {
    shared.sums[token_of(i) * kRowPitch + column] =
        silu(sums[4 * (i / 2) + i % 2]) * sums[4 * (i / 2) + 2 + i % 2];
  }
}

// A slice of h to codes: a warp has whole tokens. The routes' weights go into the scales.
template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void quantize_slice(SharedStorage<kTokens>& shared, const ItemTokens<kTokens>& tokens,
                              uint32_t slice) {
  const uint32_t lane = ptx::lane_index();
  for (uint32_t row = ptx::warp_index(); row < kColumns; row += kMultiplyWarps) {
    float values[4];
    uint32_t amax = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      values[i] = shared.sums[row * kRowPitch + 4 * lane + i];
      amax = larger(amax, magnitude(values[i]));
    }
    const float scale = fp8_scale(__builtin_bit_cast(float, ptx::redux_sync_max(amax)));
    uint8_t* at = shared.h[slice] + swizzle_128b(row, lane / 4) + lane % 4 * 4;
    *reinterpret_cast<uint32_t*>(at) = codes_of(values, scale);
    if (lane == 0)
      shared.h_scales[slice][row] = row < tokens.rows ? scale * tokens.weights[row] : 0;
  }
}

// The item's part of 128 outputs.
template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void down(SharedStorage<kTokens>& shared, const Arguments& args,
                    PipelineState<kStages<kTokens>>& state, const ItemTokens<kTokens>& tokens,
                    uint32_t block) {
  float sums[kAccumulators<kColumns>] = {};
  for (uint32_t slice = 0; slice < tokens.item.slices; ++slice) {
    float products[kAccumulators<kColumns>];
    multiply_stage<kColumns>(shared, state, products, shared.h[slice]);
    const float matrix = tokens.down_scales[block][slice];
#pragma unroll
    for (uint32_t i = 0; i < kColumns / 4; ++i) {
      const float scale = shared.h_scales[slice][token_of(i)] * matrix;
      sums[4 * (i / 2) + i % 2] += products[4 * (i / 2) + i % 2] * scale;
      sums[4 * (i / 2) + 2 + i % 2] += products[4 * (i / 2) + 2 + i % 2] * scale;
    }
  }
  const uint32_t column = block * kBlock + ptx::warp_index() * 16 + 2 * (ptx::lane_index() / 4);
#pragma unroll
  for (uint32_t i = 0; i < kColumns / 4; ++i) {
    if (token_of(i) >= tokens.rows) continue;
    const uint32_t token = tokens.routes[token_of(i)] / args.topk;
    const float pair[2] = {sums[4 * (i / 2) + i % 2], sums[4 * (i / 2) + 2 + i % 2]};
    ptx::red_relaxed_gpu_global_add_v2_f32(
        args.output + uint64_t{token} * args.blocks * kBlock + column, pair);
  }
}

// By the warps that multiply. `before`: the meeting's barrier when the kernel started; null, once
// the outputs are known to be zero.
template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_item(SharedStorage<kTokens>& shared, const Arguments& args,
                             PipelineState<kStages<kTokens>>& state,
                             const ItemTokens<kTokens>& tokens, uint32_t buffer, bool first,
                             uint32_t before) {
  for (uint32_t slice = 0; slice < tokens.item.slices; ++slice) {
    gate_up<kColumns>(shared, args, state, tokens, buffer, slice, 0);
    gate_up<kColumns>(shared, args, state, tokens, buffer, slice, 1);
    if (slice + 1 == tokens.item.slices) release(shared.codes_empty[buffer]);
    ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);
    quantize_slice<kColumns>(shared, tokens, slice);
    ptx::fence_proxy_async(ptx::space_shared_cta);
    ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);
  }
  if (first) {
    if (ptx::lane_index() == 0) global_wait_changed(&args.meeting->barrier, before, 1u << 31);
    ptx::bar_warp_sync();
  }
  for (uint32_t block = 0; block < args.blocks; ++block) {
    down<kColumns>(shared, args, state, tokens, block);
  }
}

template <uint32_t kTokens>
KB_DEVICE void multiply_items(SharedStorage<kTokens>& shared, const Arguments& args,
                              uint32_t before) {
  PipelineState<kStages<kTokens>> state;
  PipelineState<kBuffers<kTokens>> buffer;
  bool first = true;
  for (PipelineState<2> turn;; turn.advance(), buffer.advance(), first = false) {
    mbarrier_wait_parity(&shared.item_full[turn.stage], turn.phase);
    const ItemTokens<kTokens>& tokens = shared.items[turn.stage];
    const uint32_t columns = columns_for(tokens.rows);
    if (tokens.rows == 0) return;
    if (columns == 8) {
      multiply_item<8>(shared, args, state, tokens, buffer.stage, first, before);
    }
    if constexpr (kTokens >= 16) {
      if (columns == 16) {
        multiply_item<16>(shared, args, state, tokens, buffer.stage, first, before);
      }
    }
    if constexpr (kTokens >= 32) {
      if (columns == 24) {
        multiply_item<24>(shared, args, state, tokens, buffer.stage, first, before);
      } else if (columns == 32) {
        multiply_item<32>(shared, args, state, tokens, buffer.stage, first, before);
      }
    }
    if constexpr (kTokens >= 48) {
      if (columns == 48) {
        multiply_item<48>(shared, args, state, tokens, buffer.stage, first, before);
      }
    }
    ptx::bar_warp_sync();
    release(shared.item_empty[turn.stage]);
  }
}

}  // namespace kb::step
