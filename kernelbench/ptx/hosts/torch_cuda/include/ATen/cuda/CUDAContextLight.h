// The GPU's properties, for host code on the emulator.
#pragma once

#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace at::cuda {

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
  static cudaDeviceProp properties;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() {
  return getDeviceProperties(0);
}
inline int warp_size() {
  return 32;
}
inline bool is_available() {
  return true;
}
inline int64_t getNumGPUs() {
  return 1;
}

}  // namespace at::cuda
