// GEMM: one CTA for each tile of 128 weight rows by 128 tokens, all groups in one launch.
//
// Every thread dequantizes one row of one operand for 64 of K into shared memory, then two
// warpgroups multiply, 64 weight rows each. Weights are the instruction's A and tokens its B: a
// group's ragged number of tokens is then on the side that comes in steps of 8.
#pragma once

#include "descriptors.cuh"
#include "epilogue.cuh"
#include "fp4_half.cuh"
#include "group_gemm.cuh"
#include "group_tiles.cuh"
#include "nvfp4.cuh"
#include "ptx/fence.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"

namespace kb::step::gemm {

// ---- Config

inline constexpr uint32_t kTileM = 128;  // weight rows: columns of C
inline constexpr uint32_t kTileN = 128;  // tokens: rows of C
inline constexpr uint32_t kTileK = 64;
inline constexpr uint32_t kMmaM = 64;
inline constexpr uint32_t kMmaK = 16;
inline constexpr uint32_t kThreads = kTileM + kTileN;
static_assert(kTileK == kScaleAtomK, "a row's scales are four bytes of one atom");
static_assert(kThreads == 128 * kTileM / kMmaM, "a warpgroup for 64 weight rows");

// ---- SharedStorage

struct SharedStorage {
  alignas(1024) uint32_t weights[kTileM][kTileK / 2];  // fp16 pairs, 128-byte swizzle
  alignas(1024) uint32_t tokens[kTileN][kTileK / 2];   // likewise
};

// One operand of a group: packed codes and blocked scales of `rows` rows.
struct Operand {
  const uint8_t* codes;
  const uint8_t* scales;
  uint32_t rows;
};

struct Group {
  Operand weights, tokens;
  f16* c;
  uint32_t k;
  uint32_t tile_end;  // tiles of the groups up to this one
};

struct Arguments {
  Group groups[kMaxGroups];
};

// ---- Load: a thread's row, 64 of K.

struct alignas(16) PackedRow {
  uint32_t words[kTileK / 8];
};

// The order of K within eight elements is that of dequantize_fp4, on both sides.
KB_DEVICE void load_row(uint32_t (&shared_row)[kTileK / 2], const Operand& operand, uint32_t row,
                        uint32_t k, uint32_t k_extent) {
  PackedRow packed = {};
  uint32_t scales[2] = {};
  if (row < operand.rows) {
    packed = *reinterpret_cast<const PackedRow*>(
        operand.codes + uint64_t{row} * e2m1_bytes(k_extent) + e2m1_bytes(k));
    const uint8_t* atom = operand.scales + scale_atom_offset(row, k, k_extent);
    for (uint32_t i = 0; i < 2; ++i) {
      scales[i] = fp4_scales(*reinterpret_cast<const e4m3x2*>(
          atom + scale_pair_offset(row % kScaleAtomRows, i * 2 * kScaleBlock)));
    }
  }
#pragma unroll
  for (uint32_t chunk = 0; chunk < kTileK / 8; ++chunk) {
    const uint32_t pair = scales[chunk / 4];
    uint32_t* to = &shared_row[(chunk ^ row % 8) * 4];
    to[0] = to[1] = to[2] = to[3] = packed.words[chunk] ^ pair;
  }
}

// ---- Kernel

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 2) multiply_groups(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  const GroupTile at =
      find_group_tile([&](uint32_t g) { return args.groups[g].tile_end; }, ptx::cta_index().x);
  const Group& group = args.groups[at.group];
  const uint32_t row_blocks = ceil_div(group.weights.rows, kTileM);
  const uint32_t first_row = at.index % row_blocks * kTileM;
  const uint32_t first_token = at.index / row_blocks * kTileN;
  const uint32_t thread = ptx::thread_index();
  const uint32_t part = thread / 128 * kMmaM;  // of the weight rows

  float sums[kTileN / 2];
  for (uint32_t k = 0; k < group.k; k += kTileK) {
    if (thread < kTileM) {
      load_row(shared.weights[thread], group.weights, first_row + thread, k, group.k);
    } else {
      const uint32_t token = thread - kTileM;
      load_row(shared.tokens[token], group.tokens, first_token + token, k, group.k);
    }
    ptx::fence_proxy_async(ptx::space_shared_cta);
    ptx::bar_sync();
    const uint64_t a = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.weights[part]));
    const uint64_t b = wgmma_smem_descriptor(kTileSw128, ptx::smem_address(shared.tokens));
    ptx::wgmma_fence(sums);
#pragma unroll
    for (uint32_t i = 0; i < kTileK / kMmaK; ++i) {
      ptx::wgmma_mma_async_f32_f16_f16(sums, smem_descriptor_advance(a, i * kMmaK * sizeof(f16)),
                                       smem_descriptor_advance(b, i * kMmaK * sizeof(f16)),
                                       k + i > 0);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>(sums);
    ptx::bar_sync();
  }

  // Register v: column of C by the thread's row of the product, token 8 (v / 4) + 2 (t % 4) + v
  // % 2.
  const uint32_t lane = ptx::lane_index();
  const uint32_t column = first_row + part + ptx::warp_index() % 4 * 16 + lane / 4;
#pragma unroll
  for (uint32_t v = 0; v < kTileN / 2; v += 2) {
    const uint32_t token = first_token + 8 * (v / 4) + 2 * (lane % 4);
    const uint32_t n = column + v / 2 % 2 * 8;
    const f16x2 pair = ptx::cvt_rn_f16x2_f32(sums[v] * kFp4SumScale, sums[v + 1] * kFp4SumScale);
    f16* c = group.c + uint64_t{token} * group.weights.rows + n;
    if (n < group.weights.rows && token < group.tokens.rows) *c = pair.lo;
    if (n < group.weights.rows && token + 1 < group.tokens.rows) c[group.weights.rows] = pair.hi;
  }
}

}  // namespace kb::step::gemm
