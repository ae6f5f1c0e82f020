// wgmma.mma_async (PTX ISA 9.1, 9.7.15) on e4m3 and f16 operands, with the sums that Hopper was
// seen to make: aligned to the largest exponent and cut. PTX leaves the accumulation's precision
// open.
#include "wgmma_math.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cvt.hpp"
#include "truncate.hpp"

namespace kb::emu {

namespace {

constexpr int kNoExponent = -10000;  // of zero
constexpr float kNan = __builtin_bit_cast(float, kCanonicalNan);

// significand · 2^(exponent - fraction bits of the format); the exponent of a subnormal is the
// least one, and its significand is not normalized.
struct Parts {
  int32_t significand;
  int32_t exponent;
};

template <int kExponentBits, int kMantissaBits>
constexpr Parts parts(uint32_t code) {
  const int mantissa = code & ((1 << kMantissaBits) - 1);
  const int exponent = code >> kMantissaBits & ((1 << kExponentBits) - 1);
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  if (exponent == 0 && mantissa == 0) return {0, kNoExponent};
  const int significand = exponent == 0 ? mantissa : mantissa | 1 << kMantissaBits;
  const bool negative = (code >> (kExponentBits + kMantissaBits) & 1) != 0;
  return {negative ? -significand : significand, std::max(exponent, 1) - kBias};
}

Parts fp32_parts(float value) {
  return parts<8, 23>(__builtin_bit_cast(uint32_t, value));
}

float cut(int64_t sum, int exponent, int significant) {
  return __builtin_bit_cast(float, truncated(sum, exponent, significant));
}

struct E4m3Table {
  float value[256];
  int16_t exponent[256];
  E4m3Table() {
    for (uint32_t code = 0; code < 256; ++code) {
      const Parts p = parts<4, 3>(code);
      const bool nan = (code & 0x7f) == 0x7f;
      value[code] = nan ? kNan : std::ldexp(static_cast<float>(p.significand), p.exponent - 3);
      exponent[code] = static_cast<int16_t>(p.exponent);
    }
  }
};

bool is_nan(uint8_t code) {
  return (code & 0x7f) == 0x7f;
}

// Assumption: measured on an H200: 13 fractional bits behind the largest exponent, where f16
// products keep 25.
constexpr int kE4m3Fraction = 13;

// One row of D. Everything but the ends is the same for all columns, for the vectorizer.
struct E4m3Columns {
  float b[kWgmmaRowBytes][kWgmmaMaxColumns];
  int16_t exponent[kWgmmaRowBytes][kWgmmaMaxColumns];
  bool nan[kWgmmaMaxColumns];
};

// Assumption: the 32 products of one instruction and the old value are aligned together. PTX says
// that accumulation of e4m3 may have less than single precision, and not how.
void e4m3_row(const E4m3Table& table, const E4m3Columns& columns, const uint8_t* a, uint32_t count,
              bool accumulate, float* d) {
  // First pass: the largest exponent of each column's products. Not normalized: a product of two
  // subnormals counts with their formats' least exponents.
  int16_t largest[kWgmmaMaxColumns];
  std::fill_n(largest, count, static_cast<int16_t>(2 * kNoExponent));
  bool a_nan = false;
  for (uint32_t k = 0; k < kWgmmaRowBytes; ++k) {
    a_nan |= is_nan(a[k]);
    const int16_t exponent = table.exponent[a[k]];
    const int16_t* of_b = columns.exponent[k];
    for (uint32_t n = 0; n < count; ++n) {
      const auto sum = static_cast<int16_t>(exponent + of_b[n]);
      largest[n] = largest[n] > sum ? largest[n] : sum;
    }
  }
  // Then the old value, aligned to the larger of both; then the products, cut one by one as they
  // are converted to integers.
  float scale[kWgmmaMaxColumns];
  int32_t aligned[kWgmmaMaxColumns];
  for (uint32_t n = 0; n < count; ++n) {
    const Parts old = accumulate ? fp32_parts(d[n]) : Parts{0, kNoExponent};
    const int top = std::max<int>(largest[n], old.exponent);
    largest[n] = static_cast<int16_t>(top);
    // Without a product the old value alone decides; a power of two beyond fp32 stays out.
    const int shift = std::clamp(kE4m3Fraction - top, -126, 126);
    scale[n] = __builtin_bit_cast(float, static_cast<uint32_t>(shift + 127) << 23);
    aligned[n] =
        static_cast<int32_t>(shifted(old.significand, kE4m3Fraction - 23 - (top - old.exponent)));
  }
  for (uint32_t k = 0; k < kWgmmaRowBytes; ++k) {
    const float value = table.value[a[k]];
    if (value == 0) continue;
    const float* b = columns.b[k];
    for (uint32_t n = 0; n < count; ++n) {
      aligned[n] += static_cast<int32_t>(value * b[n] * scale[n]);
    }
  }
  for (uint32_t n = 0; n < count; ++n) {
    const bool infinite = accumulate && std::isinf(d[n]);
    if (a_nan || columns.nan[n] || (accumulate && std::isnan(d[n]))) {
      d[n] = kNan;
    } else if (!infinite) {
      d[n] = cut(aligned[n], largest[n] - kE4m3Fraction, kE4m3Fraction + 1);
    }
  }
}

constexpr uint32_t kF16K = kWgmmaRowBytes / 2;
constexpr int kF16Fraction = 25;

float f32_of_bf16(uint16_t bits) {
  return __builtin_bit_cast(float, uint32_t{bits} << 16);
}

template <float (*kDecode)(uint16_t), uint32_t kRows>
void decode_halves(const uint8_t (*rows)[kWgmmaRowBytes], uint32_t count, float (*out)[kRows]) {
  for (uint32_t row = 0; row < count; ++row) {
    for (uint32_t k = 0; k < kF16K; ++k) {
      uint16_t bits;
      std::memcpy(&bits, rows[row] + 2 * k, sizeof bits);
      out[k][row] = kDecode(bits);
    }
  }
}

struct F16Operands {
  float a[kF16K][kWgmmaRows];
  float b[kF16K][kWgmmaMaxColumns];
};

template <float (*kDecode)(uint16_t)>
const F16Operands& decode_halves(const WgmmaTile& tile) {
  thread_local F16Operands operands;
  decode_halves<kDecode, kWgmmaRows>(tile.a, kWgmmaRows, operands.a);
  decode_halves<kDecode, kWgmmaMaxColumns>(tile.b, tile.columns, operands.b);
  return operands;
}

void multiply(const F16Operands& operands, const WgmmaTile& tile, float* d) {
  for (uint32_t m = 0; m < kWgmmaRows; ++m) {
    float* row = d + m * tile.columns;
    if (!tile.accumulate) std::fill_n(row, tile.columns, 0.0f);
    for (uint32_t k = 0; k < kF16K; ++k) {
      const float a = operands.a[k][m];
      for (uint32_t n = 0; n < tile.columns; ++n) row[n] += a * operands.b[k][n];
    }
  }
}

struct F16Parts {
  Parts a[kWgmmaRows][kF16K];
  Parts b[kWgmmaMaxColumns][kF16K];
};

void decode_parts(const uint8_t (*rows)[kWgmmaRowBytes], uint32_t count, Parts (*out)[kF16K]) {
  for (uint32_t row = 0; row < count; ++row) {
    for (uint32_t k = 0; k < kF16K; ++k) {
      uint16_t bits;
      std::memcpy(&bits, rows[row] + 2 * k, sizeof bits);
      out[row][k] = parts<5, 10>(bits);
    }
  }
}

// Assumption: as e4m3_row, for 16 products.
float f16_element(const Parts (&a)[kF16K], const Parts (&b)[kF16K], float old_value) {
  const Parts old = fp32_parts(old_value);
  // f16: as the e4m3 row, one element at a time and in 64 bits.
  int top = old.exponent;
  for (uint32_t k = 0; k < kF16K; ++k) top = std::max(top, a[k].exponent + b[k].exponent);
  int64_t sum = shifted(old.significand, kF16Fraction - 23 - (top - old.exponent));
  for (uint32_t k = 0; k < kF16K; ++k) {
    const int64_t product = int64_t{a[k].significand} * b[k].significand;
    sum += shifted(product, kF16Fraction - 20 - (top - a[k].exponent - b[k].exponent));
  }
  return cut(sum, top - kF16Fraction, 24);
}

}  // namespace

// PTX: 9.7.15: .f32 accumulation of e4m3.
// Always the hardware's sums: here, unlike f16, exact inputs too are cut.
void wgmma_e4m3(const WgmmaTile& tile, float* d) {
  static const E4m3Table table;
  thread_local E4m3Columns columns;
  for (uint32_t n = 0; n < tile.columns; ++n) {
    columns.nan[n] = false;
    for (uint32_t k = 0; k < kWgmmaRowBytes; ++k) {
      const uint8_t code = tile.b[n][k];
      // A NaN is found apart; here it must stay out of integer conversions.
      columns.nan[n] |= is_nan(code);
      columns.b[k][n] = is_nan(code) ? 0 : table.value[code];
      columns.exponent[k][n] = table.exponent[code];
    }
  }
  for (uint32_t m = 0; m < kWgmmaRows; ++m) {
    uint8_t a[kWgmmaRowBytes];
    bool nan = false;
    for (uint32_t k = 0; k < kWgmmaRowBytes; ++k) {
      nan |= is_nan(tile.a[m][k]);
      a[k] = tile.a[m][k];
    }
    float* row = d + m * tile.columns;
    if (nan) {
      std::fill_n(row, tile.columns, kNan);
    } else {
      e4m3_row(table, columns, a, tile.columns, tile.accumulate, row);
    }
  }
}

// PTX: 9.7.15: .f32 accumulation of f16: at least single precision, order not defined.
void wgmma_f16(const WgmmaTile& tile, float* d) {
  multiply(decode_halves<f32_of_f16>(tile), tile, d);
}

// PTX: 9.7.15: .f32 accumulation of bf16: likewise.
void wgmma_bf16(const WgmmaTile& tile, float* d) {
  multiply(decode_halves<f32_of_bf16>(tile), tile, d);
}

// Assumption: infinities and NaN follow fp32's rules; nobody has looked at mixtures of both.
void wgmma_f16_modelled(const WgmmaTile& tile, float* d) {
  const F16Operands& operands = decode_halves<f32_of_f16>(tile);
  thread_local F16Parts decoded;
  decode_parts(tile.a, kWgmmaRows, decoded.a);
  decode_parts(tile.b, tile.columns, decoded.b);
  for (uint32_t m = 0; m < kWgmmaRows; ++m) {
    float* row = d + m * tile.columns;
    for (uint32_t n = 0; n < tile.columns; ++n) {
      const float old = tile.accumulate ? row[n] : 0.0f;
      // f16 products stay far from fp32's end: a sum is not finite only with an operand that is
      // not.
      float plain = std::isfinite(old) ? 0.0f : old;
      for (uint32_t k = 0; k < kF16K; ++k) plain += operands.a[k][m] * operands.b[k][n];
      if (std::isnan(plain)) {
        row[n] = kNan;
      } else if (std::isinf(plain)) {
        row[n] = plain;
      } else {
        row[n] = f16_element(decoded.a[m], decoded.b[n], old);
      }
    }
  }
}

}  // namespace kb::emu
