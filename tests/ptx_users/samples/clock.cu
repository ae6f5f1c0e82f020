// A kernel reads its SM's clock.
#include "sample.h"
__global__ void timed(const float* in, float* out, long long* ticks) {
  const long long begin = clock64();
  float value = in[threadIdx.x];
  for (int i = 0; i < 10; ++i) value = value * 0.5f + 1;
  out[threadIdx.x] = value;
  if (threadIdx.x == 0) *ticks = clock64() - begin;
}
int main() {
  float *in = managed<float>(32), *out = managed<float>(32);
  auto* ticks = managed<long long>(1);
  for (int i = 0; i < 32; ++i) in[i] = 2;
  timed<<<1, 32>>>(in, out, ticks);
  CHECK(cudaDeviceSynchronize());
  return verdict(*ticks >= 0 && out[5] == 2);
}
