#pragma once

#include "runtime/cvt.hpp"

namespace kb::ptx {

KB_DEVICE f16x2 cvt_rn_f16x2_f32(float lo, float hi) {
  KB_EMU_ONE;
  return {{emu::f16_bits(lo)}, {emu::f16_bits(hi)}};
}

KB_DEVICE bf16x2 cvt_rn_bf16x2_f32(float lo, float hi) {
  KB_EMU_ONE;
  return {{emu::bf16_bits(lo)}, {emu::bf16_bits(hi)}};
}

KB_DEVICE e4m3x2 cvt_rn_satfinite_e4m3x2_f32(float lo, float hi) {
  KB_EMU_ONE;
  return {{emu::e4m3_bits_satfinite(lo)}, {emu::e4m3_bits_satfinite(hi)}};
}

KB_DEVICE f16x2 cvt_rn_f16x2_e4m3x2(e4m3x2 source) {
  KB_EMU_ONE;
  return {{emu::f16_bits_of_e4m3(source.lo.bits)}, {emu::f16_bits_of_e4m3(source.hi.bits)}};
}

KB_DEVICE float cvt_f32_f16(f16 source) {
  KB_EMU_ONE;
  return emu::f32_of_f16(source.bits);
}

}  // namespace kb::ptx
