// Arithmetic of wgmma.mma_async on Hopper (PTX ISA 9.1, 9.7.15): 64 rows, 32 bytes of K. No
// addresses, no checks.
#pragma once

#include <cstdint>

#include "api_tensor.hpp"
#include "elements.hpp"

namespace kb::emu {

inline constexpr uint32_t kWgmmaRows = 64;
inline constexpr uint32_t kWgmmaRowBytes = 32;
inline constexpr uint32_t kWgmmaMaxColumns = 256;

struct WgmmaTile {
  uint32_t columns;
  bool accumulate;
  uint8_t a[kWgmmaRows][kWgmmaRowBytes];
  uint8_t b[kWgmmaMaxColumns][kWgmmaRowBytes];
};

// d[m * columns + n] (+)= the tile's product. The hardware aligns the exact products and the old
// value to the largest exponent among them, cuts them to `fraction` fractional bits there, adds,
// and cuts the sum.

// e4m3, k = 32: 13 fractional bits, and 13 bits of mantissa in the result.
void wgmma_e4m3(const WgmmaTile& tile, float* d);
// f16, k = 16, added in fp32 in order of k: exact where the sums are.
void wgmma_f16(const WgmmaTile& tile, float* d);
// bf16, likewise.
void wgmma_bf16(const WgmmaTile& tile, float* d);
// f16, k = 16, as the hardware: 25 fractional bits, the result cut to fp32.
void wgmma_f16_modelled(const WgmmaTile& tile, float* d);

// What the elements and the sums of an instruction are.
enum class WgmmaSums : uint32_t { kF32, kF16, kS32 };
struct WgmmaTypes {
  ElementKind a, b;
  WgmmaSums sums;
};
WgmmaTypes types_of(WgmmaKind kind);
// Of any of them: products are exact, and added in fp32 in order of k; sums of f16 are rounded
// again at the end. Sums of s32 are exact, and as bits in `d`.
void wgmma_any(const WgmmaTypes& types, const WgmmaTile& tile, float* d);

}  // namespace kb::emu
