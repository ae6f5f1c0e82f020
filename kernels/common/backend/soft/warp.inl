#pragma once

#include "../sm90a/warp_common.inl"
#include "state.inl"

namespace kb::ptx {

// Where Cluster Launch Control is in software, fewer CTAs are launched than the grid has.
KB_DEVICE CtaIndex cta_count() {
  return soft::state.grid;
}

// The products in software need the registers that a kernel would give away.
template <uint32_t kCount>
KB_DEVICE void setmaxnreg_inc() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 … 256, a multiple of 8");
}

template <uint32_t kCount>
KB_DEVICE void setmaxnreg_dec() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 … 256, a multiple of 8");
}

}  // namespace kb::ptx
