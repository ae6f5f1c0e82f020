// The experts' weights and their scales, streamed to stages by the TMA. `args` has n, k and the
// tensor maps weights and weight_scales.
#pragma once

#include "cta_roles.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "resident_items.cuh"

namespace kb {

// Scales that come with a stage, one of which is the stage's: the TMA copies 16 bytes on a multiple
// of 16.
inline constexpr uint32_t kScaleBox = 4;

// Where the scale of a block of 128 × 128 weights is, and the box that holds it.
template <typename Arguments>
KB_DEVICE uint32_t scale_of(const Arguments& args, uint32_t row, uint32_t column) {
  return row * (args.k / kTileK) + column;
}
KB_DEVICE uint32_t aligned_scale(uint32_t scale) {
  return scale / kScaleBox * kScaleBox;
}

// By one thread: a block of the item's weights and its scale, to a stage that is empty.
template <typename Shared, typename Arguments>
KB_DEVICE void load_block(Shared& shared, const Arguments& args, const Item& item, uint32_t block,
                          uint32_t stage) {
  const uint32_t row = item.expert * (args.n / kTileN) + item.n_block + block / item.k_blocks;
  const uint32_t column = item.k_block + block % item.k_blocks;
  Mbarrier* full = &shared.full[stage];
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, full,
                                 kTileN * kTileK + kScaleBox * sizeof(float));
  ptx::cp_async_bulk_tensor_2d_shared_global(shared.weights[stage], &args.weights, column * kTileK,
                                             row * kTileN, full);
  ptx::cp_async_bulk_tensor_2d_shared_global(shared.weight_scales[stage], &args.weight_scales,
                                             aligned_scale(scale_of(args, row, column)), 0, full);
}

}  // namespace kb
