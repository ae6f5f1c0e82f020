// In place of c10/cuda/CUDAException.h, which torch for CPUs lacks.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#define C10_CUDA_CHECK(call)                                             \
  do {                                                                   \
    if ((call) != cudaSuccess) std::printf("%s\n", #call), std::exit(1); \
  } while (false)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
