// Conversions between float formats by their bits: PTX ISA 9.1, 9.7.9. NaNs become the canonical
// one, as on the hardware.
#pragma once

#include <cstdint>

namespace kb::emu {

constexpr uint32_t bits_of(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

// To nearest even. Below the least normal number, adding a power of two leaves the result in the
// sum's last bits, rounded by the addition.
constexpr uint16_t f16_bits(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return 0x7fff;
  uint32_t result = 0;
  if (magnitude >= bits_of(65536.0f)) {
    result = 0x7c00;
  } else if (magnitude >= bits_of(0x1p-14f)) {
    result = ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112 << 10);
  } else {
    result = bits_of(__builtin_bit_cast(float, magnitude) + 0.5f) - bits_of(0.5f);
  }
  return static_cast<uint16_t>(sign | result);
}

// To nearest even; what exceeds the largest becomes infinity.
constexpr uint16_t bf16_bits(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// PTX: cvt.rn.satfinite.e4m3x2.f32 (9.7.9), one element; NaN becomes 0x7f.
// cvt.rn.satfinite: to nearest even; what exceeds 448, infinity included, becomes 448.
constexpr uint8_t e4m3_bits_satfinite(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  if (magnitude > 0x7f800000) return 0x7f;
  uint32_t result = 0;
  if (magnitude >= bits_of(448.0f)) {
    result = 0x7e;
  } else if (magnitude >= bits_of(0x1p-6f)) {
    result = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3);
  } else {
    result = bits_of(__builtin_bit_cast(float, magnitude) + 0x1p14f) - bits_of(0x1p14f);
  }
  return static_cast<uint8_t>(sign | result);
}

// PTX: cvt.rn.f16x2.e4m3x2 (9.7.9), one element.
// Exact: every e4m3 is an f16.
constexpr uint16_t f16_bits_of_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7f;
  const auto sign = static_cast<uint16_t>((code & 0x80) << 8);
  if (magnitude == 0x7f) return 0x7fff;
  if (magnitude >= 8) return static_cast<uint16_t>(sign | ((magnitude << 7) + (8 << 10)));
  if (magnitude == 0) return sign;
  // A subnormal is normal in f16: magnitude · 2^-9.
  const auto top = static_cast<uint32_t>(31 - __builtin_clz(magnitude));
  return static_cast<uint16_t>(sign | (6 + top) << 10 | (magnitude << (10 - top) & 0x3ff));
}

// PTX: cvt.f32.f16 (9.7.9).
// Exact.
// Assumption: a NaN becomes the canonical one.
constexpr float f32_of_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} << 16 & 0x80000000u;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude > 0x7c00) return __builtin_bit_cast(float, 0x7fffffffu);
  if (magnitude == 0x7c00) return __builtin_bit_cast(float, sign | 0x7f800000u);
  // The same bits further down are the value times 2^-112, a subnormal of f16 included.
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  return __builtin_bit_cast(float, bits_of(scaled) | sign);
}

}  // namespace kb::emu
