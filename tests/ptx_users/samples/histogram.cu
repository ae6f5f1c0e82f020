// Atomics in shared and in global memory.
#include "sample.h"
__global__ void count(const unsigned char* data, int n, unsigned* bins) {
  __shared__ unsigned own[64];
  if (threadIdx.x < 64) own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&own[data[i] % 64], 1);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
int main() {
  auto* data = managed<unsigned char>(1024);
  auto* bins = managed<unsigned>(64);
  for (int i = 0; i < 1024; ++i) data[i] = i;
  CHECK(cudaMemset(bins, 0, 256));
  count<<<2, 128>>>(data, 1024, bins);
  CHECK(cudaDeviceSynchronize());
  return verdict(bins[7] == 16);
}
