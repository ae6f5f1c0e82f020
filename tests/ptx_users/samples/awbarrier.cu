// A barrier that splits arrival and wait.
#include <cuda/barrier>

#include "sample.h"
__global__ void reverse(int* data) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ int tile[64];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  tile[threadIdx.x] = data[threadIdx.x];
  auto token = barrier.arrive();
  barrier.wait(std::move(token));
  data[threadIdx.x] = tile[63 - threadIdx.x];
}
int main() {
  int* data = managed<int>(64);
  for (int i = 0; i < 64; ++i) data[i] = i;
  reverse<<<1, 64>>>(data);
  CHECK(cudaDeviceSynchronize());
  return verdict(data[0] == 63 && data[63] == 0);
}
