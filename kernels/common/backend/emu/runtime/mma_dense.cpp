// tcgen05.mma on f16, bf16, tf32 and operands of 8, 6 and 4 bits (PTX ISA 9.1, 9.7.16.10), sums of
// fp32 or of whole numbers.
#include "mma_dense.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cvt.hpp"

namespace kb::emu {

namespace {

constexpr uint32_t kMostK = kMmaRowBytes;
constexpr uint32_t kGroup = 16;  // elements of 4 or 6 bits in 16 bytes

// PTX: 5.2.3: a float of so many bits of exponent and mantissa, without infinity and NaN.
float small(uint32_t code, int exponents, int mantissas) {
  const int exponent = static_cast<int>(code >> mantissas) & ((1 << exponents) - 1);
  const int mantissa = static_cast<int>(code) & ((1 << mantissas) - 1);
  const int bias = (1 << (exponents - 1)) - 1;
  const float significand = static_cast<float>(exponent > 0 ? mantissa | 1 << mantissas : mantissa);
  const float value = std::ldexp(significand, (exponent > 0 ? exponent : 1) - bias - mantissas);
  return (code >> (exponents + mantissas) & 1) != 0 ? -value : value;
}

// PTX: 9.7.16.3, elements of less than a byte in shared memory: sixteen packed, then padding.
uint32_t packed(const uint8_t* row, uint32_t k, uint32_t bits) {
  const uint8_t* group = row + k / kGroup * kGroup;
  const uint32_t at = k % kGroup * bits;
  const uint32_t word = group[at / 8] | (at / 8 + 1 < kGroup ? group[at / 8 + 1] << 8 : 0);
  return word >> at % 8 & ((1u << bits) - 1);
}

float element(DenseType type, const uint8_t* row, uint32_t k) {
  uint16_t half = 0;
  uint32_t word = 0;
  switch (type) {
    case DenseType::kE4m3:
      // PTX: 5.2.3: e4m3 has no infinity, and NaN for the largest magnitude alone.
      return (row[k] & 0x7f) == 0x7f ? __builtin_nanf("") : small(row[k], 4, 3);
    case DenseType::kE5m2:
      // The upper half of an f16.
      return f32_of_f16(static_cast<uint16_t>(row[k] << 8));
    case DenseType::kE2m3:
      return small(packed(row, k, 6), 2, 3);
    case DenseType::kE3m2:
      return small(packed(row, k, 6), 3, 2);
    case DenseType::kE2m1:
      return small(packed(row, k, 4), 2, 1);
    case DenseType::kF16:
      std::memcpy(&half, row + 2 * k, sizeof half);
      return f32_of_f16(half);
    case DenseType::kBf16:
      std::memcpy(&half, row + 2 * k, sizeof half);
      return __builtin_bit_cast(float, uint32_t{half} << 16);
    case DenseType::kTf32:
    case DenseType::kU8:
    case DenseType::kS8:
      break;
  }
  // PTX: 5.2.3: of 32 bits of tf32 the lower 13 are ignored.
  std::memcpy(&word, row + 4 * k, sizeof word);
  return __builtin_bit_cast(float, word & ~uint32_t{0x1fff});
}

// The row's cells, N columns of which the second half may be in other lanes.
template <typename Visit>
void each_part(const DenseTile& tile, uint32_t row, Visit visit) {
  const uint32_t columns = dense_columns(tile.layout, tile.columns);
  const uint32_t lane = dense_lane(tile.layout, row);
  visit(lane * kTmemColumns, 0, columns);
  if (tile.layout == DenseLayout::kHalves) visit((lane + 64) * kTmemColumns, columns, columns);
}

// PTX: 5.2.3, UE8M0: 2^(byte - 127), 0xff NaN.
double scaled(double sum, uint8_t a, uint8_t b) {
  if (a == 0xff || b == 0xff) return __builtin_nan("");
  return std::ldexp(sum, int{a} + int{b} - 254);
}

template <typename Sum>
void multiply(const DenseTile& tile, uint32_t* d) {
  const uint32_t depth = kMmaRowBytes / dense_bytes(tile.type_a);
  thread_local Sum b[kMostK][kMmaMaxColumns];
  for (uint32_t n = 0; n < tile.columns; ++n) {
    for (uint32_t k = 0; k < depth; ++k) {
      const float value = element(tile.type_b, tile.b[n], k);
      b[k][n] = tile.negate_b ? -value : value;
    }
  }
  for (uint32_t m = 0; m < tile.rows; ++m) {
    float old[kMmaMaxColumns] = {};
    if (tile.accumulate) {
      each_part(tile, m, [&](uint32_t at, uint32_t first, uint32_t count) {
        std::memcpy(old + first, d + at, count * sizeof(float));
      });
    }
    Sum sums[kMmaMaxColumns] = {};
    if (!tile.scaled) std::copy_n(old, tile.columns, sums);
    for (uint32_t k = 0; k < depth; ++k) {
      const float value = element(tile.type_a, tile.a[m], k);
      const Sum a = tile.negate_a ? -value : value;
      for (uint32_t n = 0; n < tile.columns; ++n) sums[n] += a * b[k][n];
    }
    float result[kMmaMaxColumns];
    for (uint32_t n = 0; n < tile.columns; ++n) {
      result[n] = static_cast<float>(
          tile.scaled ? old[n] + scaled(sums[n], tile.scales_a[m], tile.scales_b[n]) : sums[n]);
    }
    each_part(tile, m, [&](uint32_t at, uint32_t first, uint32_t count) {
      std::memcpy(d + at, result + first, count * sizeof(float));
    });
  }
}

int32_t whole(DenseType type, uint8_t byte) {
  return type == DenseType::kS8 ? static_cast<int8_t>(byte) : byte;
}

void multiply_whole(const DenseTile& tile, uint32_t* d) {
  for (uint32_t m = 0; m < tile.rows; ++m) {
    each_part(tile, m, [&](uint32_t at, uint32_t first, uint32_t count) {
      for (uint32_t n = 0; n < count; ++n) {
        int64_t sum = tile.accumulate ? static_cast<int32_t>(d[at + n]) : 0;
        for (uint32_t k = 0; k < kMostK; ++k) {
          sum += whole(tile.type_a, tile.a[m][k]) * whole(tile.type_b, tile.b[first + n][k]);
        }
        if (tile.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
        d[at + n] = static_cast<uint32_t>(sum);
      }
    });
  }
}

}  // namespace

void mma_dense(const DenseTile& tile, uint32_t* d) {
  if (tile.type_a == DenseType::kU8 || tile.type_a == DenseType::kS8) {
    return multiply_whole(tile, d);
  }
  if (tile.scaled) return multiply<double>(tile, d);
  multiply<float>(tile, d);
}

}  // namespace kb::emu
