// Managed memory attached to streams.
#include "sample.h"
__global__ void twice(int* data) {
  data[threadIdx.x] *= 2;
}
int main() {
  cudaStream_t streams[2];
  int* data[2];
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaStreamCreate(&streams[i])),
        CHECK(cudaMallocManaged(&data[i], 128, cudaMemAttachHost));
    for (int j = 0; j < 32; ++j) data[i][j] = i + j;
    CHECK(cudaStreamAttachMemAsync(streams[i], data[i], 0, cudaMemAttachSingle));
  }
  for (int i = 0; i < 2; ++i) twice<<<1, 32, 0, streams[i]>>>(data[i]);
  CHECK(cudaStreamSynchronize(streams[0]));
  const bool first = data[0][31] == 62;
  CHECK(cudaStreamSynchronize(streams[1]));
  return verdict(first && data[1][31] == 64);
}
