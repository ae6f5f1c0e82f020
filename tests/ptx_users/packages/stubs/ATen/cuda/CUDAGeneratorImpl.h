// In place of ATen/cuda/CUDAGeneratorImpl.h: what of it FlashAttention's parameters name.
#pragma once
#include <cstdint>
#include <tuple>
namespace at {
struct PhiloxCudaState {
  uint64_t seed = 0, offset = 0;
};
}  // namespace at
