// Sums of doubles by a grid's blocks, the last one adds.
#include "sample.h"
__device__ unsigned arrived = 0;
__global__ void total(const double* in, double* parts, double* out) {
  __shared__ double sums[64];
  __shared__ bool last;
  sums[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  for (int half = 32; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sums[0];
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last || threadIdx.x > 0) return;
  double sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];
  *out = sum;
}
int main() {
  double *in = managed<double>(256), *parts = managed<double>(4), *out = managed<double>(1);
  for (int i = 0; i < 256; ++i) in[i] = i;
  total<<<4, 64>>>(in, parts, out);
  total<<<4, 64>>>(in, parts, out);
  CHECK(cudaDeviceSynchronize());
  return verdict(*out == 255 * 128);
}
