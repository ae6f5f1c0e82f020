// Values to FP8: per block of 128 the scale max(amax / 448, floor), the values divided by it.
#pragma once

#include <cmath>

#include "fp8_tile.cuh"
#include "layout.cuh"
#include "ptx/cvt.cuh"

namespace kb::step {

// x / s, rounded as a division rounds (Markstein: r is 1 / s rounded to nearest, and the quotient's
// error, which one fma has exactly, times r corrects it).
KB_DEVICE float divide_by(float x, float s, float r) {
  const float q = x * r;
  return std::fma(std::fma(-q, s, x), r, q);
}

// 1 / s, for a normal s below 2^126, without the branch of a division, so that several are under
// way. Four steps of Newton round it to nearest, but for a mantissa of ones; three err by 2^-23.
template <uint32_t kSteps = 4>
KB_DEVICE float reciprocal(float s) {
  float r = __builtin_bit_cast(float, 0x7ef311c7 - __builtin_bit_cast(uint32_t, s));
#pragma unroll
  for (uint32_t i = 0; i < kSteps; ++i) r = std::fma(std::fma(-s, r, 1.0f), r, r);
  return r;
}

// fp8_scale, without a branch.
KB_DEVICE float scale_of(float amax) {
  const float scale = divide_by(amax, kE4m3Max, 1.0f / kE4m3Max);
  return scale < kScaleFloor ? kScaleFloor : scale;
}

// Codes of four values, the first in the low byte. r: the scale's reciprocal.
KB_DEVICE uint32_t codes_of(const float (&values)[4], float scale, float r) {
  const e4m3x2 lo = ptx::cvt_rn_satfinite_e4m3x2_f32(divide_by(values[0], scale, r),
                                                     divide_by(values[1], scale, r));
  const e4m3x2 hi = ptx::cvt_rn_satfinite_e4m3x2_f32(divide_by(values[2], scale, r),
                                                     divide_by(values[3], scale, r));
  return __builtin_bit_cast(uint16_t, lo) | static_cast<uint32_t>(__builtin_bit_cast(uint16_t, hi))
                                                << 16;
}

KB_DEVICE uint32_t codes_of(const float (&values)[4], float scale) {
  return codes_of(values, scale, reciprocal(scale));
}

// The magnitude's bits: as integers they have the order of numbers, NaN above all.
KB_DEVICE uint32_t magnitude(float value) {
  return __builtin_bit_cast(uint32_t, value) & 0x7fffffff;
}

KB_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

}  // namespace kb::step
