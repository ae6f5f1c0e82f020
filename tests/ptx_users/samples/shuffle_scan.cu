// An inclusive scan of a warp by shuffles.
#include "sample.h"
__global__ void scan(int* data) {
  int value = data[threadIdx.x];
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, value, step);
    if (threadIdx.x >= step) value += other;
  }
  data[threadIdx.x] = value;
}
int main() {
  int* data = managed<int>(32);
  for (int i = 0; i < 32; ++i) data[i] = 1;
  scan<<<1, 32>>>(data);
  CHECK(cudaDeviceSynchronize());
  return verdict(data[31] == 32);
}
