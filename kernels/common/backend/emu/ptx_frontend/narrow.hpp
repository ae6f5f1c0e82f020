// Floats of 8, 6 and 4 bits, tf32 and ue8m0 (PTX ISA 9.1, 9.7.9.21 cvt): from a value, rounded
// once.
#pragma once

#include "halves.hpp"

namespace px {

// A narrow format: its bits, and how it says what is no number. `nan`: what a NaN becomes.
struct Narrow {
  u32 exponent, fraction;
  b8 largest, nan;
  b8 infinity;  // 0: none, a larger value becomes the largest
};
inline constexpr Narrow kE4m3{4, 3, 0x7e, 0x7f, 0};
inline constexpr Narrow kE5m2{5, 2, 0x7b, 0x7f, 0x7c};
// PTX: a NaN becomes the largest positive value.
inline constexpr Narrow kE2m3{2, 3, 0x1f, 0x1f, 0};
inline constexpr Narrow kE3m2{3, 2, 0x1f, 0x1f, 0};
inline constexpr Narrow kE2m1{2, 1, 0x7, 0x7, 0};

// To nearest even; beyond the largest value (.satfinite) the largest.
PX_CALLED b8 narrowed(Narrow to, f32 value) {
  if (to.exponent == 4) return emu::e4m3_bits_satfinite(value);
  const int bias = (1 << (to.exponent - 1)) - 1;
  const auto sign = static_cast<b8>(std::signbit(value) << (to.exponent + to.fraction));
  if (std::isnan(value)) return to.nan;
  const f64 size = std::fabs(static_cast<f64>(value));
  if (size == 0) return sign;
  const int exponent = max(std::isinf(size) ? 1024 : std::ilogb(size), 1 - bias);
  // In units of the last place; exact but for the rounding.
  const f64 units = std::nearbyint(std::scalbn(size, static_cast<int>(to.fraction) - exponent));
  const f64 code = units + std::scalbn(exponent + bias - 1, static_cast<int>(to.fraction));
  return static_cast<b8>(sign | (code >= to.largest ? to.largest : static_cast<b8>(code)));
}
PX_CALLED f32 widened(Narrow of, b8 code) {
  const int bias = (1 << (of.exponent - 1)) - 1;
  const u32 magnitude = code & ((1u << (of.exponent + of.fraction)) - 1);
  const bool negative = code >> (of.exponent + of.fraction) & 1;
  if (of.infinity != 0 && magnitude > of.infinity) return as<f32>(0x7fffffffu);
  if (of.infinity != 0 && magnitude == of.infinity) return negative ? -INFINITY : INFINITY;
  if (of.infinity == 0 && of.nan > of.largest && magnitude == of.nan) return as<f32>(0x7fffffffu);
  const u32 exponent = magnitude >> of.fraction;
  const u32 fraction = magnitude & ((1u << of.fraction) - 1);
  const u32 units = exponent == 0 ? fraction : fraction | 1u << of.fraction;
  const int scale = static_cast<int>(max(exponent, 1u)) - bias - static_cast<int>(of.fraction);
  const auto size = static_cast<f32>(std::scalbn(units, scale));
  return negative ? -size : size;
}

// Two values: the first operand is the upper one. Of 4 bits they share a byte.
template <Narrow to, bool relu>
PX b16 pack_narrow(f32 a, f32 b) {
  const b8 high = narrowed(to, without_negative<relu>(a));
  const b8 low = narrowed(to, without_negative<relu>(b));
  if constexpr (to.exponent + to.fraction == 3) return static_cast<b16>(high << 4 | low);
  return joined<b16>(low, high);
}
template <Narrow to, bool relu, typename Pair>
PX b16 pack_narrow_pair(Pair a) {
  using H = detail::Half<Pair>;
  return pack_narrow<to, relu>(widened(H{static_cast<b16>(a.bits >> 16)}),
                               widened(H{static_cast<b16>(a.bits)}));
}
template <Narrow of, bool relu>
PX b32 f16x2_of_narrow(b16 a) {
  constexpr bool kFour = of.exponent + of.fraction == 3;
  const auto low = static_cast<b8>(kFour ? a & 15 : a);
  const auto high = static_cast<b8>(kFour ? a >> 4 & 15 : a >> 8);
  if constexpr (of.exponent == 4 && !relu) {
    return joined<b32>(emu::f16_bits_of_e4m3(low), emu::f16_bits_of_e4m3(high));
  }
  return joined<b32>(narrowed_f16_rn(without_negative<relu>(widened(of, low))).bits,
                     narrowed_f16_rn(without_negative<relu>(widened(of, high))).bits);
}

// tf32 in 32 bits; the low 13 are zero. rna: half-way cases go away from zero, and a NaN keeps its
// upper bits (as on an H200).
enum class Tf32 { rn, rz, rna };
template <Tf32 how, bool relu>
PX_CALLED b32 tf32_of(f32 value) {
  const f32 given = without_negative<relu>(value);
  const auto bits = __builtin_bit_cast(b32, given);
  if (std::isnan(given)) return (how == Tf32::rna ? bits : 0x7fffffff) & ~0x1fffu;
  if (std::isinf(given)) return bits;
  const b32 add = how == Tf32::rz ? 0 : how == Tf32::rna ? 0x1000 : 0xfff + (bits >> 13 & 1);
  return (bits + add) & ~0x1fffu;
}

// Powers of two: 2^(code - 127), 255 is NaN.
PX bf16 bf16_of_ue8m0(b8 code) {
  if (code == 255) return {0x7fff};
  return {code == 0 ? b16{0x40} : static_cast<b16>(code << 7)};
}
PX b32 bf16x2_of_ue8m0x2(b16 a) {
  return joined<b32>(bf16_of_ue8m0(static_cast<b8>(a)).bits,
                     bf16_of_ue8m0(static_cast<b8>(a >> 8)).bits);
}
// Assumption: the sign is ignored, as the format has none.
template <bool up>
PX_CALLED b8 ue8m0_of(f32 value) {
  const b32 bits = __builtin_bit_cast(b32, value) & 0x7fffffff;
  if (bits > 0x7f800000) return 255;
  if (bits >= 0x7f000000) return 254;
  const b32 exponent = bits >> 23;
  // 2^-127 is code 0, half-way in the subnormals.
  if (exponent == 0) return up && bits > 0x400000 ? 1 : 0;
  return static_cast<b8>(exponent + (up && (bits & 0x7fffff) != 0));
}
template <bool up>
PX b16 pack_ue8m0(f32 a, f32 b) {
  return joined<b16>(ue8m0_of<up>(b), ue8m0_of<up>(a));
}
template <bool up>
PX b16 pack_ue8m0_pair(bf16x2 a) {
  return pack_ue8m0<up>(extended(bf16{static_cast<b16>(a.bits >> 16)}),
                        extended(bf16{static_cast<b16>(a.bits)}));
}

}  // namespace px
