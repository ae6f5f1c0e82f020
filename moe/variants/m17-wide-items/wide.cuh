// Wide items: what they share with the others, seen as their products and their gathering do.
#pragma once

#include "layout.cuh"

namespace kb::step {

// Columns of the instruction that take a wide item's tokens.
KB_DEVICE uint32_t wide_columns(uint32_t rows) {
  return rows <= 16 ? 16 : rows <= 32 ? 32 : rows <= 64 ? 64 : kWide;
}

// The ring of weights, and wide slots in place of the resident tokens'.
template <uint32_t kTokens>
struct WideView {
  uint8_t (*weights)[kTileN * kTileK];
  uint8_t (*codes)[kWide * kTileK];
  float (*weight_scales)[32];
  float (*scales)[kWide];
  Mbarrier* full;
  Mbarrier* empty;
  Mbarrier* slot_full;
  Mbarrier* slot_empty;
};

template <uint32_t kTokens>
KB_DEVICE WideView<kTokens> wide_view(SharedStorage<kTokens>& shared) {
  constexpr size_t kCodes = size_t{kWideSlots<kTokens>} * kWide * kTileK;
  constexpr size_t kScales = kWideSlots<kTokens> * kWide * sizeof(float);
  static_assert(kCodes <= sizeof(shared.codes) && kScales <= sizeof(shared.scales),
                "wide slots lie where the others are");
  return {.weights = shared.weights,
          .codes = reinterpret_cast<uint8_t (*)[kWide * kTileK]>(&shared.codes),
          .weight_scales = shared.weight_scales,
          .scales = reinterpret_cast<float (*)[kWide]>(&shared.scales),
          .full = shared.full,
          .empty = shared.empty,
          .slot_full = shared.wide_full,
          .slot_empty = shared.wide_empty};
}

}  // namespace kb::step
