// Instructions on 32-bit words of fp16 pairs. Bodies: backend/<executor>/half_words.inl.
#pragma once

#include "kb.cuh"

namespace kb {

// PTX: mul.rn.f16x2 product, a, b;
// sm_53+ · any thread. Both halves, to nearest even; subnormals are kept.
KB_DEVICE uint32_t mul_rn_f16x2(uint32_t a, uint32_t b);

// PTX: mov.b32 {low, high}, pair; mov.b32 result, {low, low};
// every SM · any thread. The lower half twice: an operand's modifier of the instruction that uses
// it.
KB_DEVICE uint32_t twice_low(uint32_t pair);

// PTX: mov.b32 {low, high}, pair; mov.b32 result, {high, high};
// every SM · any thread. The upper half twice, likewise.
KB_DEVICE uint32_t twice_high(uint32_t pair);

// PTX: prmt.b32 result, a, b, selector;
// every SM · any thread. Byte i of the result is the byte that nibble i of the selector names:
// 0 … 3 of `a`, 4 … 7 of `b`. Selectors with bit 3 of a nibble set are not for this function.
KB_DEVICE uint32_t prmt_b32(uint32_t a, uint32_t b, uint32_t selector);

// PTX: stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [row], {values, values,
//      values, values};
// sm_90+ · the converged warp. Four matrices of 8 x 8 halves. Register i of lane l holds elements
// (2 (l % 4), l / 4) and (2 (l % 4) + 1, l / 4) of matrix i; its row r goes to the 16 bytes that
// lane 8 i + r names, aligned to 16. Generic proxy; orders nothing between lanes.
KB_DEVICE void stmatrix_m8n8_x4_trans_b16(void* row, const uint32_t (&values)[4]);

}  // namespace kb

#include "half_words.inl"
