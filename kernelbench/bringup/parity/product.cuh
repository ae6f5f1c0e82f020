// A block-scaled product of one CTA or a pair: operands of the input in shared memory, accumulators
// and scales in tensor memory.
#pragma once

#include "descriptors.cuh"
#include "parity.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using ptx::cta_group_1;
using ptx::cta_group_2;

inline constexpr uint32_t kThreads = 128;

KB_DEVICE uint32_t warp_lanes() {
  return ptx::warp_index() * 32 << 16;
}

// Between tensor memory operations of different warps.
KB_DEVICE void tensor_barrier() {
  ptx::tcgen05_fence_before_thread_sync();
  ptx::bar_sync();
  ptx::tcgen05_fence_after_thread_sync();
}

template <int kCount>
KB_DEVICE void store_32x32b(uint32_t tmem, uint32_t column, const uint32_t* row) {
  uint32_t values[kCount];
  for (int r = 0; r < kCount; ++r) values[r] = row[column + r];
  ptx::tcgen05_st_32x32b(tmem + warp_lanes() + column, values);
}

inline constexpr uint32_t kRows = 128;  // of A in each CTA
inline constexpr uint32_t kMaxN = 256;
inline constexpr uint32_t kMaxSteps = 4;
inline constexpr uint32_t kMaxRowWords = 32;
inline constexpr uint32_t kAtomWords = 128;  // scales of 128 rows and K = 64
// Columns: D, then the scales of the steps.
inline constexpr uint32_t kColumnA = 256;
inline constexpr uint32_t kColumnB = kColumnA + 4 * kMaxSteps;

struct Input {
  uint32_t n;
  uint32_t row_bytes;  // 16 (no swizzle, two columns of 16), 32, 64 or 128
  uint32_t accumulate;
  uint32_t negate_a, negate_b;
  uint32_t shift;                      // columns by which the scales of B start later
  uint32_t issuer;                     // of a pair: rank of the CTA that issues
  uint32_t column;                     // where D starts, for the probe of odd columns
  uint32_t a[2][kRows][kMaxRowWords];  // per CTA
  uint32_t b[kMaxN][kMaxRowWords];
  uint32_t scales_a[2][kMaxSteps][kAtomWords];
  uint32_t scales_b[kMaxSteps][2][kAtomWords];
  uint32_t d[2][kRows][kMaxN];
};

struct SharedStorage {
  alignas(1024) uint32_t a[kRows * kMaxRowWords];
  alignas(1024) uint32_t b[kMaxN * kMaxRowWords];
  alignas(128) uint32_t scales_a[kMaxSteps][kAtomWords];
  alignas(128) uint32_t scales_b[kMaxSteps][2][kAtomWords];
  Mbarrier done;
  uint32_t tmem;
};

// The words of a row that a product uses: 8 for each step of K.
KB_DEVICE uint32_t steps_of(uint32_t row_bytes) {
  return row_bytes == 16 ? 1 : row_bytes / 32;
}

KB_DEVICE SmemTile tile_of(uint32_t row_bytes, uint32_t rows) {
  switch (row_bytes) {
    case 128:
      return kTileSw128;
    case 64:
      return {SmemSwizzle::k64B, 16, 512};
    case 32:
      return {SmemSwizzle::k32B, 16, 256};
    default:
      return {SmemSwizzle::kNone, rows * 16, 128};
  }
}

// Where word `word` of row `row` lies.
KB_DEVICE uint32_t place(uint32_t row, uint32_t word, uint32_t row_bytes, uint32_t rows) {
  const uint32_t chunk = word / 4;
  if (row_bytes == 16) return (chunk * rows + row) * 4 + word % 4;
  const uint32_t linear = row * row_bytes + chunk * 16;
  const uint32_t repeat = row_bytes / 16 - 1;
  return (linear ^ (linear >> 7 & repeat) << 4) / 4 + word % 4;
}

KB_DEVICE void place_tile(uint32_t* tile, const uint32_t (*rows)[kMaxRowWords], uint32_t count,
                          uint32_t row_bytes) {
  const uint32_t words = 8 * steps_of(row_bytes);
  for (uint32_t i = ptx::thread_index(); i < count * words; i += kThreads) {
    tile[place(i / words, i % words, row_bytes, count)] = rows[i / words][i % words];
  }
}

