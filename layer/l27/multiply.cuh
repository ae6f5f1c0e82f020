// Products: two warpgroups, each 64 of a stage's 128 rows of weights, or of 64 rows a block.
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
#include "exact_products.cuh"
#include "fp8_wgmma.cuh"
#include "gather.cuh"
#include "ptx/red.cuh"

namespace kb::step {

template <uint32_t kColumns>
inline constexpr uint32_t kAccumulators = kColumns / 2;

// The i-th token that a thread has sums of: two of each eight. Its sums are at first_sum(i), of the
// row t / 4, and two further on.
KB_DEVICE uint32_t token_of(uint32_t i) {
  return 8 * (i / 2) + 2 * (ptx::lane_index() % 4) + i % 2;
}
KB_HOST_DEVICE constexpr uint32_t first_sum(uint32_t i) {
  return 4 * (i / 2) + i % 2;
}

KB_DEVICE void release(Mbarrier& bar) {
  if (ptx::lane_index() == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &bar);
}

// Waits until a slot is filled. The fence: of codes that ordinary stores and cp.async have written.
template <uint32_t kTokens>
KB_DEVICE void wait_for_slot(SharedStorage<kTokens>& shared,
                             const PipelineState<kSlots<kTokens>>& slot) {
  mbarrier_wait_parity(&shared.slot_full[slot.stage], slot.phase);
  ptx::fence_proxy_async(ptx::space_shared_cta);
}

// What the role keeps from item to item.
template <uint32_t kTokens>
struct MultiplyState {
  PipelineState<kStages<kTokens>> stage;
  PipelineState<kSlots<kTokens>> slot;
};

// Where a product's operands are.
struct Place {
  uint32_t stage, slot;
};

// Whether columns of h are summed exactly: of few tokens, where one rounding of h weighs much and
// the products wait for weights. Calls with 9 to 24 tokens, and those with pieces of 40; of wide
// models those with either.
template <Cut kCut, uint32_t kColumns, uint32_t kTokens>
inline constexpr bool kExact = kColumns <= 16 && ((kCut == Cut::kLarge ? false : kTokens <= 24) ||
                                                  (kCut == Cut::kSmall ? false : kTokens == 40));

// The scale of the first or the second matrix, for a block in a slot: of a row of the item's.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE float matrix_scale(const SharedStorage<kTokens>& shared,
                             const ItemTokens<kTokens>& tokens, uint32_t row, uint32_t block,
                             uint32_t slot, uint32_t matrix) {
  if constexpr (kCut == Cut::kWide) return shared.wide_scales[slot][matrix];
  return tokens.matrix_scales[row][block];
}

// Starts the product of the warpgroup's 64 rows of a stage and a slot's tokens from `first` on.
template <uint32_t kCount, uint32_t kTokens>
KB_DEVICE void start_product(const SharedStorage<kTokens>& shared, float (&products)[kCount],
                             const Place& place, uint32_t first = 0) {
  const uint8_t* weights = shared.weights[place.stage] + ptx::warp_index() / 4 * (kStageBytes / 2);
  const uint64_t a = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(weights));
  const uint8_t* codes = shared.codes[place.slot] + first * kBlock;
  const uint64_t b = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(codes));
  ptx::wgmma_fence(products);
#pragma unroll
  for (uint32_t i = 0; i < kBlock / kFp8MmaK; ++i) {
    ptx::wgmma_mma_async_f32_e4m3_e4m3(products, smem_descriptor_advance(a, i * kFp8MmaK),
                                       smem_descriptor_advance(b, i * kFp8MmaK), i != 0);
  }
  ptx::wgmma_commit_group();
}

// Adds a product that is complete to the sums of its tokens, from `kFirst` on: rows t / 4 with the
// first scale of the matrix, the others with the second.
template <uint32_t kFirst = 0, uint32_t kSums, uint32_t kCount, uint32_t kTokens>
KB_DEVICE void add_product(const SharedStorage<kTokens>& shared, float (&sums)[kSums],
                           const float (&products)[kCount], uint32_t slot, float first,
                           float second) {
#pragma unroll
  for (uint32_t i = 0; i < kCount / 2; ++i) {
    const float scale = shared.scales[slot][kFirst + token_of(i)];
    float* to = sums + kFirst / 2 + first_sum(i);
    to[0] += products[first_sum(i)] * (scale * first);
    to[2] += products[first_sum(i) + 2] * (scale * second);
  }
}

