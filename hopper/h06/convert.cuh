// Conversion: tokens to fp16, once for all tiles that read them.
//
// One CTA for 32 rows and 128 of K: four threads a row, each with 16 packed bytes. Rows past M
// become zero. The converted rows leave by bulk copies of 4 KB.
#pragma once

#include "group_limit.cuh"
#include "nvfp4.cuh"
#include "ptx/fence.cuh"
#include "ptx/pdl.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "token_layout.cuh"

namespace kb::step::convert {

// ---- Config

inline constexpr uint32_t kRows = 32;
inline constexpr uint32_t kThreads = 4 * kRows;

// ---- SharedStorage

struct SharedStorage {
  alignas(1024) uint32_t slabs[2][kRows][kRowBytes / 4];
};

struct Group {
  const uint8_t* a;
  const uint8_t* sfa;
  uint8_t* tokens;  // slabs of `rows` rows
  uint32_t m, k;
  uint32_t rows;      // m and what its last tile adds, a multiple of kRows
  uint32_t unit_end;  // CTAs of the groups up to this one
};

struct Arguments {
  Group groups[kGroups];
};

// ---- Kernel

// The thread's codes and scales; zeros where the row or this part of K does not exist.
KB_DEVICE void load_share(const Group& group, uint32_t row, uint32_t k, PackedCodes& codes,
                          uint32_t& scales) {
  codes = {};
  scales = 0;
  if (row >= group.m || k >= group.k) return;
  codes = *reinterpret_cast<const PackedCodes*>(group.a + uint64_t{row} * e2m1_bytes(group.k) +
                                                e2m1_bytes(k));
  const uint8_t* atom = group.sfa + scale_atom_offset(row, k, group.k);
  scales = fp4_scales(*reinterpret_cast<const e4m3x2*>(
      atom + scale_pair_offset(row % kScaleAtomRows, k % kScaleAtomK)));
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 8) convert_tokens(KB_GRID_CONSTANT(Arguments) args) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  ptx::griddepcontrol_launch_dependents();
  uint32_t unit = ptx::cta_index().x;
  uint32_t g = 0;
  while (unit >= args.groups[g].unit_end) ++g;
  const Group& group = args.groups[g];
  if (g > 0) unit -= args.groups[g - 1].unit_end;
  const uint32_t blocks = group.rows / kRows;
  const uint32_t first_row = unit % blocks * kRows;
  const uint32_t pair = unit / blocks;

  const uint32_t row = ptx::thread_index() / 4;
  const uint32_t quad_thread = ptx::thread_index() % 4;
  PackedCodes codes;
  uint32_t scales;
  load_share(group, first_row + row, pair * kPairK + quad_thread * kQuadK, codes, scales);
  store_row_share({shared.slabs[0][row], shared.slabs[1][row]}, row, quad_thread, codes, scales);
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();
  if (ptx::thread_index() != 0) return;
  for (uint32_t half = 0; half < 2; ++half) {
    ptx::cp_async_bulk_global_shared(
        group.tokens + slab_offset(2 * pair + half, group.rows) + first_row * kRowBytes,
        shared.slabs[half], sizeof shared.slabs[half]);
  }
  ptx::cp_async_bulk_commit_group();
  ptx::cp_async_bulk_wait_group<0>();
}

}  // namespace kb::step::convert
