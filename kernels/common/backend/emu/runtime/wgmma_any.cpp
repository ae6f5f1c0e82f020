// wgmma.mma_async of the types that Hopper's own steps do not have (PTX ISA 9.1, 9.7.15).
#include <cmath>

#include "wgmma_math.hpp"

namespace kb::emu {

WgmmaTypes types_of(WgmmaKind kind) {
  constexpr WgmmaTypes kTypes[] = {
      {ElementKind::kE4m3, ElementKind::kE4m3, WgmmaSums::kF32},
      {ElementKind::kF16, ElementKind::kF16, WgmmaSums::kF32},
      {ElementKind::kBf16, ElementKind::kBf16, WgmmaSums::kF32},
      {ElementKind::kTf32, ElementKind::kTf32, WgmmaSums::kF32},
      {ElementKind::kE4m3, ElementKind::kE5m2, WgmmaSums::kF32},
      {ElementKind::kE5m2, ElementKind::kE4m3, WgmmaSums::kF32},
      {ElementKind::kE5m2, ElementKind::kE5m2, WgmmaSums::kF32},
      {ElementKind::kS8, ElementKind::kS8, WgmmaSums::kS32},
      {ElementKind::kS8, ElementKind::kU8, WgmmaSums::kS32},
      {ElementKind::kU8, ElementKind::kS8, WgmmaSums::kS32},
      {ElementKind::kU8, ElementKind::kU8, WgmmaSums::kS32},
      {ElementKind::kF16, ElementKind::kF16, WgmmaSums::kF16},
      {ElementKind::kE4m3, ElementKind::kE4m3, WgmmaSums::kF16},
      {ElementKind::kE4m3, ElementKind::kE5m2, WgmmaSums::kF16},
      {ElementKind::kE5m2, ElementKind::kE4m3, WgmmaSums::kF16},
      {ElementKind::kE5m2, ElementKind::kE5m2, WgmmaSums::kF16},
  };
  return kTypes[static_cast<uint32_t>(kind)];
}

// Not modelled: the hardware's own rounding of these sums.
void wgmma_any(const WgmmaTypes& types, const WgmmaTile& tile, float* d) {
  const uint32_t bytes = element_bytes(types.a), depth = kWgmmaRowBytes / bytes;
  thread_local float b[kWgmmaMaxColumns][kWgmmaRowBytes];
  for (uint32_t n = 0; n < tile.columns; ++n) {
    for (uint32_t k = 0; k < depth; ++k) {
      b[n][k] = static_cast<float>(element_value(types.b, &tile.b[n][k * bytes]));
    }
  }
  for (uint32_t m = 0; m < kWgmmaRows; ++m) {
    float a[kWgmmaRowBytes];
    for (uint32_t k = 0; k < depth; ++k) {
      a[k] = static_cast<float>(element_value(types.a, &tile.a[m][k * bytes]));
    }
    for (uint32_t n = 0; n < tile.columns; ++n) {
      float& place = d[m * tile.columns + n];
      if (types.sums == WgmmaSums::kS32) {
        int64_t sum = tile.accumulate ? __builtin_bit_cast(int32_t, place) : 0;
        for (uint32_t k = 0; k < depth; ++k) {
          sum += static_cast<int64_t>(a[k]) * static_cast<int64_t>(b[n][k]);
        }
        place = __builtin_bit_cast(float, s32_of(sum, false));
        continue;
      }
      float sum = tile.accumulate ? place : 0.0f;
      for (uint32_t k = 0; k < depth; ++k) sum = std::fma(a[k], b[n][k], sum);
      place = types.sums == WgmmaSums::kF16 ? f32_of_f16(f16_bits(sum)) : sum;
    }
  }
}

}  // namespace kb::emu
