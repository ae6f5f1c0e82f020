// Asynchronous copies to shared memory, two stages of a pipeline.
#include <cooperative_groups.h>

#include <cuda/pipeline>

#include "sample.h"
__global__ void sum_tiles(const int* in, int* out, int tiles) {
  __shared__ int stage[2][64];
  auto pipe = cuda::make_pipeline();
  const auto fetch = [&](int tile) {
    pipe.producer_acquire();
    if (tile < tiles) {
      cuda::memcpy_async(&stage[tile % 2][threadIdx.x], in + 64 * tile + threadIdx.x, sizeof(int),
                         pipe);
    }
    pipe.producer_commit();
  };
  int sum = 0;
  fetch(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fetch(tile + 1);
    cuda::pipeline_consumer_wait_prior<1>(pipe);
    __syncthreads();
    sum += stage[tile % 2][63 - threadIdx.x];
    __syncthreads();
    pipe.consumer_release();
  }
  out[threadIdx.x] = sum;
}
int main() {
  int *in = managed<int>(256), *out = managed<int>(64);
  for (int i = 0; i < 256; ++i) in[i] = i;
  sum_tiles<<<1, 64>>>(in, out, 4);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[0] == 63 * 4 + 64 * 6 && out[63] == 64 * 6);
}
