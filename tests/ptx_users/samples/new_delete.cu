// Memory that kernels allocate.
#include "sample.h"
__global__ void make(int** lists) {
  lists[threadIdx.x] = new int[threadIdx.x + 1];
  for (unsigned i = 0; i <= threadIdx.x; ++i) lists[threadIdx.x][i] = i;
}
__global__ void take(int** lists, int* out) {
  out[threadIdx.x] = lists[threadIdx.x][threadIdx.x];
  delete[] lists[threadIdx.x];
}
int main() {
  CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 20));
  int** lists = managed<int*>(32);
  int* out = managed<int>(32);
  make<<<1, 32>>>(lists);
  take<<<1, 32>>>(lists, out);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[31] == 31);
}