// Sums of the products of the next `blocks` stages and slots. While one is added to the sums the
// next one is under way.
//   fresh    the slots are filled anew: they are waited for
//   last     the slots are let go
//   scales   (block, its slot, 0 or 1): the matrix's scale of a block, for rows t / 4 and the
//   others
template <uint32_t kCount, uint32_t kTokens, typename Scales>
KB_DEVICE void sum_products(SharedStorage<kTokens>& shared, MultiplyState<kTokens>& state,
                            PipelineState<kSlots<kTokens>>& slot, float (&sums)[kCount],
                            uint32_t blocks, bool fresh, bool last, const Scales& scales) {
  constexpr bool kTwo = kCount <= 48;  // products under way: as registers allow
  float even[kCount];
  const auto next = [&] {
    const Place place = {state.stage.stage, slot.stage};
    mbarrier_wait_parity(&shared.full[place.stage], state.stage.phase);
    if (fresh) wait_for_slot(shared, slot);
    state.stage.advance();
    slot.advance();
    return place;
  };
  const auto add = [&](const float (&products)[kCount], const Place& place, uint32_t block) {
    add_product(shared, sums, products, place.slot, scales(block, place.slot, 0),
                scales(block, place.slot, 1));
    ptx::bar_warp_sync();  // all lanes have read the scales
    release(shared.empty[place.stage]);
    if (last) release(shared.slot_empty[place.slot]);
  };
  if constexpr (!kTwo) {
    for (uint32_t block = 0; block < blocks; ++block) {
      const Place place = next();
      start_product(shared, even, place);
      ptx::wgmma_wait_group<0>(even);
      add(even, place, block);
    }
  } else {
    float odd[kCount];
    Place even_place = next();
    start_product(shared, even, even_place);
    uint32_t block = 1;
    for (; block + 1 < blocks; block += 2) {
      const Place odd_place = next();
      start_product(shared, odd, odd_place);
      ptx::wgmma_wait_group<1>(even);
      add(even, even_place, block - 1);
      even_place = next();
      start_product(shared, even, even_place);
      ptx::wgmma_wait_group<1>(odd);
      add(odd, odd_place, block);
    }
    if (block < blocks) {
      const Place odd_place = next();
      start_product(shared, odd, odd_place);
      ptx::wgmma_wait_group<1>(even);
      add(even, even_place, block - 1);
      ptx::wgmma_wait_group<0>(odd);
      add(odd, odd_place, block);
    } else {
      ptx::wgmma_wait_group<0>(even);
      add(even, even_place, block - 1);
    }
  }
}

// The same, exactly. Tokens are in registers before their weights come.
template <uint32_t kCount, uint32_t kTokens, typename Scales>
KB_DEVICE void sum_exactly(SharedStorage<kTokens>& shared, MultiplyState<kTokens>& state,
                           PipelineState<kSlots<kTokens>>& slot, float (&sums)[kCount],
                           uint32_t blocks, bool fresh, bool last, const Scales& scales) {
  for (uint32_t block = 0; block < blocks; ++block) {
    if (fresh) mbarrier_wait_parity(&shared.slot_full[slot.stage], slot.phase);
    TokenHalves<kCount / 4> tokens;
    load_tokens(tokens, shared.codes[slot.stage]);
    mbarrier_wait_parity(&shared.full[state.stage.stage], state.stage.phase);
    WeightCodes weights;
    load_weights(weights, shared.weights[state.stage.stage]);
    ptx::bar_warp_sync();  // all lanes have read the stage
    release(shared.empty[state.stage.stage]);
    state.stage.advance();
    float products[kCount];
    multiply_exactly(products, weights, tokens);
    add_product(shared, sums, products, slot.stage, scales(block, slot.stage, 0),
                scales(block, slot.stage, 1));
    if (last) {
      ptx::bar_warp_sync();  // all lanes have read the scales
      release(shared.slot_empty[slot.stage]);
    }
    slot.advance();
  }
}

