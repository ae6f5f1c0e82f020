// Pinned memory, copies and launches in two streams, events.
#include "sample.h"
__global__ void twice(int* data) {
  data[threadIdx.x] *= 2;
}
int main() {
  int *here, *there;
  CHECK(cudaMallocHost(&here, 512)), CHECK(cudaMalloc(&there, 512));
  for (int i = 0; i < 128; ++i) here[i] = i;
  cudaStream_t streams[2];
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin)), CHECK(cudaEventCreate(&end)), CHECK(cudaEventRecord(begin));
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaStreamCreate(&streams[i]));
    CHECK(cudaMemcpyAsync(there + 64 * i, here + 64 * i, 256, cudaMemcpyHostToDevice, streams[i]));
    twice<<<1, 64, 0, streams[i]>>>(there + 64 * i);
    CHECK(cudaMemcpyAsync(here + 64 * i, there + 64 * i, 256, cudaMemcpyDeviceToHost, streams[i]));
  }
  CHECK(cudaEventRecord(end)), CHECK(cudaEventSynchronize(end));
  return verdict(here[100] == 200);
}
