// Errors of CUDA as torch's, for host code on the emulator: names and meaning are those of torch's
// header of this name.
#pragma once

#include <c10/cuda/impl/cuda_cmake_macros.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#define C10_CUDA_CHECK(EXPR)                                             \
  do {                                                                   \
    const cudaError_t kernelbench_status = EXPR;                         \
    TORCH_CHECK(kernelbench_status == cudaSuccess,                       \
                "CUDA error: ", cudaGetErrorString(kernelbench_status)); \
  } while (0)
#define C10_CUDA_CHECK_WARN(EXPR)                                           \
  do {                                                                      \
    const cudaError_t kernelbench_status = EXPR;                            \
    if (kernelbench_status != cudaSuccess) {                                \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(kernelbench_status)); \
    }                                                                       \
  } while (0)
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR) \
  do {                              \
    (void)(EXPR);                   \
    (void)cudaGetLastError();       \
  } while (0)
#define C10_CUDA_CLEAR_ERROR() (void)cudaGetLastError()
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())

namespace c10::cuda {}
namespace at::cuda {
using namespace c10::cuda;
}
