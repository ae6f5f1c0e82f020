// Products of a stage's weights with resident tokens: two warpgroups, each 64 of 128 outputs.
//
// The weights are the instruction's A and the tokens its B. Register v of a thread belongs to
// output 16 w + t / 4 + 8 (v / 2 % 2), where w is its warp in the warpgroup and t its lane, and to
// token 8 (v / 4) + 2 (t % 4) + v % 2. The tensor cores keep about 14 bits while they add, so that
// they add up one block only; the block's sum, times both scales, goes to float32 sums.
#pragma once

#include "cta_roles.cuh"
#include "descriptors.cuh"
#include "fp8_wgmma.cuh"
#include "pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/warp.cuh"
#include "resident_items.cuh"
#include "wait.cuh"

namespace kb {

template <uint32_t kColumns>
inline constexpr uint32_t kAccumulators = kPartN * kColumns / 128;

// The i-th token that a thread has sums of: two of each eight.
KB_DEVICE uint32_t token_of(uint32_t i) {
  return 8 * (i / 2) + 2 * (ptx::lane_index() % 4) + i % 2;
}

// A warp has read what the barrier guards.
KB_DEVICE void release(Mbarrier& bar) {
  if (ptx::lane_index() == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &bar);
}

// Adds the product of a stage with a slot to the sums. `weight_scale`: which of the stage's scales
// is the block's; `last_use`: of the slot.
template <uint32_t kColumns, typename Shared>
KB_DEVICE void multiply_block(Shared& shared, float (&sums)[kAccumulators<kColumns>],
                              uint32_t stage, uint32_t weight_scale, uint32_t slot, bool last_use) {
  const uint8_t* weights = shared.weights[stage] + ptx::warp_index() / 4 * kPartN * kTileK;
  const uint64_t a = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(weights));
  const uint64_t b = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.codes[slot]));
  float products[kAccumulators<kColumns>];
  ptx::wgmma_fence(products);
#pragma unroll
  for (uint32_t i = 0; i < kTileK / kFp8MmaK; ++i) {
    ptx::wgmma_mma_async_f32_e4m3_e4m3(products, smem_descriptor_advance(a, i * kFp8MmaK),
                                       smem_descriptor_advance(b, i * kFp8MmaK), i != 0);
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

// `tokens` has rows, tokens and weights: ItemTokens, or what a step has in its place.
template <uint32_t kColumns, typename Arguments, typename Tokens>
KB_DEVICE void add_to_output(const float (&sums)[kAccumulators<kColumns>], const Arguments& args,
                             const Tokens& tokens, uint32_t n_block) {
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

// Stages that nobody multiplies are let go: the first item's expert has no tokens.
template <uint32_t kStages, typename Shared>
KB_DEVICE void drain(Shared& shared, PipelineState<kStages>& state, uint32_t blocks) {
  for (uint32_t block = 0; block < blocks; ++block) {
    mbarrier_wait_parity(&shared.full[state.stage], state.phase);
    ptx::bar_warp_sync();  // all lanes have seen the phase
    release(shared.empty[state.stage]);
    state.advance();
  }
}

}  // namespace kb
