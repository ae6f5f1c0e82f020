// Sweeps until nothing changes, the host asks after each.
#include "sample.h"
__global__ void sweep(const float* from, float* to, int count, int* changed) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const bool inside = i > 0 && i < count - 1;
  const float value = inside ? 0.5f * (from[i - 1] + from[i + 1]) : from[i];
  if (fabsf(value - from[i]) > 1e-2f) atomicOr(changed, 1);
  to[i] = value;
}
int main() {
  float *a = managed<float>(40), *b = managed<float>(40);
  int* changed = managed<int>(1);
  for (int i = 0; i < 40; ++i) a[i] = b[i] = i == 39 ? 1 : 0;
  int sweeps = 0;
  do {
    *changed = 0;
    sweep<<<2, 32>>>(a, b, 40, changed);
    CHECK(cudaDeviceSynchronize());
    float* kept = a;
    a = b, b = kept;
  } while (*changed && ++sweeps < 100);
  return verdict(sweeps > 5 && sweeps < 100 && a[38] > 0.5f);
}
