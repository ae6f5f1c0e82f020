// Elements of matrices that a warp or a warpgroup multiplies (PTX ISA 9.1, 9.7.14 and 9.7.15).
#pragma once

#include <cstdint>
#include <cstring>

#include "cvt.hpp"

namespace kb::emu {

enum class ElementKind : uint32_t { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8, kF64 };

constexpr uint32_t element_bytes(ElementKind kind) {
  constexpr uint32_t kBytes[] = {2, 2, 4, 1, 1, 1, 1, 8};
  return kBytes[static_cast<uint32_t>(kind)];
}

// The exact value of an element in memory. Of tf32 the low 13 bits are not looked at.
inline double element_value(ElementKind kind, const void* at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, element_bytes(kind));
  const auto half = static_cast<uint16_t>(bits);
  switch (kind) {
    case ElementKind::kF16:
      return f32_of_f16(half);
    case ElementKind::kBf16:
      return __builtin_bit_cast(float, uint32_t{half} << 16);
    case ElementKind::kTf32:
      return __builtin_bit_cast(float, static_cast<uint32_t>(bits) & ~0x1fffu);
    case ElementKind::kE4m3:
      if ((bits & 0x7f) == 0x7f) return __builtin_nan("");
      return f32_of_f16(f16_bits_of_e4m3(static_cast<uint8_t>(bits)));
    case ElementKind::kE5m2:
      return f32_of_f16(static_cast<uint16_t>(half << 8));
    case ElementKind::kS8:
      return static_cast<int8_t>(bits);
    case ElementKind::kU8:
      return static_cast<uint8_t>(bits);
    case ElementKind::kF64:
      return __builtin_bit_cast(double, bits);
  }
  return 0;
}

// A sum of integer products as s32: wrapped, or at its nearest limit.
inline int32_t s32_of(int64_t sum, bool saturates) {
  if (saturates && sum > INT32_MAX) return INT32_MAX;
  if (saturates && sum < INT32_MIN) return INT32_MIN;
  return static_cast<int32_t>(static_cast<uint32_t>(sum));
}

}  // namespace kb::emu
