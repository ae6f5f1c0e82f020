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

// Codes of four values, the first in the low byte.
KB_DEVICE uint32_t codes_of(const float (&values)[4], float scale) {
  const float r = 1.0f / scale;
  const e4m3x2 lo = ptx::cvt_rn_satfinite_e4m3x2_f32(divide_by(values[0], scale, r),
                                                     divide_by(values[1], scale, r));
  const e4m3x2 hi = ptx::cvt_rn_satfinite_e4m3x2_f32(divide_by(values[2], scale, r),
                                                     divide_by(values[3], scale, r));
  return __builtin_bit_cast(uint16_t, lo) | static_cast<uint32_t>(__builtin_bit_cast(uint16_t, hi))
                                                << 16;
}

// The magnitude's bits: as integers they have the order of numbers, NaN above all.
KB_DEVICE uint32_t magnitude(float value) {
  return __builtin_bit_cast(uint32_t, value) & 0x7fffffff;
}

KB_DEVICE uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

}  // namespace kb::step
