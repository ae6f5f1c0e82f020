// Products of FP16 by one warp, and how their operands come. The emulator has its own bodies, which
// come with wgmma: kernels/common/backend/emu/half_mma.inl.
#pragma once

#include "kb.cuh"
#include "ptx/address.cuh"
#include "ptx/wgmma.cuh"

#ifdef __CUDACC__

namespace kb {

// PTX: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {values, values, values, values}, [row];
// sm_75+ · the converged warp. Four matrices of 8 rows of 16 bytes. Row r of matrix i is at the
// address that lane 8 i + r names, aligned to 16. Register i of lane l gets bytes 4 (l % 4) and
// the three after it, of row l / 4 of matrix i. Generic proxy; orders nothing between lanes.
KB_DEVICE void ldmatrix_m8n8_x4_b16(uint32_t (&values)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(ptx::smem_address(row))
               : "memory");
}

// PTX: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {sums, sums, sums, sums}, {a, a, a, a},
//      {b, b}, {sums, sums, sums, sums};
// sm_80+ · the converged warp. sums += a b, in float32. Lane l has rows l / 4 (sums 0 and 1, a 0
// and 2) and l / 4 + 8 (the others), columns 2 (l % 4) and the next of the sums, column l / 4 of
// b. Of 16 values of depth its first registers have 2 (l % 4) and the next, the others these + 8.
KB_DEVICE void mma_m16n8k16_f32_f16(float (&sums)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[2]) {
  // clang-format off
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])
               : "memory");
  // clang-format on
}

}  // namespace kb

#endif
