// A kernel launches a kernel.
#include "sample.h"
__global__ void child(int* data) {
  data[threadIdx.x] = 3;
}
__global__ void parent(int* data) {
  if (threadIdx.x == 0) child<<<1, 32>>>(data);
}
int main() {
  int* data = managed<int>(32);
  parent<<<1, 32>>>(data);
  CHECK(cudaDeviceSynchronize());
  return verdict(data[31] == 3);
}