// Sums of the products of the next blocks' two stages each, one of either half, and their slots: so
// tokens come once for both halves. The other warpgroup multiplies while this one adds.
template <uint32_t kColumns, uint32_t kTokens, typename Scales>
KB_DEVICE void sum_halves(SharedStorage<kTokens>& shared, MultiplyState<kTokens>& state,
                          float (&sums)[2][kAccumulators<kColumns>], uint32_t blocks,
                          const Scales& scales) {
  constexpr uint32_t kParts = kColumns > 128 ? 2 : 1;  // as registers allow
  constexpr uint32_t kPart = kColumns / kParts;
  for (uint32_t block = 0; block < blocks; ++block) {
    wait_for_slot(shared, state.slot);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const Place place = {state.stage.stage, state.slot.stage};
      mbarrier_wait_parity(&shared.full[place.stage], state.stage.phase);
      state.stage.advance();
      float products[kAccumulators<kPart>];
      start_product(shared, products, place);
      ptx::wgmma_wait_group<0>(products);
      add_product(shared, sums[half], products, place.slot, scales(block, place.slot, 0),
                  scales(block, place.slot, 1));
      if constexpr (kParts == 2) {
        start_product(shared, products, place, kPart);
        ptx::wgmma_wait_group<0>(products);
        add_product<kPart>(shared, sums[half], products, place.slot, scales(block, place.slot, 0),
                           scales(block, place.slot, 1));
      }
      ptx::bar_warp_sync();  // all lanes have read the scales
      release(shared.empty[place.stage]);
    }
    release(shared.slot_empty[state.slot.stage]);
    state.slot.advance();
  }
}

// x / (1 + exp(-x)). Where exp is huge this is x * 2^-125, as good as zero; NaN stays.
KB_DEVICE float silu(float x) {
  return x * reciprocal<3>(std::fmin(1.0f + std::exp(-x), 0x1p125f));
}

// Rows of h that a warp quantizes at a time: all of them, or even shares of up to five.
template <uint32_t kColumns>
inline constexpr uint32_t kRowsAtATime = ceil_div(kColumns / 8, ceil_div(kColumns / 8, 5));

// A warp's rows of a block of h, from shared memory.
template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void quantize_rows(const SharedStorage<kTokens>& shared, const Arguments& args,
                             const ItemTokens<kTokens>& tokens, uint32_t slice) {
  static_assert(kMultiplyWarps == 8);
  constexpr uint32_t kAhead = kRowsAtATime<kColumns>;
  const uint32_t lane = ptx::lane_index();
  for (uint32_t first = ptx::warp_index(); first < tokens.rows; first += kAhead * kMultiplyWarps) {
    Floats h[kAhead];
    float scales[kAhead];
    uint64_t blocks[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t row = first + i * kMultiplyWarps;
      const uint32_t at = row < tokens.rows ? row : first;
      h[i] = *reinterpret_cast<const Floats*>(&shared.sums[at * kRowPitch + 4 * lane]);
      blocks[i] = uint64_t{tokens.routes[at]} * args.slices + slice;
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      uint32_t amax = 0;
#pragma unroll
      for (uint32_t v = 0; v < 4; ++v) amax = larger(amax, magnitude(h[i].values[v]));
      scales[i] = scale_of(__builtin_bit_cast(float, ptx::redux_sync_max(amax)));
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t codes = codes_of(h[i].values, scales[i]);
      if (first + i * kMultiplyWarps >= tokens.rows) continue;
      reinterpret_cast<uint32_t*>(args.h_codes)[blocks[i] * (kBlock / 4) + lane] = codes;
      write_scale(args.h_scales + blocks[i], lane, scales[i]);
    }
  }
}

