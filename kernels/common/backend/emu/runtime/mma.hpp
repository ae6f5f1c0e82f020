// Arithmetic of tcgen05.mma.kind::mxf4nvf4 (PTX ISA 9.1, 9.7.16.10), K = 64, of one CTA: no
// addresses, no checks.
#pragma once

#include <cstdint>

namespace kb::emu {

inline constexpr uint32_t kMmaK = 64;
inline constexpr uint32_t kMmaBlock = 16;  // elements that share a scale
inline constexpr uint32_t kMmaBlocks = kMmaK / kMmaBlock;
inline constexpr uint32_t kMmaRowBytes = kMmaK / 2;
inline constexpr uint32_t kMmaMaxColumns = 256;
inline constexpr uint32_t kTmemColumns = 512;
inline constexpr uint32_t kTmemLanes = 128;

// PTX: 9.7.16.10: .kind::mxf4nvf4: E2M1 elements; scales UE4M3, or UE8M0; K = 64, four blocks of
// 16.
// What one CTA multiplies. Rows of 64 e2m1 codes, low nibble first; four scale bytes a row.
struct MmaTile {
  uint32_t columns;  // N; rows are always 128
  bool accumulate;
  bool negate_a;
  bool negate_b;
  bool ue8m0;  // scales are powers of two, not ue4m3
  uint8_t a[kTmemLanes][kMmaRowBytes];
  uint8_t b[kMmaMaxColumns][kMmaRowBytes];
  uint8_t scales_a[kTmemLanes][kMmaBlocks];
  uint8_t scales_b[kMmaMaxColumns][kMmaBlocks];
};

// Assumption: the default model. It agrees with hardware where no sum is rounded, as with the input
// class gpu-mode.
// d[m * kTmemColumns + n], fp32 bits, (+)= the tile's product, every product exact and added in
// fp32 in order of k. Exact where the sums are. Not for ue8m0, whose scaled values leave the range
// of fp32.
void mma_fp32(const MmaTile& tile, uint32_t* d);

// Assumption: `--mma-rounding hardware`. Never compared with a GPU that has the instruction.
// The same with the hardware's rounding: the four blocks and the old value are aligned to the
// largest exponent with 35 fractional bits, added, and truncated to fp32. Bits of D that the model
// does not define: an infinite old value stays, an overflow becomes infinity.
void mma_modelled(const MmaTile& tile, uint32_t* d);

}  // namespace kb::emu
