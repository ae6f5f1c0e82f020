// A kernel writes memory of the host.
#include "sample.h"
__global__ void write(int* out) {
  out[threadIdx.x] = 2 * threadIdx.x;
}
int main() {
  int *here, *there;
  CHECK(cudaSetDeviceFlags(cudaDeviceMapHost));
  CHECK(cudaHostAlloc(&here, 128, cudaHostAllocMapped));
  CHECK(cudaHostGetDevicePointer(&there, here, 0));
  write<<<1, 32>>>(there);
  CHECK(cudaDeviceSynchronize());
  return verdict(here[31] == 62);
}
