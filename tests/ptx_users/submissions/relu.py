"""A submission as it is written for GPU MODE: sources in strings, functions by name."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>

#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda() && x.is_contiguous(), #x " is not on CUDA")

template <typename scalar_t>
__global__ void relu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] > scalar_t(0) ? x[i] : scalar_t(0);
}

// The sum of a row by one block.
__global__ void row_sums_kernel(const float* x, float* sums, int columns) {
  extern __shared__ float parts[];
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += x[blockIdx.x * columns + i];
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
}

torch::Tensor relu(torch::Tensor x) {
  CHECK_INPUT(x);
  const c10::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = torch::empty_like(x);
  const int threads = 128;
  const int blocks = (x.numel() + threads - 1) / threads;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "relu", [&] {
    relu_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

torch::Tensor row_sums(torch::Tensor x) {
  CHECK_INPUT(x);
  auto sums = torch::zeros({x.size(0)}, x.options().device(torch::kCUDA));
  const int threads = 64;
  row_sums_kernel<<<x.size(0), threads, threads * sizeof(float)>>>(
      x.data_ptr<float>(), sums.data_ptr<float>(), x.size(1));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums / x.size(1);
}
"""

module = load_inline(
    name="relu_means",
    cpp_sources="torch::Tensor relu(torch::Tensor x); torch::Tensor row_sums(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["relu", "row_sums"],
    extra_cuda_cflags=["-O3", "--use_fast_math", "-gencode=arch=compute_90a,code=sm_90a"],
    verbose=False,
)


def custom_kernel(data):
    """The mean of each row of relu(data)."""
    return module.row_sums(module.relu(data))


if __name__ == "__main__":
    x = torch.randn(5, 300, device="cuda")
    torch.testing.assert_close(custom_kernel(x), x.relu().mean(1))
    double = torch.randn(100, device="cuda", dtype=torch.float64)
    torch.testing.assert_close(module.relu(double), double.relu())
