#pragma once

#include "ptx/address.cuh"

namespace kb {

KB_DEVICE void ldmatrix_m8n8_x4_b16(uint32_t (&values)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(ptx::smem_address(row))
               : "memory");
}

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
