#pragma once

#include "warp_common.inl"

namespace kb::ptx {

KB_DEVICE CtaIndex cta_count() {
  return {gridDim.x, gridDim.y, gridDim.z};
}

template <uint32_t kCount>
KB_DEVICE void setmaxnreg_inc() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 … 256, a multiple of 8");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount) : "memory");
}

template <uint32_t kCount>
KB_DEVICE void setmaxnreg_dec() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 … 256, a multiple of 8");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount) : "memory");
}

}  // namespace kb::ptx
