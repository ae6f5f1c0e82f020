#pragma once

namespace kb::ptx {

KB_DEVICE f16x2 cvt_rn_f16x2_f32(float lo, float hi) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  return __builtin_bit_cast(f16x2, pair);
}

KB_DEVICE bf16x2 cvt_rn_bf16x2_f32(float lo, float hi) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  return __builtin_bit_cast(bf16x2, pair);
}

KB_DEVICE e4m3x2 cvt_rn_satfinite_e4m3x2_f32(float lo, float hi) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(hi), "f"(lo));
  return __builtin_bit_cast(e4m3x2, pair);
}

KB_DEVICE f16x2 cvt_rn_f16x2_e4m3x2(e4m3x2 source) {
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(__builtin_bit_cast(uint16_t, source)));
  return __builtin_bit_cast(f16x2, pair);
}

KB_DEVICE float cvt_f32_f16(f16 source) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(source.bits));
  return value;
}

}  // namespace kb::ptx