// A warp's rows of gate and up in shared memory, those of tokens from `begin` on: h, quantized.
template <uint32_t kAhead, uint32_t kTokens>
KB_DEVICE void quantize_pairs(const SharedStorage<kTokens>& shared, const Arguments& args,
                              const ItemTokens<kTokens>& tokens, uint32_t begin) {
  const uint32_t lane = ptx::lane_index();
  const uint32_t rows = tokens.rows - begin;
  Floats h[kAhead];
  float scales[kAhead];
#pragma unroll
  for (uint32_t i = 0; i < kAhead; ++i) {
    const uint32_t row = ptx::warp_index() + i * kMultiplyWarps;
    const uint32_t at = row < rows ? row : 0;
    const auto* from = reinterpret_cast<const Floats*>(&shared.sums[at * kPairPitch]) + lane;
    const Floats up = from[kBlock / 4];
    h[i] = from[0];
    uint32_t amax = 0;
#pragma unroll
    for (uint32_t v = 0; v < 4; ++v) {
      h[i].values[v] = silu(h[i].values[v]) * up.values[v];
      amax = larger(amax, magnitude(h[i].values[v]));
    }
    scales[i] = scale_of(__builtin_bit_cast(float, ptx::redux_sync_max(amax)));
  }
#pragma unroll
  for (uint32_t i = 0; i < kAhead; ++i) {
    const uint32_t row = ptx::warp_index() + i * kMultiplyWarps;
    const uint32_t codes = codes_of(h[i].values, scales[i]);
    if (row >= rows) return;
    const uint64_t block = uint64_t{tokens.routes[begin + row]} * args.slices + tokens.item.part;
    reinterpret_cast<uint32_t*>(args.h_codes)[block * (kBlock / 4) + lane] = codes;
    write_scale(args.h_scales + block, lane, scales[i]);
  }
}

// Some blocks of 128 columns of h, quantized. Tokens stay in their slots for all halves of blocks.
template <Cut kCut, uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_columns(SharedStorage<kTokens>& shared, const Arguments& args,
                                MultiplyState<kTokens>& state, const ItemTokens<kTokens>& tokens) {
  const uint32_t lane = ptx::lane_index();
  PipelineState<kSlots<kTokens>> slot = state.slot;
  const bool stay = stays<kCut, kTokens>(args.blocks);
  const uint32_t count = kCut == Cut::kLarge ? tokens.item.count : 1;
  for (uint32_t h_block = 0; h_block < count; ++h_block) {
    const bool end = h_block + 1 == count;
    for (uint32_t half = 0; half < 2; ++half) {
      if (stay) slot = state.slot;
      float sums[kAccumulators<kColumns>] = {};
      const bool fresh = h_block + half == 0 || !stay;
      const bool last = (end && half == 1) || !stay;
      const auto scales = [&](uint32_t block, uint32_t at, uint32_t matrix) {
        return matrix_scale<kCut>(shared, tokens, 2 * h_block + matrix, block, at, matrix);
      };
      if constexpr (kExact<kCut, kColumns, kTokens>) {
        sum_exactly(shared, state, slot, sums, args.blocks, fresh, last, scales);
      } else {
        sum_products(shared, state, slot, sums, args.blocks, fresh, last, scales);
      }
      const uint32_t column = half * 64 + ptx::warp_index() * 8 + lane / 4;
#pragma unroll
      for (uint32_t i = 0; i < kColumns / 4; ++i) {
        shared.sums[token_of(i) * kRowPitch + column] =
            silu(sums[first_sum(i)]) * sums[first_sum(i) + 2];
      }
    }
    ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);
    quantize_rows<kColumns>(shared, args, tokens, tokens.item.part + h_block);
    if (!end) ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);  // all warps' rows are read
  }
  state.slot = slot;
}

// A block of h of many tokens, some of them at a time: their gate and up go to shared memory, from
// where a warp takes rows. So the code for a value is there once, and stays in the instruction
// cache.
template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void quantize_many(SharedStorage<kTokens>& shared, const Arguments& args,
                             const ItemTokens<kTokens>& tokens,
                             const float (&sums)[2][kAccumulators<kColumns>]) {
  constexpr uint32_t kStaged = kStagedTokens<kTokens>;
  constexpr uint32_t kAhead = kStaged / kMultiplyWarps;  // rows of a warp
  const uint32_t lane = ptx::lane_index();
  const uint32_t warp = ptx::warp_index();
#pragma unroll 1
  for (uint32_t begin = 0; begin < tokens.rows; begin += kStaged) {
    if (begin != 0) ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);  // all rows are read
#pragma unroll
    for (uint32_t first = 0; first < kColumns; first += kStaged) {
      if (first != begin) continue;  // registers have numbers known when compiled
#pragma unroll
      for (uint32_t i = first / 4; i < (first + kStaged) / 4 && i < kColumns / 4; ++i) {
        float* to = shared.sums + (token_of(i) - first) * kPairPitch + warp * 8 + lane / 4;
        to[0] = sums[0][first_sum(i)];
        to[64] = sums[1][first_sum(i)];
        to[kBlock] = sums[0][first_sum(i) + 2];
        to[kBlock + 64] = sums[1][first_sum(i) + 2];
      }
    }
    ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);
    quantize_pairs<kAhead>(shared, args, tokens, begin);
  }
}

