// What programs beside this do with a status of CUDA that is no success: say so, and end with 1.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>

#define CHECK(x)                                          \
  do {                                                    \
    cudaError_t e = (x);                                  \
    if (e != cudaSuccess) {                               \
      std::printf("%s: %s\n", #x, cudaGetErrorString(e)); \
      return 1;                                           \
    }                                                     \
  } while (0)
