// What the samples share: a status that is no success ends a program with 1, OK with 0.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

inline void checked(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorString(status));
  std::exit(1);
}
#define CHECK(x) checked(x, #x)
inline int verdict(bool right) {
  std::puts(right ? "OK" : "wrong");
  return right ? 0 : 1;
}
template <typename T>
T* managed(size_t count) {
  T* made;
  CHECK(cudaMallocManaged(&made, count * sizeof(T)));
  return made;
}
// As NVIDIA's samples leave where they waive: 2.
inline void need_two_gpus() {
  int count;
  CHECK(cudaGetDeviceCount(&count));
  if (count >= 2) return;
  std::puts("two GPUs are needed");
  std::exit(2);
}
