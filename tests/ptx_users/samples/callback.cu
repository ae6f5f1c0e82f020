// The host is called back behind a kernel.
#include <atomic>

#include "sample.h"
__global__ void fill(int* data) {
  data[threadIdx.x] = threadIdx.x;
}
std::atomic<int> sum{0};
void CUDART_CB add(void* data) {
  for (int i = 0; i < 64; ++i) sum += static_cast<int*>(data)[i];
}
int main() {
  int *there, *here;
  CHECK(cudaMalloc(&there, 256)), CHECK(cudaMallocHost(&here, 256));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  fill<<<1, 64, 0, stream>>>(there);
  CHECK(cudaMemcpyAsync(here, there, 256, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaLaunchHostFunc(stream, add, here));
  CHECK(cudaStreamSynchronize(stream));
  return verdict(sum == 2016);
}
