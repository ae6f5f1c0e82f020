// Conversions between float formats: PTX ISA 9.1, 9.7.9 (cvt). Any thread; they order nothing.
#pragma once

#include "types.cuh"

namespace kb::ptx {

// PTX: cvt.rn.f16x2.f32 pair, hi, lo;
// sm_80+. To nearest even; |x| ≥ 65520 becomes infinity.
KB_DEVICE f16x2 cvt_rn_f16x2_f32(float lo, float hi);

// PTX: cvt.rn.bf16x2.f32 pair, hi, lo;
// sm_80+. To nearest even.
KB_DEVICE bf16x2 cvt_rn_bf16x2_f32(float lo, float hi);

// PTX: cvt.rn.satfinite.e4m3x2.f32 pair, hi, lo;
// sm_89+. To nearest even; values beyond ±448 and infinities become ±448, NaN stays NaN.
KB_DEVICE e4m3x2 cvt_rn_satfinite_e4m3x2_f32(float lo, float hi);

// PTX: cvt.rn.f16x2.e4m3x2 pair, source;
// sm_89+. Exact.
KB_DEVICE f16x2 cvt_rn_f16x2_e4m3x2(e4m3x2 source);

// PTX: cvt.f32.f16 value, source;
// sm_53+. Exact.
KB_DEVICE float cvt_f32_f16(f16 source);

}  // namespace kb::ptx

#include "cvt.inl"
