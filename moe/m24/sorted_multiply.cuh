// Where an expert has many tokens, products: two warpgroups, each 128 of an item's outputs.
//
// The weights are the instruction's A and the tokens its B, as two tiles of 64 outputs. Of tile i
// register v of a thread belongs to output 32 w + 4 (t / 4) + 2 (v / 2 % 2) + i, where w is its
// warp in the warpgroup and t its lane, and to token 8 (v / 4) + 2 (t % 4) + v % 2. The tensor
// cores keep about 14 bits while they add, so that they add up one block only; the block's sum,
// times both scales, goes to float32 sums.
#pragma once

#include "fp8_wgmma.cuh"
#include "ptx/fence.cuh"
#include "resident_products.cuh"
#include "sorted_layout.cuh"

namespace kb::step::sorted {

// Columns are multiplied in one go or, where registers are short, in two.
template <uint32_t kColumns>
inline constexpr uint32_t kGoes = kColumns > 112 ? 2 : 1;
template <uint32_t kColumns>
inline constexpr uint32_t kWidth = kColumns / kGoes<kColumns>;
// Whether the products of one tile run while those of the other are added to the sums.
template <uint32_t kColumns>
inline constexpr bool kTilesOverlap = kColumns <= 80;

template <uint32_t kColumns>
struct Sums {
  float of[2][kGoes<kColumns>][kWidth<kColumns> / 2];  // of a tile, of a go
};

inline constexpr uint32_t kGroupBytes = kRowGroup * kTileK;
inline constexpr SmemTile kEveryOtherGroup{SmemSwizzle::k128B, 16, 2 * kGroupBytes};

// What a warpgroup multiplies of a stage: its weights as two tiles, the tokens, both scales.
struct Operands {
  uint32_t weights, codes;  // in shared memory
  const Pair* scales;       // of the thread's tokens, four apart
  const float* weight_scale;
};

template <uint32_t kColumns>
using Products = float[kWidth<kColumns> / 2];

// Starts the products of a go with a tile.
template <uint32_t kColumns>
KB_DEVICE void start(Products<kColumns>& products, const Operands& of, uint32_t go, uint32_t tile) {
  const uint64_t a = wgmma_smem_descriptor(kEveryOtherGroup, of.weights + tile * kGroupBytes);
  const uint64_t b = wgmma_smem_descriptor(kTileSw128, of.codes + go * kWidth<kColumns> * kTileK);
  ptx::wgmma_fence(products);
#pragma unroll
  for (uint32_t i = 0; i < kTileK / kFp8MmaK; ++i) {
    ptx::wgmma_mma_async_f32_e4m3_e4m3(products, smem_descriptor_advance(a, i * kFp8MmaK),
                                       smem_descriptor_advance(b, i * kFp8MmaK), i != 0);
  }
  ptx::wgmma_commit_group();
}

template <uint32_t kColumns>
struct Scales {
  Pair of[kWidth<kColumns> / 8];
};

template <uint32_t kColumns>
KB_DEVICE void load_scales(Scales<kColumns>& scales, const Operands& of, uint32_t go) {
#pragma unroll
  for (uint32_t j = 0; j < kWidth<kColumns> / 8; ++j) {
    scales.of[j] = of.scales[4 * (go * (kWidth<kColumns> / 8) + j)];
  }
}

template <uint32_t kColumns>
KB_DEVICE void scale_by_weights(Scales<kColumns>& scales, float weight) {
#pragma unroll
  for (Pair& pair : scales.of) pair = {pair.even * weight, pair.odd * weight};
}

template <uint32_t kColumns>
KB_DEVICE void add_scaled(float (&sums)[kWidth<kColumns> / 2], const Products<kColumns>& products,
                          const Scales<kColumns>& scales) {
#pragma unroll
  for (uint32_t v = 0; v < kWidth<kColumns> / 2; ++v) {
    sums[v] += products[v] * (v % 2 == 0 ? scales.of[v / 4].even : scales.of[v / 4].odd);
  }
}

template <uint32_t kColumns>
KB_DEVICE void multiply_stage(Sums<kColumns>& sums, const Operands& of) {
  Products<kColumns> products;
  Scales<kColumns> scales;
  if constexpr (kTilesOverlap<kColumns>) {
    Products<kColumns> second;
    start<kColumns>(products, of, 0, 0);
    start<kColumns>(second, of, 0, 1);
    load_scales(scales, of, 0);
    ptx::wgmma_wait_group<1>(products);
    scale_by_weights(scales, *of.weight_scale);
    add_scaled<kColumns>(sums.of[0][0], products, scales);
    ptx::wgmma_wait_group<0>(second);
    add_scaled<kColumns>(sums.of[1][0], second, scales);
  } else {
    // Read before the products, not after the wait for them: the compiler then puts the
    // multiplications of scales between the instructions for the tensor cores.
    const float weight = *of.weight_scale;
#pragma unroll
    for (uint32_t go = 0; go < kGoes<kColumns>; ++go) {
#pragma unroll
      for (uint32_t tile = 0; tile < 2; ++tile) {
        start<kColumns>(products, of, go, tile);
        if (tile == 0) load_scales(scales, of, go);
        ptx::wgmma_wait_group<0>(products);
        if (tile == 0) scale_by_weights(scales, weight);
        add_scaled<kColumns>(sums.of[tile][go], products, scales);
      }
    }
  }
}

template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void add_to_output(const Sums<kColumns>& sums, const Arguments& args,
                             const ItemRoutes<kTokens>& routes) {
  const uint32_t lane = ptx::lane_index();
  const uint32_t column =
      routes.item.n_block * kTileN + ptx::warp_index() * kBoxRows + lane / 4 * 4;
#pragma unroll
  for (uint32_t j = 0; j < kColumns / 4; ++j) {
    const uint32_t row = 8 * (j / 2) + 2 * (lane % 4) + j % 2;
    if (row >= routes.rows) continue;
    const float weight = routes.weights[row];
    constexpr uint32_t kPairs = kWidth<kColumns> / 4;
    const uint32_t go = j / kPairs;
    const uint32_t v = 4 * (j % kPairs / 2) + j % 2;
    const float values[4] = {sums.of[0][go][v] * weight, sums.of[1][go][v] * weight,
                             sums.of[0][go][v + 2] * weight, sums.of[1][go][v + 2] * weight};
    ptx::red_relaxed_gpu_global_add_v4_f32(
        args.output + uint64_t{routes.tokens[row]} * args.n + column, values);
  }
}

template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_item(SharedStorage<kTokens>& shared, const Arguments& args,
                             PipelineState<kStages<kTokens>>& state,
                             const ItemRoutes<kTokens>& routes) {
  const Item& item = routes.item;
  const uint32_t part = ptx::warp_index() / 4;
  const uint32_t row = item.expert * (args.n / kTileN) + item.n_block + part;
  const uint32_t scale = scale_of(args, row, item.k_block);
  Sums<kColumns> sums = {};
  const uint32_t blocks = item.k_blocks;
#pragma unroll 1
  for (uint32_t block = 0; block < blocks; ++block) {
    mbarrier_wait_parity(&shared.full[state.stage], state.phase);
    mbarrier_wait_parity(&shared.codes_full[state.stage], state.phase);
    ptx::fence_proxy_async(ptx::space_shared_cta);  // of the codes; weights need none
    multiply_stage<kColumns>(
        sums,
        {.weights = ptx::smem_address(shared.weights[state.stage][part]),
         .codes = ptx::smem_address(shared.codes[state.stage]),
         .scales = &shared.scales[state.stage][ptx::lane_index() % 4],
         .weight_scale = &shared.weight_scales[state.stage][part][(scale + block) % kScaleBox]});
    ptx::bar_warp_sync();  // scales are read by all lanes
    release(shared.empty[state.stage]);
    state.advance();
  }
  add_to_output(sums, args, routes);
}

// Weights that nobody multiplies are let go: of an expert without routes, which the CTA asked for
// before it knew; or the warpgroup has no outputs in the item.
template <uint32_t kTokens>
KB_DEVICE void drain(SharedStorage<kTokens>& shared, PipelineState<kStages<kTokens>>& state,
                     uint32_t blocks) {
  for (uint32_t block = 0; block < blocks; ++block) {
    mbarrier_wait_parity(&shared.full[state.stage], state.phase);
    mbarrier_wait_parity(&shared.codes_full[state.stage], state.phase);
    ptx::bar_warp_sync();  // all lanes have seen the phases
    release(shared.empty[state.stage]);
    state.advance();
  }
}

// `multiply_item` for the least columns, from kColumns on, that take the item's routes.
template <uint32_t kTokens, uint32_t kColumns = 16>
KB_DEVICE void multiply_columns(SharedStorage<kTokens>& shared, const Arguments& args,
                                PipelineState<kStages<kTokens>>& state,
                                const ItemRoutes<kTokens>& routes) {
  if constexpr (kColumns < kTokens) {
    if (routes.rows > kColumns) {
      return multiply_columns<kTokens, kColumns + 16>(shared, args, state, routes);
    }
  }
  multiply_item<kColumns>(shared, args, state, routes);
}

template <uint32_t kTokens>
KB_DEVICE void multiply_items(SharedStorage<kTokens>& shared, const Arguments& args) {
  PipelineState<kStages<kTokens>> state;
  for (PipelineState<2> turn;; turn.advance()) {
    mbarrier_wait_parity(&shared.item_full[turn.stage], turn.phase);
    const ItemRoutes<kTokens>& routes = shared.items[turn.stage];
    if (routes.rows == kNoItem) return;
    if (routes.rows == 0 || ptx::warp_index() / 4 >= routes.item.n_blocks) {
      drain(shared, state, routes.item.k_blocks);
    } else {
      multiply_columns(shared, args, state, routes);
    }
    ptx::bar_warp_sync();
    release(shared.item_empty[turn.stage]);
  }
}

}  // namespace kb::step::sorted
