// Bit patterns that describe operands to the tensor cores: shared memory tiles and the block-scaled
// instruction. Plain arithmetic, the same on every executor.
#pragma once

#include "kb.cuh"

namespace kb {

// How a shared memory tile's 16-byte units are permuted. A swizzled tile starts on a multiple of
// the pattern: 1024, 512 or 256 bytes for 128, 64 or 32.
enum class SmemSwizzle : uint32_t { kNone = 0, k128B = 2, k64B = 4, k32B = 6 };

// A K-major tile in shared memory, all in bytes, multiples of 16.
//   swizzle          permutation that the TMA or the writer applied
//   leading_bytes    kNone: from one 16-byte column of K to the next; otherwise unused
//   stride_bytes     from one group of eight rows to the next
struct SmemTile {
  SmemSwizzle swizzle;
  uint32_t leading_bytes;
  uint32_t stride_bytes;
};

// Rows of 128 bytes (256 FP4, 128 FP8, 64 FP16) with the 128-byte swizzle: eight rows are 1024.
inline constexpr SmemTile kTileSw128{SmemSwizzle::k128B, 16, 1024};
// Rows of 64 and of 32 bytes with the swizzle as wide: eight rows are 512 and 256.
inline constexpr SmemTile kTileSw64{SmemSwizzle::k64B, 16, 512};
inline constexpr SmemTile kTileSw32{SmemSwizzle::k32B, 16, 256};
// Scale factors for tcgen05_cp_32x128b_warpx4: rows of 16 bytes one after another.
inline constexpr SmemTile kTileScales{SmemSwizzle::kNone, 0, 128};

namespace detail {

// 18 bits: a cluster launch may put the CTA's rank above bit 23 of an address.
KB_HOST_DEVICE constexpr uint64_t smem_start_field(uint32_t address) {
  return (address & 0x3ffffu) >> 4;
}

KB_HOST_DEVICE constexpr uint64_t smem_tile_fields(SmemTile tile) {
  return static_cast<uint64_t>((tile.leading_bytes >> 4) & 0x3fff) << 16 |
         static_cast<uint64_t>((tile.stride_bytes >> 4) & 0x3fff) << 32 |
         static_cast<uint64_t>(tile.swizzle) << 61;
}

}  // namespace detail

// Descriptor of a tile for tcgen05.mma and tcgen05.cp (PTX ISA 9.1, 9.7.16): start in bits 13:0,
// leading offset 29:16, stride offset 45:32, constant 1 in 48:46, swizzle 63:61; base offset 0.
// `address`: smem_address of the tile's first row, on the swizzle's boundary, or a multiple of 32
// further inside the first row to start at a later K.
KB_HOST_DEVICE constexpr uint64_t tcgen05_smem_descriptor(SmemTile tile, uint32_t address) {
  return detail::smem_tile_fields(tile) | uint64_t{1} << 46 | detail::smem_start_field(address);
}

// Descriptor of a tile for wgmma (PTX ISA 9.1, 9.7.15): as for tcgen05, bit 46 zero, and the
// swizzle's code in bits 63:62 (equal bits for the modes here).
KB_HOST_DEVICE constexpr uint64_t wgmma_smem_descriptor(SmemTile tile, uint32_t address) {
  return detail::smem_tile_fields(tile) | detail::smem_start_field(address);
}

// The same tile `bytes` further on, a multiple of 16; one step of K is 32.
KB_HOST_DEVICE constexpr uint64_t smem_descriptor_advance(uint64_t descriptor, uint32_t bytes) {
  return (descriptor & ~uint64_t{0x3fff}) | ((descriptor + (bytes >> 4)) & 0x3fff);
}

enum class ScaleType : uint32_t { kUe4m3 = 0, kUe8m0 = 1 };

// Instruction of kind mxf4nvf4 with dense E2M1 operands, K-major, K = 64 (PTX ISA 9.1, 9.7.16).
//   m                     rows of D over all CTAs of the group: 128, or 256 with cta_group_2
//   n                     columns of D: a multiple of 8 up to 256, of 16 with cta_group_2
//   scales                format of the scale factors
//   negate_a, negate_b    change the operand's sign
struct Mxf4nvf4Instruction {
  uint32_t m;
  uint32_t n;
  ScaleType scales = ScaleType::kUe4m3;
  bool negate_a = false;
  bool negate_b = false;

  // Whether the hardware has this shape in a group of `ctas`; for a static_assert beside its use.
  KB_HOST_DEVICE constexpr bool valid(int ctas) const {
    const bool rows = ctas == 2 ? m == 128 || m == 256 : ctas == 1 && m == 128;
    const uint32_t step = ctas == 2 ? 16 : 8;
    return rows && n >= step && n <= 256 && n % step == 0;
  }

  // A and B type E2M1 = 1 in bits 9:7 and 11:10, signs 13 and 14, N / 8 in 22:17, scale type 23,
  // M / 128 in 28:27; scale ids, transposition and sparsity 0.
  KB_HOST_DEVICE constexpr uint32_t bits() const {
    return uint32_t{1} << 7 | uint32_t{1} << 10 | static_cast<uint32_t>(negate_a) << 13 |
           static_cast<uint32_t>(negate_b) << 14 | (n >> 3) << 17 |
           static_cast<uint32_t>(scales) << 23 | (m >> 7) << 27;
  }
};

static_assert(tcgen05_smem_descriptor(kTileSw128, 0) == 0x4000404000010000);
static_assert(tcgen05_smem_descriptor(kTileScales, 0) == 0x0000400800000000);
static_assert(wgmma_smem_descriptor(kTileSw128, 0) == 0x4000004000010000);
static_assert(Mxf4nvf4Instruction{.m = 128, .n = 128}.bits() == 0x08200480);

}  // namespace kb
