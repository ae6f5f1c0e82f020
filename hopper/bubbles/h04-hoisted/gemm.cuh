// GEMM: 128 weight rows times up to 256 tokens a tile, one CTA for each SM, its tiles from a list.
//
// Weights are the instruction's A: two warpgroups dequantize 64 rows each in registers, half of a
// block of 128 of K while the tensor cores are at the other half. Tokens are its B, converted
// before. One warp copies tokens, one weights; each has a ring of its own.
#pragma once

#include "descriptors.cuh"
#include "epilogue.cuh"
#include "group_gemm.cuh"
#include "nvfp4.cuh"
#include "pipeline.cuh"
#include "ptx/pdl.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"
#include "tile_list.cuh"
#include "token_layout.cuh"
#include "wait.cuh"

namespace kb::step::gemm {

// ---- Config

inline constexpr uint32_t kTileM = 128;  // weight rows: columns of C
inline constexpr uint32_t kTileN = 256;  // tokens, at most
inline constexpr uint32_t kTileK = kPairK;
inline constexpr uint32_t kTokenStages = 4;
inline constexpr uint32_t kWeightStages = 8;
inline constexpr uint32_t kMmaK = 16;
inline constexpr uint32_t kMmaWarps = 8;
inline constexpr uint32_t kThreads = 32 * (kMmaWarps + 4);
inline constexpr uint32_t kMmaRegisters = 232;
inline constexpr uint32_t kLoadRegisters = 40;
inline constexpr uint32_t kTokenStageBytes = kTileN * kRowBytes;
// Widest tile whose two slabs fit in one stage.
inline constexpr uint32_t kPairTokens = kTokenStageBytes / kRowBytes / 2;
inline constexpr uint32_t kChunkTokens = 32;  // of the epilogue

// ---- SharedStorage

struct WeightStage {
  uint8_t codes[kTileM][e2m1_bytes(kTileK)];
  uint8_t scales[2][kScaleAtomBytes];
};

struct SharedStorage {
  alignas(1024) uint8_t tokens[kTokenStages][kTokenStageBytes];  // 128-byte swizzle
  alignas(128) WeightStage weights[kWeightStages];
  alignas(128) f16 rows[kMmaWarps][kChunkTokens][16];
  Mbarrier token_full[kTokenStages];
  Mbarrier token_empty[kTokenStages];
  Mbarrier weight_full[kWeightStages];
  Mbarrier weight_empty[kWeightStages];
};

struct Group {
  TensorMap weights;
  const uint8_t* sfb;
  const uint8_t* tokens;  // slabs of `rows` rows
  f16* c;
  uint32_t m, n, k;
  uint32_t rows;
};

struct Arguments {
  Group groups[kMaxGroups];
  TileList list;
};

KB_DEVICE uint32_t pairs_of(const Group& group) {
  return (group.k + kPairK - 1) / kPairK;
}

// ---- Load: one warp for tokens, one for weights.

KB_DEVICE void token_warp(SharedStorage& shared, const Arguments& args, uint32_t first,
                          uint32_t last) {
  PipelineState<kTokenStages> state;
  ptx::griddepcontrol_wait();
  for (uint32_t t = first; t < last; ++t) {
    const Tile tile = args.list.tiles[t];
    const Group& group = args.groups[tile.group];
    const uint32_t slab_bytes = tile.columns() * kRowBytes;
    const uint32_t slabs = tile.columns() <= kPairTokens ? 2 : 1;  // of a stage
    for (uint32_t slab = 0; slab < 2 * pairs_of(group); slab += slabs) {
      mbarrier_wait_parity(&shared.token_empty[state.stage], state.phase ^ 1);
      if (ptx::elect_sync()) {
        Mbarrier* full = &shared.token_full[state.stage];
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full, slabs * slab_bytes);
        for (uint32_t i = 0; i < slabs; ++i) {
          ptx::cp_async_bulk_shared_global(
              shared.tokens[state.stage] + i * slab_bytes,
              group.tokens + slab_offset(slab + i, group.rows) + tile.token * kRowBytes, slab_bytes,
              full);
        }
      }
      state.advance();
    }
  }
}