// The same of many tokens: one block.
template <Cut kCut, uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_many_columns(SharedStorage<kTokens>& shared, const Arguments& args,
                                     MultiplyState<kTokens>& state,
                                     const ItemTokens<kTokens>& tokens) {
  float sums[2][kAccumulators<kColumns>] = {};
  sum_halves<kColumns>(shared, state, sums, args.blocks,
                       [&](uint32_t block, uint32_t at, uint32_t matrix) {
                         return matrix_scale<kCut>(shared, tokens, matrix, block, at, matrix);
                       });
  quantize_many<kColumns>(shared, args, tokens, sums);
}

// 32 columns of h: each warpgroup has every second block, and the first one adds up.
template <uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_few_columns(SharedStorage<kTokens>& shared, const Arguments& args,
                                    MultiplyState<kTokens>& state,
                                    const ItemTokens<kTokens>& tokens) {
  const uint32_t group = ptx::warp_index() / 4;
  float sums[kAccumulators<kColumns>] = {};
  for (uint32_t block = 0; block < args.blocks; block += 2) {
    const PipelineState<kSlots<kTokens>> first = state.slot;
    state.slot.advance();
    const PipelineState<kSlots<kTokens>> second = state.slot;
    const bool both = block + 1 < args.blocks;
    if (both) state.slot.advance();
    mbarrier_wait_parity(&shared.full[state.stage.stage], state.stage.phase);
    const PipelineState<kSlots<kTokens>> own = group == 0 ? first : second;
    if (group == 0 || both) {
      wait_for_slot(shared, own);
      float products[kAccumulators<kColumns>];
      start_product(shared, products, {state.stage.stage, own.stage});
      ptx::wgmma_wait_group<0>(products);
      add_product(shared, sums, products, own.stage, tokens.matrix_scales[0][block + group],
                  tokens.matrix_scales[1][block + group]);
    }
    ptx::bar_warp_sync();
    release(shared.empty[state.stage.stage]);
    release(shared.slot_empty[first.stage]);
    if (both) release(shared.slot_empty[second.stage]);
    state.stage.advance();
  }
  const uint32_t thread = ptx::thread_index() % 128;
  if (group == 1) {
#pragma unroll
    for (uint32_t v = 0; v < kAccumulators<kColumns>; ++v) shared.sums[v * 128 + thread] = sums[v];
  }
  ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);
  if (group == 0) {
#pragma unroll
    for (uint32_t v = 0; v < kAccumulators<kColumns>; ++v) sums[v] += shared.sums[v * 128 + thread];
    const uint32_t column = tokens.item.part * 32 + ptx::warp_index() * 8 + ptx::lane_index() / 4;
#pragma unroll
    for (uint32_t i = 0; i < kColumns / 4; ++i) {
      if (token_of(i) >= tokens.rows) continue;
      const uint64_t row = uint64_t{tokens.routes[token_of(i)]} * args.slices * kBlock;
      args.h[row + column] = silu(sums[first_sum(i)]) * sums[first_sum(i) + 2];
    }
  }
}

