// From accumulators to fp16 rows.
#pragma once

#include "ptx/cvt.cuh"

namespace kb {

// Eight neighbouring columns of C: one 16-byte store.
struct alignas(16) F16x8 {
  f16x2 pairs[4];
};
static_assert(sizeof(F16x8) == 16);

// Rounds the accumulators `first` … `first + 7`, fp32 bit patterns as tcgen05_ld returns them, to
// nearest even; what exceeds fp16 becomes infinity. `first` must be known when the loop that calls
// it is unrolled: registers have no index.
template <int kCount>
KB_DEVICE F16x8 round_to_f16x8(const uint32_t (&accumulators)[kCount], int first) {
  const auto pair = [&](int i) {
    return ptx::cvt_rn_f16x2_f32(__builtin_bit_cast(float, accumulators[first + i]),
                                 __builtin_bit_cast(float, accumulators[first + i + 1]));
  };
  return {{pair(0), pair(2), pair(4), pair(6)}};
}

}  // namespace kb