KB_DEVICE void place_scales(SharedStorage& shared, const Input& in, uint32_t rank) {
  for (uint32_t i = ptx::thread_index(); i < kMaxSteps * kAtomWords; i += kThreads) {
    shared.scales_a[i / kAtomWords][i % kAtomWords] =
        in.scales_a[rank][i / kAtomWords][i % kAtomWords];
    for (uint32_t atom = 0; atom < 2; ++atom) {
      shared.scales_b[i / kAtomWords][atom][i % kAtomWords] =
          in.scales_b[i / kAtomWords][atom][i % kAtomWords];
    }
  }
}

// Copies the scales of a step of K into tensor memory.
template <int kCtas>
KB_DEVICE void copy_scales(const SharedStorage& shared, uint32_t step, uint32_t scales_a,
                           uint32_t scales_b) {
  constexpr ptx::CtaGroup<kCtas> group;
  const auto atom = [](const uint32_t* words) {
    return tcgen05_smem_descriptor(kTileScales, ptx::smem_address(words));
  };
  ptx::tcgen05_cp_32x128b_warpx4(group, scales_a, atom(shared.scales_a[step]));
  ptx::tcgen05_cp_32x128b_warpx4(group, scales_b, atom(shared.scales_b[step][0]));
  ptx::tcgen05_cp_32x128b_warpx4(group, scales_b + 4, atom(shared.scales_b[step][1]));
}

template <int kCtas>
KB_DEVICE void multiply(const SharedStorage& shared, const Input& in, uint32_t step, uint32_t d,
                        uint32_t scales_a, uint32_t scales_b, bool accumulate) {
  constexpr ptx::CtaGroup<kCtas> group;
  const uint32_t share = in.n / kCtas;
  const Mxf4nvf4Instruction instruction{
      .m = kRows * kCtas, .n = in.n, .negate_a = in.negate_a != 0, .negate_b = in.negate_b != 0};
  const uint64_t a = smem_descriptor_advance(
      tcgen05_smem_descriptor(tile_of(in.row_bytes, kRows), ptx::smem_address(shared.a)),
      32 * step);
  const uint64_t b = smem_descriptor_advance(
      tcgen05_smem_descriptor(tile_of(in.row_bytes, share), ptx::smem_address(shared.b)),
      32 * step);
  if (step % 2 == 0) {
    ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, d, a, b, instruction.bits(), scales_a, scales_b,
                                             accumulate);
  } else {
    ptx::tcgen05_mma_mxf4nvf4_block_scale_4x(group, ptx::collector_a_discard, d, a, b,
                                             instruction.bits(), scales_a, scales_b, accumulate);
  }
}

// Fills tensor memory before the product, and writes D behind it.
KB_DEVICE void store_d(const Input& in, uint32_t rank, uint32_t tmem) {
  for (uint32_t column = 0; column < kMaxN; column += 32) {
    store_32x32b<32>(tmem, column, in.d[rank][ptx::thread_index()]);
  }
  ptx::tcgen05_wait_st();
}
KB_DEVICE void write_d(uint32_t tmem, uint32_t rank, uint32_t* out) {
  for (uint32_t column = 0; column < kMaxN; column += 32) {
    uint32_t values[32];
    ptx::tcgen05_ld_32x32b(values, tmem + warp_lanes() + column);
    ptx::tcgen05_wait_ld(values);
    for (int r = 0; r < 32; ++r) {
      out[(rank * kRows + ptx::thread_index()) * kMaxN + column + r] = values[r];
    }
  }
}

// One CTA: allocates, places the operands and fills D. Returns D's address.
KB_DEVICE uint32_t begin(SharedStorage& shared, const Input& in) {
  if (ptx::warp_index() == 0) ptx::tcgen05_alloc(cta_group_1, &shared.tmem, 512);
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.done, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  place_tile(shared.a, in.a[0], kRows, in.row_bytes);
  place_tile(shared.b, in.b, in.n, in.row_bytes);
  place_scales(shared, in, 0);
  ptx::fence_proxy_async(ptx::space_shared_cta);
  tensor_barrier();
  store_d(in, 0, shared.tmem);
  tensor_barrier();
  return shared.tmem;
}

// One thread of warp 3 calls `operations` and commits them; returns when they are done.
template <typename Operations>
KB_DEVICE void perform(SharedStorage& shared, uint32_t phase, Operations operations) {
  if (ptx::warp_index() == 3) {
    if (ptx::elect_sync()) {
      operations();
      ptx::tcgen05_commit(cta_group_1, &shared.done);
    }
    ptx::bar_warp_sync();
  }
  mbarrier_wait_parity(&shared.done, phase);
  ptx::tcgen05_fence_after_thread_sync();
}

KB_DEVICE void end(uint32_t tmem) {
  tensor_barrier();
  if (ptx::warp_index() == 0) ptx::tcgen05_dealloc(cta_group_1, tmem, 512);
}
