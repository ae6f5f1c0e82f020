#pragma once

#include "ptx/address.cuh"

namespace kb {

KB_DEVICE uint32_t mul_rn_f16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

KB_DEVICE uint32_t twice_low(uint32_t pair) {
  uint32_t result;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}"
      : "=r"(result)
      : "r"(pair));
  return result;
}

KB_DEVICE uint32_t twice_high(uint32_t pair) {
  uint32_t result;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}"
      : "=r"(result)
      : "r"(pair));
  return result;
}

KB_DEVICE uint32_t prmt_b32(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
  return result;
}

KB_DEVICE void stmatrix_m8n8_x4_trans_b16(void* row, const uint32_t (&values)[4]) {
  // clang-format off
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(ptx::smem_address(row)), "r"(values[0]), "r"(values[1]), "r"(values[2]),
                  "r"(values[3]) : "memory");
  // clang-format on
}

}  // namespace kb
