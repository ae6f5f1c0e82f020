#pragma once

#include "ptx/warp.cuh"
#include "runtime/api_ptx.hpp"
#include "runtime/cvt.hpp"

namespace kb {

KB_DEVICE uint32_t mul_rn_f16x2(uint32_t a, uint32_t b) {
  KB_EMU_ONE;
  // The product of two halves is exact in float.
  const auto multiply = [](uint32_t x, uint32_t y) {
    return uint32_t{emu::f16_bits(emu::f32_of_f16(static_cast<uint16_t>(x)) *
                                  emu::f32_of_f16(static_cast<uint16_t>(y)))};
  };
  return multiply(a >> 16, b >> 16) << 16 | multiply(a & 0xffff, b & 0xffff);
}

KB_DEVICE uint32_t twice_low(uint32_t pair) {
  return (pair & 0xffff) * 0x10001;
}
KB_DEVICE uint32_t twice_high(uint32_t pair) {
  return (pair >> 16) * 0x10001;
}

KB_DEVICE uint32_t prmt_b32(uint32_t a, uint32_t b, uint32_t selector) {
  KB_EMU_ONE;
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  }
  return result;
}

KB_DEVICE void stmatrix_m8n8_x4_trans_b16(void* row, const uint32_t (&values)[4]) {
  emu::stmatrix(row, values, 4, true);
}

}  // namespace kb
