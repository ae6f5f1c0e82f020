#pragma once

#include "runtime/api_core.hpp"
#include "runtime/api_tensor.hpp"

namespace kb::ptx {

KB_DEVICE void red_relaxed_gpu_global_add_v4_f32(float* dst, const float (&value)[4]) {
  emu::red_add_f32(dst, value, 4);
}

KB_DEVICE void red_relaxed_gpu_global_add_v2_f32(float* dst, const float (&value)[2]) {
  emu::red_add_f32(dst, value, 2);
}

KB_DEVICE void red_relaxed_gpu_global_add_f32(float* dst, float value) {
  emu::red_add_f32(dst, &value, 1);
}

KB_DEVICE void red_release_gpu_global_add_u32(uint32_t* dst, uint32_t value) {
  emu::red_add_u32(dst, value);
}

KB_DEVICE uint32_t atom_relaxed_gpu_global_add_u32(uint32_t* dst, uint32_t value) {
  return emu::atom_add_u32(dst, value);
}

KB_DEVICE void red_relaxed_cta_shared_add_u32(uint32_t* dst, uint32_t value) {
  emu::red_shared_add_u32(dst, value);
}

}  // namespace kb::ptx
