#pragma once

namespace kb::ptx {

KB_DEVICE void red_relaxed_gpu_global_add_v4_f32(float* dst, const float (&value)[4]) {
  // clang-format off
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(detail::global_address(dst)),
                  "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3]) : "memory");
  // clang-format on
}

KB_DEVICE void red_relaxed_gpu_global_add_v2_f32(float* dst, const float (&value)[2]) {
  // clang-format off
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};"
               :: "l"(detail::global_address(dst)), "f"(value[0]), "f"(value[1]) : "memory");
  // clang-format on
}

KB_DEVICE void red_relaxed_gpu_global_add_f32(float* dst, float value) {
  // clang-format off
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;"
               :: "l"(detail::global_address(dst)), "f"(value) : "memory");
  // clang-format on
}

KB_DEVICE void red_release_gpu_global_add_u32(uint32_t* dst, uint32_t value) {
  // clang-format off
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;"
               :: "l"(detail::global_address(dst)), "r"(value) : "memory");
  // clang-format on
}

KB_DEVICE uint32_t atom_relaxed_gpu_global_add_u32(uint32_t* dst, uint32_t value) {
  uint32_t old;
  // clang-format off
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old) : "l"(detail::global_address(dst)), "r"(value) : "memory");
  // clang-format on
  return old;
}

KB_DEVICE void red_relaxed_cta_shared_add_u32(uint32_t* dst, uint32_t value) {
  // clang-format off
  asm volatile("red.relaxed.cta.shared::cta.add.u32 [%0], %1;"
               :: "r"(smem_address(dst)), "r"(value) : "memory");
  // clang-format on
}

}  // namespace kb::ptx