KB_DEVICE void weight_warp(SharedStorage& shared, const Arguments& args, uint32_t first,
                           uint32_t last) {
  PipelineState<kWeightStages> state;
  for (uint32_t t = first; t < last; ++t) {
    const Tile tile = args.list.tiles[t];
    const Group& group = args.groups[tile.group];
    const uint8_t* scales = group.sfb + scale_atom_offset(tile.row_block * kTileM, 0, group.k);
    const uint32_t atoms = group.k / kScaleAtomK;
    for (uint32_t pair = 0; pair < pairs_of(group); ++pair) {
      mbarrier_wait_parity(&shared.weight_empty[state.stage], state.phase ^ 1);
      if (ptx::elect_sync()) {
        WeightStage& stage = shared.weights[state.stage];
        Mbarrier* full = &shared.weight_full[state.stage];
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full, sizeof stage);
        ptx::cp_async_bulk_tensor_2d_shared_global(
            stage.codes, &group.weights, pair * e2m1_bytes(kTileK), tile.row_block * kTileM, full);
        for (uint32_t half = 0; half < 2; ++half) {
          // Codes past K are zero, their scales need only be numbers.
          const uint32_t atom = 2 * pair + half < atoms ? 2 * pair + half : atoms - 1;
          ptx::cp_async_bulk_shared_global(
              stage.scales[half], scales + uint64_t{atom} * kScaleAtomBytes, kScaleAtomBytes, full);
        }
      }
      state.advance();
    }
  }
}

// ---- MMA: thread t of warp w of a warpgroup has rows 16 w + t / 4 and 8 further of its 64.

using Fragments = uint32_t[kSlabK / kMmaK][4];

// A thread's packed codes for 128 of K, of both its rows.
struct Packed {
  PackedCodes low, high;
  uint32_t low_scales, high_scales;
};

struct Consumer {
  SharedStorage& shared;
  uint32_t row;  // of the tile, the lower one
  PipelineState<kTokenStages> tokens = {};
  PipelineState<kWeightStages> weights = {};

  KB_DEVICE void load_packed(Packed& packed) {
    mbarrier_wait_parity(&shared.weight_full[weights.stage], weights.phase);
    const WeightStage& stage = shared.weights[weights.stage];
    const uint32_t quad_thread = ptx::lane_index() % 4;
    const auto codes = [&](uint32_t of) {
      return *reinterpret_cast<const PackedCodes*>(stage.codes[of] +
                                                   e2m1_bytes(kQuadK) * quad_thread);
    };
    const auto scales = [&](uint32_t of) {
      return fp4_scales(*reinterpret_cast<const e4m3x2*>(
          stage.scales[quad_thread / 2] + scale_pair_offset(of, quad_thread % 2 * kQuadK)));
    };
    packed = {codes(row), codes(row + 8), scales(row), scales(row + 8)};
    ptx::bar_warp_sync();
    release(&shared.weight_empty[weights.stage]);
    weights.advance();
  }

  KB_DEVICE void release(Mbarrier* empty) {
    if (ptx::lane_index() == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, empty);
  }

  KB_DEVICE void wait_for_tokens() {
    mbarrier_wait_parity(&shared.token_full[tokens.stage], tokens.phase);
  }
};

// Two of the words become the fragments of four steps: the pair's first or second half of K.
template <uint32_t kHalf>
KB_DEVICE void dequantize_half(Fragments& fragments, const Packed& packed) {
  const uint32_t low = kHalf == 0 ? twice_low(packed.low_scales) : twice_high(packed.low_scales);
  const uint32_t high = kHalf == 0 ? twice_low(packed.high_scales) : twice_high(packed.high_scales);
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const Fp4Halves upper = dequantize_fp4(packed.low.words[2 * kHalf + i], low);
    const Fp4Halves lower = dequantize_fp4(packed.high.words[2 * kHalf + i], high);
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      fragments[2 * i][2 * j] = upper.odd[j];
      fragments[2 * i][2 * j + 1] = lower.odd[j];
      fragments[2 * i + 1][2 * j] = upper.even[j];
      fragments[2 * i + 1][2 * j + 1] = lower.even[j];
    }
  }
}

template <int kCount>
KB_DEVICE void multiply_half(float (&sums)[kCount], const Fragments& fragments,
                             const void* tokens) {
  const uint64_t tile = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(tokens));
#pragma unroll
  for (uint32_t i = 0; i < kSlabK / kMmaK; ++i) {
    // Before each: with many widths in one kernel ptxas serializes the products otherwise.
    ptx::wgmma_fence();
    // 32 bytes further on; the start field has room, shared memory ends below 2^18.
    ptx::wgmma_mma_async_f32_f16_f16(sums, fragments[i], tile + i * (kMmaK * sizeof(f16) >> 4),
                                     true);
  }
  ptx::wgmma_commit_group();
}

// ---- Epilogue: sums of a warp's 16 columns of C, 32 tokens at a time through shared memory.

