// Memory of a pool, in a stream's order.
#include "sample.h"
__global__ void fill(int* data) {
  data[threadIdx.x] = 7;
}
int main() {
  cudaStream_t stream;
  int *there, here[32];
  CHECK(cudaStreamCreate(&stream)), CHECK(cudaMallocAsync(&there, sizeof here, stream));
  fill<<<1, 32, 0, stream>>>(there);
  CHECK(cudaMemcpyAsync(here, there, sizeof here, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(there, stream)), CHECK(cudaStreamSynchronize(stream));
  return verdict(here[31] == 7);
}
