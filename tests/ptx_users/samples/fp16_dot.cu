// Halves in pairs.
#include <cuda_fp16.h>

#include "sample.h"
__global__ void dot(const half2* a, const half2* b, float* out) {
  half2 product = __hmul2(a[threadIdx.x], b[threadIdx.x]);
  float sum = __low2float(product) + __high2float(product);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (threadIdx.x == 0) *out = sum;
}
int main() {
  half2 *a = managed<half2>(32), *b = managed<half2>(32);
  float* out = managed<float>(1);
  for (int i = 0; i < 32; ++i) a[i] = __floats2half2_rn(1, 2), b[i] = __floats2half2_rn(3, i);
  dot<<<1, 32>>>(a, b, out);
  CHECK(cudaDeviceSynchronize());
  return verdict(*out == 32 * 3 + 2 * 496);
}
