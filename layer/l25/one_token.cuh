// One token. All weights that a CTA multiplies fit in its shared memory: nothing is listed, claimed
// or used twice, and they are asked for as soon as the route's expert is known. Each CTA quantizes
// the token for itself. A slice, 128 columns of h, belongs to four CTAs: each has 32 of its
// columns, and then a quarter of the outputs, from this slice only. They pass h through the L2,
// where a word that is not zero is there.
#pragma once

#include "descriptors.cuh"
#include "layout.cuh"
#include "multiply.cuh"
#include "ptx/cvt.cuh"
#include "ptx/red.cuh"
#include "ptx/tma.cuh"
#include "quantize.cuh"
#include "tokens.cuh"
#include "wait.cuh"

namespace kb::step {

inline constexpr uint32_t kSliceCtas = 4;
inline constexpr uint32_t kOwnColumns = kBlock / kSliceCtas;
inline constexpr uint32_t kColumnStages = kMaxBlocks / 2;
inline constexpr uint32_t kOutputStages = kMaxBlocks / kSliceCtas;
inline constexpr uint32_t kMaxTokenCtas = 256;
inline constexpr uint32_t kTokenInFlight = 2;  // stages on their way at a time
inline constexpr uint32_t kTile = 8 * kBlock;  // eight rows, of which the token's is the first

// Eight warps multiply, one loads weights, one meets other CTAs.
inline constexpr uint32_t kMeetingWarp = kLoadWarp + 1;
inline constexpr uint32_t kTokenThreads = 32 * (kMeetingWarp + 1);

// Named barriers: the token is quantized, and other barriers are ready; one warpgroup's sums are in
// shared memory; the slice's largest values are; h is quantized, and all outputs are zero.
inline constexpr uint32_t kTokenReady = 1;
inline constexpr uint32_t kSummed = 2;
inline constexpr uint32_t kFound = 3;
inline constexpr uint32_t kSliceReady = 4;

// As Meeting, of calls of one token.
struct alignas(32) TokenMeeting {
  uint32_t barrier;                                        // bit 31 changes with every call
  alignas(32) uint32_t h[2][kMaxTokenCtas * kOwnColumns];  // calls take turns; zero: not there
};

struct TokenArguments {
  TensorMap w13;  // boxes of 8 rows of gate and 8 of up, four times
  TensorMap w2;   // boxes of 8 even and 8 odd rows, eight times
  const bf16* hidden;
  const int32_t* ids;
  const float* expert_weights;
  const float* w13_scales;
  const float* w2_scales;
  float* output;
  TokenMeeting* meeting;
  uint32_t experts;
  uint32_t blocks;  // of hidden
  uint32_t slices;
};

struct TokenStorage {
  alignas(1024) uint8_t columns[kColumnStages][kStageBytes];  // two blocks of 32 columns each
  alignas(1024) uint8_t outputs[kOutputStages][kStageBytes];
  alignas(1024) uint8_t codes[kMaxBlocks + 1][kTile];  // the last: of the slice's h
  float scales[kMaxBlocks];
  float sums[2][kOwnColumns];  // of gate and up, the second warpgroup's
  uint32_t largest[4];
  float h_scale;
  uint32_t before;  // the meeting's barrier when the kernel started
  Mbarrier full[kColumnStages + kOutputStages];
};
static_assert(sizeof(TokenStorage) <= 232448);

// What a CTA works on: the grid has quarters, slices, routes.
struct TokenItem {
  uint32_t cta, quarter, slice, route;
  uint32_t expert;
  uint32_t first, outputs;  // blocks of outputs
};

// The quarters of a slice differ by their outputs; the last may have fewer.
KB_DEVICE TokenItem token_item(const TokenArguments& args) {
  const auto [quarter, slice, route] = ptx::cta_index();
  const uint32_t share = ceil_div(args.blocks, kSliceCtas);
  const uint32_t first = quarter * share;
  const uint32_t left = first < args.blocks ? args.blocks - first : 0;
  return {.cta = (route * args.slices + slice) * kSliceCtas + quarter,
          .quarter = quarter,
          .slice = slice,
          .route = route,
          .expert = static_cast<uint32_t>(args.ids[route]),
          .first = first,
          .outputs = left < share ? left : share};
}

// By one warp.
KB_DEVICE void load_token_weights(TokenStorage& shared, const TokenArguments& args,
                                  const TokenItem& item) {
  if (ptx::lane_index() == 0) {
    ptx::prefetch_tensormap(&args.w13);
    ptx::prefetch_tensormap(&args.w2);
    for (Mbarrier& bar : shared.full) ptx::mbarrier_init(&bar, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_warp_sync();
  ptx::bar_arrive(kTokenReady, kTokenThreads);
  if (ptx::lane_index() != 0 || item.expert >= args.experts) return;
  const CachePolicy policy = ptx::createpolicy_fractional_l2_evict_first();
  const auto load = [&](uint8_t* to, const TensorMap& map, uint32_t column, uint32_t group,
                        Mbarrier& bar) {
    ptx::cp_async_bulk_tensor_4d_shared_global(to, &map, static_cast<int32_t>(column), 0, 0,
                                               static_cast<int32_t>(group), &bar, policy);
  };
  uint32_t begun = 0;
  // What else is asked memory for is not to queue behind all weights.
  const auto begin = [&](uint32_t bytes) -> Mbarrier& {
    if (begun >= kTokenInFlight) mbarrier_wait_parity(&shared.full[begun - kTokenInFlight], 0);
    Mbarrier& bar = shared.full[begun++];
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &bar, bytes);
    return bar;
  };
  const uint32_t columns = (item.slice * kSliceCtas + item.quarter) * (kOwnColumns / 8);
  for (uint32_t block = 0; block < args.blocks; block += 2) {
    constexpr uint32_t kHalf = kStageBytes / 2;
    uint8_t* to = shared.columns[block / 2];
    const uint32_t group = item.expert * 32 * args.slices + columns;
    const bool both = block + 1 < args.blocks;
    Mbarrier& bar = begin(both ? kStageBytes : kHalf);
    load(to, args.w13, block * kBlock, group, bar);
    if (both) load(to + kHalf, args.w13, (block + 1) * kBlock, group, bar);
  }
  for (uint32_t i = 0; i < item.outputs; ++i) {
    const uint32_t block = item.expert * args.blocks + item.first + i;
    load(shared.outputs[i], args.w2, item.slice * kBlock, block * 8, begin(kStageBytes));
  }
}

// By one warp: sets outputs to zero, the next call's h too, and waits until all CTAs have.
KB_DEVICE void meet(TokenStorage& shared, const TokenArguments& args, const TokenItem& item) {
  constexpr uint32_t kTurn = 1u << 31;
  const uint32_t lane = ptx::lane_index();
  const uint32_t ctas = ptx::cta_count().x * ptx::cta_count().y * ptx::cta_count().z;
  const uint32_t before = args.meeting->barrier;
  if (lane == 0) shared.before = before;
  ptx::bar_warp_sync();
  ptx::bar_arrive(kTokenReady, kTokenThreads);
  for (uint32_t i = 32 * item.cta + lane; i < args.blocks * (kBlock / 4); i += 32 * ctas) {
    reinterpret_cast<Floats*>(args.output)[i] = {};
  }
  ptx::bar_warp_sync();
  if (lane == 0) {
    const uint32_t share = item.cta == 0 ? kTurn - (ctas - 1) : 1;
    ptx::red_release_gpu_global_add_u32(&args.meeting->barrier, share);
  }
  auto* next = reinterpret_cast<Floats*>(args.meeting->h[before >> 31 ^ 1]);
  for (uint32_t i = 32 * item.cta + lane; i < kMaxTokenCtas * kOwnColumns / 4; i += 32 * ctas) {
    next[i] = {};
  }
  if (item.expert >= args.experts) return;
  if (lane == 0) global_wait_changed(&args.meeting->barrier, before, kTurn);
  ptx::bar_warp_sync();
  ptx::bar_arrive(kSliceReady, kMultiplyThreads + 32);
}

// The token's codes, a block by 16 threads. Rows without a token become zero.
KB_DEVICE void quantize_token(TokenStorage& shared, const TokenArguments& args) {
  const uint32_t thread = ptx::thread_index();
  const uint32_t block = thread / 16;
  Vector vector = {};
  if (block < args.blocks) vector = reinterpret_cast<const Vector*>(args.hidden)[thread];
  for (uint32_t i = thread; i < (kMaxBlocks + 1) * (kTile / 16); i += kMultiplyThreads) {
    if (i % (kTile / 16) >= kRowChunks) reinterpret_cast<Vector*>(shared.codes)[i] = {};
  }
  float values[8];
  uint32_t amax = 0;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    values[i] = __builtin_bit_cast(
        float, i % 2 == 0 ? vector.words[i / 2] << 16 : vector.words[i / 2] & 0xffff0000u);
    amax = larger(amax, magnitude(values[i]));
  }
#pragma unroll
  for (uint32_t mask = 8; mask != 0; mask /= 2) {
    amax = larger(amax, ptx::shfl_sync_bfly(amax, mask));
  }
  const float scale = fp8_scale(__builtin_bit_cast(float, amax));
  const float lo[4] = {values[0], values[1], values[2], values[3]};
  const float hi[4] = {values[4], values[5], values[6], values[7]};
  reinterpret_cast<Codes*>(shared.codes[block])[thread % 16] = {codes_of(lo, scale),
                                                                codes_of(hi, scale)};
  if (thread % 16 == 0) shared.scales[block] = scale;
}

// Starts the product of the warpgroup's 64 rows and the first row of a tile.
KB_DEVICE void multiply_tile(float (&products)[4], const uint8_t* weights, const uint8_t* tile) {
  multiply_fp8_block(products, wgmma_smem_descriptor(kTileSw128, ptx::smem_address(weights)),
                     wgmma_smem_descriptor(kTileSw128, ptx::smem_address(tile)));
}

// By the second warpgroup, a column each: takes the slice's h and quantizes it.
KB_DEVICE void quantize_slice(TokenStorage& shared, const TokenArguments& args,
                              const TokenItem& item) {
  const uint32_t column = ptx::thread_index() % kBlock;
  const uint32_t first = (item.cta - item.quarter) * kOwnColumns;  // of the slice
  const uint32_t* word = &args.meeting->h[shared.before >> 31][first + column];
  const auto h = __builtin_bit_cast(float, global_wait_changed(word, 0, ~0u));
  const uint32_t own = ptx::redux_sync_max(magnitude(h));
  if (ptx::lane_index() == 0) shared.largest[ptx::warp_index() % 4] = own;
  ptx::bar_sync(kFound, kMultiplyThreads / 2);
  uint32_t amax = 0;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) amax = larger(amax, shared.largest[i]);
  const float scale = fp8_scale(__builtin_bit_cast(float, amax));
  const float value = divide_by(h, scale, 1.0f / scale);
  shared.codes[kMaxBlocks][column] = static_cast<uint8_t>(
      __builtin_bit_cast(uint16_t, ptx::cvt_rn_satfinite_e4m3x2_f32(value, value)));
  if (column == 0) shared.h_scale = scale;
  ptx::fence_proxy_async(ptx::space_shared_cta);
}