template <int kCount>
KB_DEVICE void store_tile(Consumer& at, const float (&sums)[kCount], const Group& group,
                          const Tile& tile) {
  constexpr uint32_t kColumns = 2 * kCount;
  const uint32_t lane = ptx::lane_index();
  auto& rows = at.shared.rows[ptx::warp_index()];
  // Lane 2 i + j stores columns 8 j … 8 j + 7 of token i.
  const uint32_t column = tile.row_block * kTileM + 16 * ptx::warp_index() + lane % 2 * 8;
  f16* c = group.c + uint64_t{tile.token} * group.n + column;
  const uint32_t count = group.m - tile.token < kColumns ? group.m - tile.token : kColumns;
#pragma unroll
  for (uint32_t first = 0; first < kColumns; first += kChunkTokens) {
#pragma unroll
    for (uint32_t part = 0; part < kChunkTokens && first + part < kColumns; part += 16) {
      uint32_t pairs[4];
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t v = (first + part) / 2 + 2 * i;
        pairs[i] = v + 1 < kCount ? __builtin_bit_cast(
                                        uint32_t, ptx::cvt_rn_f16x2_f32(sums[v] * kFp4SumScale,
                                                                        sums[v + 1] * kFp4SumScale))
                                  : 0;
      }
      stmatrix_m8n8_x4_trans_b16(&rows[part + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8], pairs);
    }
    ptx::bar_warp_sync();
#pragma unroll
    for (uint32_t part = 0; part < kChunkTokens; part += 16) {
      const uint32_t token = first + part + lane / 2;
      if (token < count && column < group.n) {
        *reinterpret_cast<F16x8*>(c + uint64_t{token} * group.n) =
            *reinterpret_cast<const F16x8*>(&rows[part + lane / 2][lane % 2 * 8]);
      }
    }
    ptx::bar_warp_sync();
  }
}

// ---- Tile

template <uint32_t kColumns>
KB_DEVICE void multiply_tile(Consumer& at, const Group& group, const Tile& tile) {
  constexpr bool kPair = kColumns <= kPairTokens;  // both halves of K in one stage
  SharedStorage& shared = at.shared;
  float sums[kColumns / 2];
#pragma unroll
  for (float& sum : sums) sum = 0;
  Fragments first, second;
  Packed packed;
  at.load_packed(packed);
  dequantize_half<0>(first, packed);
  dequantize_half<1>(second, packed);
  const uint32_t pairs = pairs_of(group);
  uint32_t previous = 0;
#pragma unroll 1
  for (uint32_t pair = 0; pair < pairs; ++pair) {
    at.wait_for_tokens();
    multiply_half(sums, first, shared.tokens[at.tokens.stage]);
    ptx::wgmma_wait_group<1>();
    if (pair > 0) at.release(&shared.token_empty[previous]);
    const uint32_t current = at.tokens.stage;
    if constexpr (!kPair) {
      at.tokens.advance();
      at.wait_for_tokens();
    }
    multiply_half(sums, second,
                  shared.tokens[at.tokens.stage] + (kPair ? kColumns * kRowBytes : 0));
    if (pair + 1 < pairs) at.load_packed(packed);
    ptx::wgmma_wait_group<1>();
    if constexpr (!kPair) at.release(&shared.token_empty[current]);
    dequantize_half<0>(first, packed);
    previous = at.tokens.stage;
    at.tokens.advance();
  }
  ptx::wgmma_wait_group<0>(sums);
  at.release(&shared.token_empty[previous]);
  store_tile(at, sums, group, tile);
}

// ---- Kernel

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) multiply_groups(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  if (ptx::thread_index() == 0) {
    for (Mbarrier& bar : shared.token_full) ptx::mbarrier_init(&bar, 1);
    for (Mbarrier& bar : shared.token_empty) ptx::mbarrier_init(&bar, kMmaWarps);
    for (Mbarrier& bar : shared.weight_full) ptx::mbarrier_init(&bar, 1);
    for (Mbarrier& bar : shared.weight_empty) ptx::mbarrier_init(&bar, kMmaWarps);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
  const uint32_t first = args.list.first[ptx::cta_index().x];
  const uint32_t last = args.list.first[ptx::cta_index().x + 1];
  const uint32_t warp = ptx::warp_index();
  if (warp >= kMmaWarps) {
    ptx::setmaxnreg_dec<kLoadRegisters>();
    if (warp == kMmaWarps) token_warp(shared, args, first, last);
    if (warp == kMmaWarps + 1) weight_warp(shared, args, first, last);
  } else {
    ptx::setmaxnreg_inc<kMmaRegisters>();
    Consumer at{shared, 16 * warp + ptx::lane_index() / 4};
#pragma unroll 1
    for (uint32_t t = first; t < last; ++t) {
      const Tile tile = args.list.tiles[t];
      with_width(tile.columns(), [&](auto width) {
        multiply_tile<width.kColumns>(at, args.groups[tile.group], tile);
      });
    }
  }
}

}  // namespace kb::step::gemm
