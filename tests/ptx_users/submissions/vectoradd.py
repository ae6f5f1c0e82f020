"""A submission to the task vectoradd: a module of pybind11's own, plain CUDA beside it."""

import torch
from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>

void add_halves(const void* a, const void* b, void* out, int n);

void add(torch::Tensor a, torch::Tensor b, torch::Tensor out) {
  TORCH_CHECK(a.device().is_cuda(), "a must be on CUDA");
  TORCH_CHECK(a.scalar_type() == torch::kFloat16 && a.sizes() == b.sizes());
  add_halves(a.data_ptr<at::Half>(), b.data_ptr<at::Half>(), out.data_ptr<at::Half>(), a.numel());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("add", &add, "out = a + b");
}
"""

CUDA = r"""
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 128;

// b comes through shared memory, loaded by the neighbour.
__global__ void add_kernel(const __half* a, const __half* b, __half* out, int n) {
  __shared__ __half staged[kThreads];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int other = blockIdx.x * kThreads + kThreads - 1 - threadIdx.x;
  if (other < n) staged[kThreads - 1 - threadIdx.x] = b[other];
  __syncthreads();
  if (i < n) out[i] = __hadd(a[i], staged[threadIdx.x]);
}

void add_halves(const void* a, const void* b, void* out, int n) {
  add_kernel<<<(n + kThreads - 1) / kThreads, kThreads>>>(
      static_cast<const __half*>(a), static_cast<const __half*>(b), static_cast<__half*>(out), n);
}
"""

module = load_inline(
    "halves", cpp_sources=[CPP], cuda_sources=[CUDA], no_implicit_headers=True, verbose=True
)


def custom_kernel(data: input_t) -> output_t:
    a, b, output = data
    assert isinstance(a, torch.Tensor) and a.is_cuda
    module.add(a, b, output)
    return output