// By eight warps. Only every fourth lane has sums of the token.
KB_DEVICE void compute_token(TokenStorage& shared, const TokenArguments& args,
                             const TokenItem& item) {
  const uint32_t lane = ptx::lane_index();
  const uint32_t group = ptx::warp_index() / 4;
  quantize_token(shared, args);
  ptx::fence_proxy_async(ptx::space_shared_cta);
  const bool valid = item.expert < args.experts;
  // A lane has a scale for each of 16 blocks of gate, or of up; and one of its outputs.
  float scales = 0;
  float output_scales = 0;
  float weight = 0;
  if (valid) {
    const uint32_t matrix = args.slices * args.blocks;  // scales of gate, of up, of down
    const uint32_t block = lane % kMaxBlocks;
    const float* from = args.w13_scales + 2 * uint64_t{item.expert} * matrix +
                        lane / kMaxBlocks * matrix + item.slice * args.blocks;
    if (block < args.blocks) scales = from[block];
    from = args.w2_scales + uint64_t{item.expert} * matrix + item.first * args.slices + item.slice;
    if (lane < item.outputs) output_scales = from[lane * args.slices];
    weight = args.expert_weights[item.route];
  }
  ptx::bar_sync(kTokenReady, kTokenThreads);
  if (!valid) return;
  scales *= shared.scales[lane % kMaxBlocks];
  float gate = 0;
  float up = 0;
  for (uint32_t first = 0; first < args.blocks; first += 2) {
    const uint32_t block = first + group;
    mbarrier_wait_parity(&shared.full[first / 2], 0);
    if (block >= args.blocks) break;
    TokenHalves<1> tokens;
    load_tokens(tokens, shared.codes[block]);
    WeightCodes weights;
    load_weights(weights, shared.columns[first / 2]);
    float products[4];
    multiply_exactly(products, weights, tokens);
    gate += products[0] * ptx::shfl_sync_idx(scales, block);
    up += products[2] * ptx::shfl_sync_idx(scales, kMaxBlocks + block);
  }
  const uint32_t column = ptx::warp_index() % 4 * 8 + lane / 4;
  if (group == 1) {
    if (lane % 4 == 0) {
      shared.sums[0][column] = gate;
      shared.sums[1][column] = up;
    }
    ptx::bar_arrive(kSummed, kMultiplyThreads);
    quantize_slice(shared, args, item);
  } else {
    ptx::bar_sync(kSummed, kMultiplyThreads);
    if (lane % 4 == 0) {
      const float h = silu(gate + shared.sums[0][column]) * (up + shared.sums[1][column]);
      const auto bits = __builtin_bit_cast(uint32_t, h);
      uint32_t* words = args.meeting->h[shared.before >> 31];
      // Zero stands for what is not there: -0 is as good.
      ptx::atom_relaxed_gpu_global_add_u32(&words[item.cta * kOwnColumns + column],
                                           bits == 0 ? 1u << 31 : bits);
    }
  }
  ptx::bar_sync(kSliceReady, kMultiplyThreads + 32);
  for (uint32_t i = 0; i < item.outputs; ++i) {
    mbarrier_wait_parity(&shared.full[ceil_div(args.blocks, 2) + i], 0);
    float products[4];
    multiply_tile(products, shared.outputs[i] + group * (kStageBytes / 2),
                  shared.codes[kMaxBlocks]);
    const float scale = shared.h_scale * ptx::shfl_sync_idx(output_scales, i);
    const float pair[2] = {products[0] * scale * weight, products[2] * scale * weight};
    const uint32_t at = (item.first + i) * kBlock + ptx::warp_index() * 16 + 2 * (lane / 4);
    if (lane % 4 == 0) ptx::red_relaxed_gpu_global_add_v2_f32(args.output + at, pair);
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kTokenThreads, 1) run_token(KB_GRID_CONSTANT(TokenArguments) args) {
  auto& shared = shared_storage<TokenStorage>();
  const TokenItem item = token_item(args);
  const uint32_t warp = ptx::warp_index();
  if (warp < kMultiplyWarps) {
    compute_token(shared, args, item);
  } else if (warp == kLoadWarp) {
    load_token_weights(shared, args, item);
  } else {
    meet(shared, args, item);
  }
}

}  // namespace kb::step
