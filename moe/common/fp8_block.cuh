// FP8 with one float32 scale for each block of 128 along K: value = e4m3 * scale.
#pragma once

#include "kb.cuh"

namespace kb {

inline constexpr uint32_t kFp8Block = 128;
inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kScaleFloor = 1e-6f;  // a block of zeros must not divide by zero

KB_HOST_DEVICE constexpr uint32_t ceil_div(uint32_t value, uint32_t divisor) {
  return (value + divisor - 1) / divisor;
}

KB_HOST_DEVICE constexpr float float_of(bf16 value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}

// The scale of a block whose largest magnitude is `amax`. Two true divisions (this, and the values
// by it): a reciprocal rounds otherwise. Values that are not finite need no care: fmax may drop a
// NaN on the way to `amax`, but its own code is NaN, and so is that of infinity over infinity.
KB_HOST_DEVICE constexpr float fp8_scale(float amax) {
  const float scale = amax / kE4m3Max;
  return scale < kScaleFloor ? kScaleFloor : scale;
}

}  // namespace kb