// Some blocks of outputs, from all of h.
template <Cut kCut, uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_outputs(SharedStorage<kTokens>& shared, const Arguments& args,
                                MultiplyState<kTokens>& state, const ItemTokens<kTokens>& tokens) {
  const uint32_t outputs = tokens.item.count;
  const OutputPart part = output_part<kCut>(args, tokens.item);
  const bool stay = stays<kCut, kTokens>(args.slices);
  PipelineState<kSlots<kTokens>> slot = state.slot;
  for (uint32_t output = 0; output < outputs; ++output) {
    if (stay) slot = state.slot;
    float sums[kAccumulators<kColumns>] = {};
    sum_products(shared, state, slot, sums, part.count, output == 0 || !stay,
                 output + 1 == outputs || !stay, [&](uint32_t slice, uint32_t at, uint32_t matrix) {
                   return matrix_scale<kCut>(shared, tokens, output, slice, at, matrix);
                 });
    const uint32_t column =
        (part.block + output) * kBlock + ptx::warp_index() * 16 + 2 * (ptx::lane_index() / 4);
#pragma unroll
    for (uint32_t i = 0; i < kColumns / 4; ++i) {
      const float weight = tokens.weights[token_of(i)];
      const uint32_t to = tokens.outputs[token_of(i)] + column;
      const float pair[2] = {sums[first_sum(i)] * weight, sums[first_sum(i) + 2] * weight};
      if (token_of(i) < tokens.rows) {
        ptx::red_relaxed_gpu_global_add_v2_f32(args.output + to, pair);
      }
    }
  }
  state.slot = slot;
}

template <Cut kCut, uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_item(SharedStorage<kTokens>& shared, const Arguments& args,
                             MultiplyState<kTokens>& state, const ItemTokens<kTokens>& tokens,
                             uint32_t before) {
  if (tokens.item.outputs) return multiply_outputs<kCut, kColumns>(shared, args, state, tokens);
  if constexpr (kCut == Cut::kFine) {
    multiply_few_columns<kColumns>(shared, args, state, tokens);
  } else if constexpr (kMany<kTokens>) {
    multiply_many_columns<kCut, kColumns>(shared, args, state, tokens);
  } else {
    multiply_columns<kCut, kColumns>(shared, args, state, tokens);
  }
  ptx::bar_sync(kMultiplyBarrier, kMultiplyThreads);  // all warps' h is written
  if (ptx::thread_index() == 0) {
    ptx::red_release_gpu_global_add_u32(&args.meeting->done[before >> 31][tokens.item.piece],
                                        tokens.item.count);
  }
}

// An item of many tokens, so many or, if there are more, of a multiple of 16.
template <Cut kCut, uint32_t kColumns, uint32_t kTokens>
KB_DEVICE void multiply_many(SharedStorage<kTokens>& shared, const Arguments& args,
                             MultiplyState<kTokens>& state, const ItemTokens<kTokens>& tokens,
                             uint32_t before, uint32_t columns) {
  if (columns == kColumns) multiply_item<kCut, kColumns>(shared, args, state, tokens, before);
  if constexpr (kColumns < kTokens) {
    multiply_many<kCut, kColumns + 16>(shared, args, state, tokens, before, columns);
  }
}

// `before`: the meeting's barrier when the kernel started.
template <Cut kCut, uint32_t kTokens>
KB_DEVICE void multiply_items(SharedStorage<kTokens>& shared, const Arguments& args,
                              uint32_t before) {
  MultiplyState<kTokens> state;
  for (PipelineState<2> turn;; turn.advance()) {
    mbarrier_wait_parity(&shared.item_full[turn.stage], turn.phase);
    const ItemTokens<kTokens>& tokens = shared.items[turn.stage];
    if (tokens.rows == 0) return;
    const uint32_t columns = columns_for<kTokens>(tokens.rows);
    if constexpr (kMany<kTokens>) {
      multiply_many<kCut, 16>(shared, args, state, tokens, before, columns);
    } else {
      if (columns == 8) multiply_item<kCut, 8>(shared, args, state, tokens, before);
      if constexpr (kTokens >= 16) {
        if (columns == 16) multiply_item<kCut, 16>(shared, args, state, tokens, before);
      }
      if constexpr (kTokens >= 24) {
        if (columns == 24) multiply_item<kCut, 24>(shared, args, state, tokens, before);
        if (columns == 32) multiply_item<kCut, 32>(shared, args, state, tokens, before);
      }
      if constexpr (kTokens == 40) {
        if (columns == 40) multiply_item<kCut, 40>(shared, args, state, tokens, before);
      }
      if constexpr (kTokens >= 48) {
        if (columns == 48) multiply_item<kCut, 48>(shared, args, state, tokens, before);
      }
      if constexpr (kTokens >= 64) {
        if (columns == 64) multiply_item<kCut, 64>(shared, args, state, tokens, before);
      }
    }
    ptx::bar_warp_sync();
    release(shared.item_empty[turn.stage]);
  }
}

}  // namespace kb::step
