// Sums of aligned terms, as tensor cores make them: integers that are cut, never rounded. PTX does
// not say; it was measured.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace kb::emu {

inline constexpr int kLeastExponent = -126;  // of fp32
inline constexpr uint32_t kCanonicalNan = 0x7fffffff;

// value · 2^shift, truncated toward zero.
// Assumption: bits below the kept ones are dropped, per term, before the sum: no sticky bit, no
// rounding. Measured on an H200 for wgmma; for tcgen05 taken from published measurements.
constexpr int64_t shifted(int64_t value, int shift) {
  if (shift >= 0) return value * (int64_t{1} << shift);
  const uint64_t magnitude = static_cast<uint64_t>(value < 0 ? -value : value);
  const auto cut = static_cast<int64_t>(shift > -64 ? magnitude >> -shift : 0);
  return value < 0 ? -cut : cut;
}

// fp32 bits of sum · 2^exponent, truncated toward zero to `significant` bits (24 at most), or where
// fp32's subnormals end. Zero is +0; beyond the largest number is infinity.
constexpr uint32_t truncated(int64_t sum, int exponent, int significant = 24) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int top = std::bit_width(magnitude) - 1;
  const int last = std::max(top - significant + 1, 0);
  magnitude = magnitude >> last << last;
  const auto kept = static_cast<int64_t>(magnitude);
  if (exponent + top > 127) return sign | 0x7f800000u;
  if (exponent + top < kLeastExponent) {
    return sign | static_cast<uint32_t>(shifted(kept, exponent + 149));
  }
  const auto significand = static_cast<uint32_t>(shifted(kept, 23 - top));
  return sign | static_cast<uint32_t>(exponent + top + 127) << 23 | (significand & 0x7fffff);
}

}  // namespace kb::emu
