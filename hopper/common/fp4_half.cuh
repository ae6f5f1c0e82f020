// From e2m1 to fp16 with the scale applied, exactly.
//
// The bits of an e2m1 code at bits 15 (sign) and 11:9 of an fp16 are its value times 2^-14, the
// subnormal code 0.5 included. One multiplication by the scale gives value * scale * 2^-14: a
// multiple of 2^-24, fp16's least step, with at most six significant bits, below 1. Nothing is
// rounded and nothing overflows for any e4m3 scale. A product of two such numbers carries 2^-28,
// which the epilogue takes back in fp32.
#pragma once

#include "half_words.cuh"
#include "ptx/cvt.cuh"

namespace kb {

// What a sum of products of two dequantized operands is multiplied by: 2^28.
inline constexpr float kFp4SumScale = 0x1p28f;

// Eight dequantized codes of one 32-bit word, as fp16 pairs. Codes are counted from the low nibble.
struct Fp4Halves {
  uint32_t odd[2];   // codes 1 and 3, 5 and 7
  uint32_t even[2];  // codes 0 and 2, 4 and 6
};

// `scale`: in both halves.
KB_DEVICE Fp4Halves dequantize_fp4(uint32_t codes, uint32_t scale) {
  const uint32_t odd = (codes & 0x80808080) | (codes >> 3 & 0x0e0e0e0e);
  const uint32_t even = (codes << 4 & 0x80808080) | (codes << 1 & 0x0e0e0e0e);
  // Bytes become the upper bytes of halves: 0 and 1, then 2 and 3.
  const auto halves = [scale](uint32_t bytes, uint32_t selector) {
    return mul_rn_f16x2(prmt_b32(bytes, 0, selector), scale);
  };
  return {{halves(odd, 0x1404), halves(odd, 0x3424)}, {halves(even, 0x1404), halves(even, 0x3424)}};
}

// Two neighbouring scales of a row.
KB_DEVICE uint32_t fp4_scales(e4m3x2 scales) {
  return __builtin_bit_cast(uint32_t, ptx::cvt_rn_f16x2_e4m3x2(scales));
}

// Byte offset of the scales of (row, k) and (row, k + 16) in an atom of blocked scales, `row` and
// `k` counted from the atom's start: at an even address, k a multiple of 32.
KB_HOST_DEVICE constexpr uint32_t scale_pair_offset(uint32_t row, uint32_t k) {
  return row % 32 * 16 + row / 32 * 4 + k / 16;
}

}  // namespace kb
