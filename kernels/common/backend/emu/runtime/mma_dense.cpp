// tcgen05.mma on f16, bf16, tf32, e4m3 and e5m2 operands (PTX ISA 9.1, 9.7.16.10), fp32 sums.
#include "mma_dense.hpp"

#include <cmath>
#include <cstring>

#include "cvt.hpp"

namespace kb::emu {

namespace {

constexpr uint32_t kMostK = kMmaRowBytes;

// PTX: 5.2.3: e4m3 has no infinity, and NaN for the largest magnitude alone.
float of_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return __builtin_nanf("");
  const float value = exponent > 0 ? std::ldexp(8.0f + static_cast<float>(mantissa), exponent - 10)
                                   : std::ldexp(static_cast<float>(mantissa), -9);
  return (code & 0x80) != 0 ? -value : value;
}

// PTX: 5.2.3: e5m2 is the upper half of an f16.
float of_e5m2(uint8_t code) {
  return f32_of_f16(static_cast<uint16_t>(code << 8));
}

float element(DenseType type, const uint8_t* row, uint32_t k) {
  uint16_t half = 0;
  uint32_t word = 0;
  switch (type) {
    case DenseType::kE4m3:
      return of_e4m3(row[k]);
    case DenseType::kE5m2:
      return of_e5m2(row[k]);
    case DenseType::kF16:
      std::memcpy(&half, row + 2 * k, sizeof half);
      return f32_of_f16(half);
    case DenseType::kBf16:
      std::memcpy(&half, row + 2 * k, sizeof half);
      return __builtin_bit_cast(float, uint32_t{half} << 16);
    case DenseType::kTf32:
      break;
  }
  // PTX: 5.2.3: of 32 bits of tf32 the lower 13 are ignored.
  std::memcpy(&word, row + 4 * k, sizeof word);
  return __builtin_bit_cast(float, word & ~uint32_t{0x1fff});
}

}  // namespace

void mma_dense(const DenseTile& tile, uint32_t* d) {
  const uint32_t depth = kMmaRowBytes / dense_bytes(tile.type_a);
  thread_local float b[kMostK][kMmaMaxColumns];
  for (uint32_t n = 0; n < tile.columns; ++n) {
    for (uint32_t k = 0; k < depth; ++k) {
      const float value = element(tile.type_b, tile.b[n], k);
      b[k][n] = tile.negate_b ? -value : value;
    }
  }
  for (uint32_t m = 0; m < tile.rows; ++m) {
    uint32_t* row = d + dense_lane(tile.rows, m) * kTmemColumns;
    float sums[kMmaMaxColumns] = {};
    if (tile.accumulate) std::memcpy(sums, row, tile.columns * sizeof(float));
    for (uint32_t k = 0; k < depth; ++k) {
      const float value = element(tile.type_a, tile.a[m], k);
      const float a = tile.negate_a ? -value : value;
      for (uint32_t n = 0; n < tile.columns; ++n) sums[n] += a * b[k][n];
    }
    std::memcpy(row, sums, tile.columns * sizeof(float));
  }
}

}  // namespace kb::emu
