// A bitonic sort of a tile.
#include "sample.h"
__global__ void sort(int* data) {
  __shared__ int tile[64];
  const unsigned i = threadIdx.x;
  tile[i] = data[i];
  for (unsigned width = 2; width <= 64; width *= 2) {
    for (unsigned step = width / 2; step > 0; step /= 2) {
      __syncthreads();
      const unsigned other = i ^ step;
      if (other > i && (tile[i] > tile[other]) == ((i & width) == 0)) {
        const int kept = tile[i];
        tile[i] = tile[other], tile[other] = kept;
      }
    }
  }
  __syncthreads();
  data[i] = tile[i];
}
int main() {
  int* data = managed<int>(64);
  for (int i = 0; i < 64; ++i) data[i] = i * 29 % 64;
  sort<<<1, 64>>>(data);
  CHECK(cudaDeviceSynchronize());
  bool right = true;
  for (int i = 0; i < 64; ++i) right &= data[i] == i;
  return verdict(right);
}
