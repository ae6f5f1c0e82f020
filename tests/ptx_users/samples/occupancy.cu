// The runtime proposes a block's size.
#include "sample.h"
__global__ void square(int* data, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] *= data[i];
}
int main() {
  int least = 0, threads = 0, blocks = 0;
  CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &threads, square, 0, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, square, threads, 0));
  int* data = managed<int>(2000);
  for (int i = 0; i < 2000; ++i) data[i] = i;
  square<<<(2000 + threads - 1) / threads, threads>>>(data, 2000);
  CHECK(cudaDeviceSynchronize());
  return verdict(threads % 32 == 0 && blocks >= 1 && least >= 1 && data[1999] == 1999 * 1999);
}
