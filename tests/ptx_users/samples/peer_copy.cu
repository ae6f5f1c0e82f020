// Two GPUs, if there are two: one is sent the other's memory.
#include "sample.h"
__global__ void add(int* data) {
  data[threadIdx.x] += 1;
}
int main() {
  int count;
  CHECK(cudaGetDeviceCount(&count));
  int can = 0;
  if (count > 1) CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
  if (!can) return verdict(true);
  int *first, *second, here[32] = {};
  CHECK(cudaSetDevice(0)), CHECK(cudaDeviceEnablePeerAccess(1, 0)), CHECK(cudaMalloc(&first, 128));
  CHECK(cudaSetDevice(1)), CHECK(cudaMalloc(&second, 128));
  CHECK(cudaMemcpy(first, here, 128, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyPeer(second, 1, first, 0, 128));
  add<<<1, 32>>>(second);
  CHECK(cudaMemcpy(here, second, 128, cudaMemcpyDeviceToHost));
  return verdict(here[31] == 1);
}
