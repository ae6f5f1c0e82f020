// Arithmetic of tcgen05.mma.kind::f16, ::tf32 and ::f8f6f4 (PTX ISA 9.1, 9.7.16.10) of one CTA: 32
// bytes of K. No addresses, no checks.
#pragma once

#include <cstdint>

#include "mma.hpp"

namespace kb::emu {

// Elements of A and B.
enum class DenseType : uint32_t { kF16, kBf16, kTf32, kE4m3, kE5m2 };
constexpr uint32_t dense_bytes(DenseType type) {
  if (type == DenseType::kTf32) return 4;
  return type == DenseType::kF16 || type == DenseType::kBf16 ? 2 : 1;
}

// What one CTA multiplies.
struct DenseTile {
  uint32_t rows;     // M: 64 or 128
  uint32_t columns;  // N
  bool accumulate;
  bool negate_a;
  bool negate_b;
  DenseType type_a;
  DenseType type_b;  // of the same size
  uint8_t a[kTmemLanes][kMmaRowBytes];
  uint8_t b[kMmaMaxColumns][kMmaRowBytes];
};

// Where row m of D is: PTX ISA 9.1, 9.7.16.10.5. With M = 64 each warp's 32 lanes hold 16 rows.
constexpr uint32_t dense_lane(uint32_t rows, uint32_t row) {
  return rows == kTmemLanes ? row : row / 16 * 32 + row % 16;
}

// Assumption: as mma_fp32. PTX leaves the order and the rounding of the sums open.
// d[dense_lane(m) * kTmemColumns + n], fp32 bits, (+)= the tile's product, every product exact and
// added in fp32 in order of k. Exact where the sums are.
void mma_dense(const DenseTile& tile, uint32_t* d);

}  // namespace kb::emu
