// From accumulators to fp16 rows.
#pragma once

#include "ptx/cvt.cuh"
#include "ptx/red.cuh"

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

// Rounds the accumulators likewise and stores them as a column: element i to c[i * pitch].
template <int kCount>
KB_DEVICE void store_f16_column(f16* c, uint32_t pitch, const uint32_t (&accumulators)[kCount]) {
  static_assert(kCount % 2 == 0, "rounded in pairs");
  for (int i = 0; i < kCount; i += 2) {
    const f16x2 pair = ptx::cvt_rn_f16x2_f32(__builtin_bit_cast(float, accumulators[i]),
                                             __builtin_bit_cast(float, accumulators[i + 1]));
    c[i * pitch] = pair.lo;
    c[(i + 1) * pitch] = pair.hi;
  }
}

// Adds the accumulators `first` … `first + 3` to sums in device memory, aligned to 16 bytes. Other
// threads may add to the same sums; the order of additions is not fixed.
template <int kCount>
KB_DEVICE void add_f32x4(float* sums, const uint32_t (&accumulators)[kCount], int first) {
  float values[4];
  for (int i = 0; i < 4; ++i) values[i] = __builtin_bit_cast(float, accumulators[first + i]);
  ptx::red_relaxed_gpu_global_add_v4_f32(sums, values);
}

}  // namespace kb
