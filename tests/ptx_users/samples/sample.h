// What the samples share: a status that is no success ends a program with 1, OK with 0.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(x)                                          \
  do {                                                    \
    if (const cudaError_t e = (x); e != cudaSuccess) {    \
      std::printf("%s: %s\n", #x, cudaGetErrorString(e)); \
      std::exit(1);                                       \
    }                                                     \
  } while (0)
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
