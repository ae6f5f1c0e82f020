// Arithmetic of tcgen05.mma.kind::f16, ::tf32, ::f8f6f4, ::i8 and ::mxf8f6f4 (PTX
// ISA 9.1, 9.7.16.10) of one CTA: 32 bytes of K. No addresses, no checks.
#pragma once

#include <cstdint>

#include "mma.hpp"

namespace kb::emu {

// Elements of A and B. Sixteen elements of 4 or 6 bits take the first bytes of sixteen.
enum class DenseType : uint32_t { kF16, kBf16, kTf32, kE4m3, kE5m2, kU8, kS8, kE2m3, kE3m2, kE2m1 };
constexpr uint32_t dense_bytes(DenseType type) {
  if (type == DenseType::kTf32) return 4;
  return type == DenseType::kF16 || type == DenseType::kBf16 ? 2 : 1;
}

// Where a CTA's rows of D are (PTX ISA 9.1, 9.7.16.10.5).
enum class DenseLayout : uint32_t {
  kWhole,   // 128 rows, a lane each
  kSpread,  // 64 rows, 16 in each warp's 32 lanes
  kHalves,  // 64 rows of a pair's 128: N / 2 columns in lanes 0 … 63, the others in lanes 64 … 127
};

// What one CTA multiplies.
struct DenseTile {
  uint32_t rows;     // the CTA's: 64 or 128
  uint32_t columns;  // N
  DenseLayout layout;
  bool accumulate;
  bool negate_a;
  bool negate_b;
  bool saturate;  // of integers
  bool scaled;    // every product of a row and a column is times both scales, ue8m0
  DenseType type_a;
  DenseType type_b;  // of the same size
  uint8_t a[kTmemLanes][kMmaRowBytes];
  uint8_t b[kMmaMaxColumns][kMmaRowBytes];
  uint8_t scales_a[kTmemLanes];
  uint8_t scales_b[kMmaMaxColumns];
};

// The lane of row m of A in tensor memory, and of D but for the second half of kHalves.
constexpr uint32_t dense_lane(DenseLayout layout, uint32_t row) {
  return layout == DenseLayout::kSpread ? row / 16 * 32 + row % 16 : row;
}
// Columns of tensor memory that D takes.
constexpr uint32_t dense_columns(DenseLayout layout, uint32_t columns) {
  return layout == DenseLayout::kHalves ? columns / 2 : columns;
}

// PTX leaves the order and the rounding of the sums open. Both are exact where the sums are.
// Assumption: as mma_fp32: fp32 bits of D (+)= the tile's product, every product exact and added in
// fp32 in order of k; scaled ones are added in fp64, and rounded once with D. Integers are those of
// 32 bits, the whole sum modulo 2^32 or clamped.
void mma_dense(const DenseTile& tile, uint32_t* d);

}  // namespace kb::emu
